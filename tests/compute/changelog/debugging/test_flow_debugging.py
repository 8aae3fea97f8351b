"""A paused flow: breakpoints by text, streams that work their queues off, steps that make themselves."""

from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pytest

from support.waiting import eventually
from tussock.compute import changelog as cl
from tussock.statestore import InvalidOption, StateStore, connect

SCHEMA = pa.schema([("k", pa.string()), ("v", pa.int64())])


class Chain:
    """Streams `a`, `b`, `c` behind each other, and `d` behind `a`."""

    def __init__(self, store: StateStore, queue: int = 1024) -> None:
        def stream(name: str, *inputs: cl.Stream) -> cl.Stream:
            return cl.Stream(store, name, schema=SCHEMA, key=["k"], inputs=inputs, queue=queue)

        self.a = stream("a")
        self.b = stream("b", self.a)
        self.c = stream("c", self.b)
        self.d = stream("d", self.a)

        @self.b.compute
        def doubled(row: cl.ChangeRecord) -> list[cl.ChangeRecord]:
            return [cl.upsert(k=row["k"], v=2 * row["v"])]

        self.flow = cl.Flow(store, [self.a, self.b, self.c, self.d], name="chain")

    def queues(self) -> dict[str, int]:
        return {name: one.queued for name, one in self.flow.streams.items()}

    def push(self, *values: int) -> None:
        for value in values:
            self.a.push([cl.upsert(k=f"k{value}", v=value)]).result(10)


@pytest.fixture
def store(tmp_path: Path) -> Iterator[StateStore]:
    with connect((tmp_path / "store").as_uri(), compaction=False) as opened:
        yield opened


@pytest.fixture
def chain(store: StateStore) -> Iterator[Chain]:
    made = Chain(store)
    with made.flow:
        yield made


def test_one_stream_works_its_queue_off(chain: Chain) -> None:
    """With "stream" all others stand still, and what it gives them waits."""
    chain.flow.pause()
    chain.push(1, 2, 3)
    assert chain.queues() == {"a": 3, "b": 0, "c": 0, "d": 0}
    chain.flow.quiesce("a")
    assert chain.queues() == {"a": 0, "b": 3, "c": 0, "d": 3}
    chain.flow.quiesce(chain.b)
    assert chain.queues() == {"a": 0, "b": 0, "c": 3, "d": 3}
    assert chain.a.get("k3") == {"k": "k3", "v": 3}
    assert chain.c.get("k3") is None
    assert chain.flow.paused_at is not None


def test_all_behind_a_stream_work_their_queues_off(chain: Chain) -> None:
    """With "downstream" the stream itself stands still."""
    chain.flow.pause()
    chain.push(1, 2)
    chain.flow.step("trans", "a")
    chain.flow.step("location", "a")
    chain.flow.quiesce("a", "downstream")
    assert chain.queues() == {"a": 1, "b": 0, "c": 0, "d": 0}
    assert chain.c.get("k1") == {"k": "k1", "v": 2}
    assert chain.d.get("k1") == {"k": "k1", "v": 1}


def test_all_before_a_stream_work_their_queues_off(chain: Chain) -> None:
    """With "base" from the base to the stream, it included; without one the whole flow."""
    chain.flow.pause()
    chain.push(1, 2)
    chain.flow.quiesce("b", "base")
    assert chain.queues() == {"a": 0, "b": 0, "c": 2, "d": 2}
    chain.flow.quiesce(how="base")
    assert chain.queues() == {"a": 0, "b": 0, "c": 0, "d": 0}
    assert chain.c.get("k2") == {"k": "k2", "v": 4}


def test_a_queue_that_is_full_ends_it(store: StateStore) -> None:
    """A stream that stands still takes no more than its queue holds, and nothing is lost."""
    chain = Chain(store, queue=2)
    with chain.flow:
        chain.flow.pause()
        chain.push(1, 2)
        chain.flow.quiesce("a")
        chain.push(3, 4)
        chain.flow.quiesce("a")
        assert chain.queues() == {"a": 1, "b": 2, "c": 0, "d": 2}
        assert chain.a.location is cl.Location.OUTPUT
        chain.flow.resume()
        chain.flow.drain(10)
        assert [len(one.out_history()) for one in chain.flow.streams.values()] == [4, 4, 4, 4]


def test_a_breakpoint_ends_it(chain: Chain) -> None:
    """It says which one, and where."""
    one = chain.b.break_on("input", "v == 2")
    chain.flow.pause()
    chain.push(1, 2, 3)
    at = chain.flow.quiesce(how="base")
    assert at == cl.PausedAt("b", cl.Location.COMPUTE, 0, one.number)
    assert chain.queues() == {"a": 1, "b": 0, "c": 0, "d": 0}


