"""How many breakpoints a stream may have, and of how much a try may be."""

from collections.abc import Iterator

import numpy as np
import pyarrow as pa
import pytest

from tussock.compute import changelog as cl
from tussock.statestore import InvalidOption, StateStore, connect

SCHEMA = pa.schema([("k", pa.int64()), ("v", pa.int64())])
MOST = 100_000


@pytest.fixture
def store() -> Iterator[StateStore]:
    with connect("memory://", compaction=False) as opened:
        yield opened


def upserts(count: int, v: int = 0) -> pa.RecordBatch:
    """Records of that many keys."""
    names = ["k", "v", "_op"]
    return pa.record_batch([pa.array(np.arange(count)), pa.repeat(v, count), pa.repeat("UPSERT", count)], names=names)


def test_a_stream_has_a_thousand_breakpoints_at_most(store: StateStore) -> None:
    """The next one is refused until one is removed; each stream has its own."""
    one, other = (cl.Stream(store, name, schema=SCHEMA, key=["k"]) for name in ("one", "other"))
    with cl.Flow(store, [one, other], name="flow"):
        made = [one.break_on("input", "v > 1") for _ in range(1000)]
        with pytest.raises(InvalidOption, match="stream 'one' has 1,000 breakpoints already; remove some"):
            one.break_on("output")
        assert one.breakpoints == made
        other.break_on("input", "v > 1")
        made[7].remove()
        assert one.break_on("output") in one.breakpoints


def test_breakpoints_of_streams_that_are_in_no_flow_yet_get_numbers_of_the_flow() -> None:
    """Story: two streams had a breakpoint 1 each, and a client removed the other one."""
    with connect("memory://", compaction=False) as store:
        streams = [cl.Stream(store, name, schema=SCHEMA, key=["k"]) for name in ("one", "other")]
        before = [stream.break_on("input") for stream in streams]
        flow = cl.Flow(store, streams)
        after = streams[0].break_on("output")
        assert [one.number for one in (*before, after)] == [1, 2, 3]
        assert {one.number for one in flow.breakpoints} == {1, 2, 3}


def test_a_try_has_so_many_records_published_since_at_most(store: StateStore) -> None:
    """With its own, as the rows before it follow from all of them."""
    stream = cl.Stream(store, "s", schema=SCHEMA, key=["k"])
    with cl.Flow(store, [stream]) as flow:
        stream.push([cl.upsert(k=0, v=1)]).result(20)
        stream.push(upserts(MOST - 1, 2)).result(20)
        assert [record["v"] for record in flow.what_if("s", 1).published] == [1]
        stream.push([cl.upsert(k=0, v=3)]).result(20)
        told = "stream 's': it has published more than 100,000 records since then; try a newer transaction"
        with pytest.raises(InvalidOption, match=told):
            flow.what_if("s", 1)
        assert [record["v"] for record in flow.what_if("s", 3).published] == [3]


def test_a_transaction_that_is_tried_has_so_many_records_at_most(store: StateStore) -> None:
    """Also one of which next to nothing was published."""
    source = cl.Stream(store, "source", schema=SCHEMA, key=["k"])
    stream = cl.Stream(store, "s", schema=SCHEMA, key=["k"], inputs=[source])

    @stream.compute_batch
    def nothing(_: pa.RecordBatch) -> None:
        return None

    with cl.Flow(store, [source, stream]) as flow:
        for count in (MOST, MOST + 1):
            source.push(upserts(count, count)).result(20)
        flow.drain(20)
        assert len(flow.what_if("s", 1).taken) == MOST
        with pytest.raises(
            InvalidOption, match="stream 's': transaction 2 has 100,001 records; at most 100,000 are tried"
        ):
            flow.what_if("s", 2)


def test_an_operator_takes_so_many_records_back_at_most(store: StateStore) -> None:
    """The error says from which transaction on it can be tried."""
    schema = pa.schema([("k", pa.int64()), pa.field("v", pa.int64(), nullable=False)])
    source = cl.Stream(store, "source", schema=schema, key=["k"])
    counts = cl.aggregate("counts", source, "v", {"n": ("count",)})
    with cl.Flow(store, [source, counts]) as flow:
        source.push([cl.upsert(k=0, v=1)]).result(20)
        source.push(upserts(MOST, 2)).result(20)
        flow.drain(20)
        with pytest.raises(cl.HistoryGone, match="or more than 100,000 records are: it can be tried from") as caught:
            flow.what_if("counts", 1)
        assert caught.value.args[1] == 2
        assert [record["n"] for record in flow.what_if("counts", 2).published if record.op != "DELETE"] == [MOST]