def test_a_flow_that_runs_cannot_be_stepped(chain: Chain) -> None:
    """Typed errors for this, and for words that are none."""
    for act in (chain.flow.quiesce, chain.flow.step, lambda: chain.flow.auto_step(0.1)):
        with pytest.raises(InvalidOption, match="not paused"):
            act()
    chain.flow.pause()
    with pytest.raises(InvalidOption, match="expected 'stream'"):
        chain.flow.quiesce("a", "upstream")  # type: ignore[arg-type]
    with pytest.raises(InvalidOption, match="no stream"):
        chain.flow.quiesce("z")
    for seconds in (0, -1, 4000, True, "1", float("nan")):
        with pytest.raises(InvalidOption, match="auto_step"):
            chain.flow.auto_step(seconds)  # type: ignore[arg-type]
    with pytest.raises(InvalidOption, match="expected 'row'"):
        chain.flow.auto_step(1, "page")  # type: ignore[arg-type]


def test_steps_make_themselves_and_ask_no_breakpoint(chain: Chain) -> None:
    """Until they are stopped; what comes meanwhile is stepped through, too."""
    one = chain.b.break_on("input", "v > 0")
    chain.flow.pause()
    chain.push(1)
    chain.flow.auto_step(0.01, "location")
    assert chain.flow.status()["auto_step"] == {"seconds": 0.01, "what": "location"}
    eventually(lambda: chain.c.get("k1") == {"k": "k1", "v": 2})
    chain.push(2)
    eventually(lambda: chain.c.get("k2") == {"k": "k2", "v": 4})
    assert one.hits == 0
    chain.flow.stop_auto_step()
    chain.flow.stop_auto_step()
    chain.push(3)
    assert chain.flow.step("trans", "a").location is cl.Location.PUT
    assert chain.flow.status()["auto_step"] is None
    chain.flow.resume()
    assert chain.flow.wait_paused(10).breakpoint == one.number


def test_a_resume_ends_the_steps(chain: Chain) -> None:
    """A pause after it stands still."""
    chain.flow.pause()
    chain.flow.auto_step(0.01)
    chain.flow.resume()
    chain.flow.pause()
    chain.push(1)
    assert chain.flow.status()["auto_step"] is None
    assert chain.queues()["a"] == 1


def test_breakpoints_by_text(chain: Chain) -> None:
    """On the input and on the output, with every n-th; listed with their texts."""
    first = chain.b.break_on("input", "v > 1 and op == 'INSERT'", every=2)
    second = chain.b.break_on("output", "out.v == 10")
    assert [(one.number, one.condition) for one in chain.flow.breakpoints] == [
        (first.number, "v > 1 and op == 'INSERT'"),
        (second.number, "out.v == 10"),
    ]
    chain.push(1, 2, 3, 5)
    assert chain.flow.wait_paused(10).breakpoint == first.number
    assert chain.b.in_row == cl.insert(k="k3", v=3)
    chain.flow.resume()
    assert chain.flow.wait_paused(10).breakpoint == second.number
    assert chain.b.out_row == [cl.upsert(k="k5", v=10)]
    chain.flow.resume()
    chain.flow.drain(10)
    with pytest.raises(InvalidOption, match="no column 'x'"):
        chain.b.break_on("input", "x > 1")


def test_a_condition_that_cannot_be_asked_pauses_and_is_disabled(chain: Chain) -> None:
    """Its error is kept."""
    one = chain.b.break_on("input", "k > 1")
    chain.push(1)
    assert chain.flow.wait_paused(10).breakpoint == one.number
    assert not one.is_enabled
    assert "cannot be said" in one.error


def test_the_status_tells_of_all_streams(chain: Chain) -> None:
    """As JSON can say it; it waits for nothing that runs."""
    chain.push(1, 2)
    chain.flow.drain(10)
    chain.b.break_on("input", "v == 9")
    chain.flow.pause()
    chain.push(3)
    with chain.a.subscribe(1):
        status = chain.flow.status()
    assert status["state"] == "paused"
    assert status["paused_at"] == {"stream": "a", "location": "INPUT", "row": None, "breakpoint": None}
    streams = {one["name"]: one for one in status["streams"]}
    assert streams["c"]["inputs"] == ["b"]
    assert (streams["a"]["queued"], streams["a"]["queue"]) == (1, 1024)
    assert (streams["a"]["taken"], streams["a"]["published"], streams["a"]["rows_out"]) == (2, 2, 2)
    assert (streams["a"]["subscribers"], streams["a"]["subscriber_lag"]) == (1, 2)
    assert status["breakpoints"][0]["condition"] == "v == 9"
    assert chain.flow.stats()["transactions"] == 8


def test_a_batch_function_runs_by_batches_in_a_quiesced_stream(store: StateStore) -> None:
    """Ten thousand records are one call, as if nothing was paused."""
    calls: list[int] = []
    source = cl.Stream(store, "source", schema=SCHEMA, key=["k"])
    batched = cl.Stream(store, "batched", schema=SCHEMA, key=["k"], inputs=[source])

    @batched.compute_batch
    def same(batch: pa.RecordBatch) -> pa.RecordBatch:
        calls.append(batch.num_rows)
        return batch

    with cl.Flow(store, [source, batched]) as flow:
        flow.pause()
        source.push([cl.upsert(k=f"k{at}", v=at) for at in range(10_000)]).result(10)
        flow.quiesce(how="base")
        assert calls == [10_000]
        assert batched.queued == 0
