"""How long a caller waits for a flow that cannot answer, such as while its bucket is away."""

import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from support.buckets.faulty_bucket import FaultyBucket
from support.buckets.outage import Outage
from support.procedures.histories import QuickSystem
from support.store.stores import open_on
from tussock.compute import changelog as cl
from tussock.compute.applications.limits import ApplicationLimits
from tussock.statestore import InvalidOption, StateStore, WaitTimeout, connect
from tussock.statestore.buckets import open_bucket

SCHEMA = pa.schema([("k", pa.string()), ("v", pa.int64())])


@pytest.fixture
def store(tmp_path: Path) -> Iterator[StateStore]:
    with connect((tmp_path / "store").as_uri(), compaction=False) as opened:
        yield opened


class Held:
    """A flow whose function does not return until it may."""

    def __init__(self, store: StateStore) -> None:
        self.stream = cl.Stream(store, "s", schema=SCHEMA, key=["k"])
        self.begun, self.may_go = threading.Event(), threading.Event()
        self.flow = cl.Flow(store, [self.stream])

        @self.stream.compute
        def wait(row: cl.ChangeRecord) -> cl.ChangeRecord:
            self.begun.set()
            self.may_go.wait(25)
            return row

        self.flow.start()
        self.stream.push([cl.upsert(k="a", v=1)])
        self.begun.wait(20)


def test_a_stop_waits_no_longer_than_it_may(store: StateStore) -> None:
    """It goes on, and another one waits for it; meanwhile nothing begins."""
    held = Held(store)
    with pytest.raises(WaitTimeout, match=r"flow 's' has not ended within 0.1 s, and goes on ending"):
        held.flow.stop(timeout=0.1)
    with pytest.raises(WaitTimeout):
        held.flow.stop(timeout=0)
    with pytest.raises(InvalidOption, match="flow 's' is ending still"):
        held.flow.start()
    held.may_go.set()
    held.flow.stop(timeout=20)
    held.flow.stop()
    assert store.table("s").get("a") == {"k": "a", "v": 1}
    with held.flow:
        held.flow.drain(20)


def test_a_stop_with_a_limit_ends_a_flow_as_any(store: StateStore) -> None:
    """In time; a limit that is none is refused."""
    held = Held(store)
    held.may_go.set()
    with pytest.raises(InvalidOption, match="timeout"):
        held.flow.stop(timeout=-1)
    held.flow.stop(timeout=20)
    assert not held.flow.is_running
    assert store.table("s").get("a") == {"k": "a", "v": 1}


def test_a_look_waits_no_longer_than_it_may(store: StateStore) -> None:
    """It changes nothing, and later ones are answered."""
    held = Held(store)
    with pytest.raises(WaitTimeout, match=r"flow 's' has not answered within 0.1 s"):
        held.stream.get("a", timeout=0.1)
    with pytest.raises(WaitTimeout):
        held.stream.snapshot(timeout=0.1)
    held.may_go.set()
    held.flow.drain(20)
    assert held.stream.get("a", timeout=20) == {"k": "a", "v": 1}
    assert held.stream.snapshot(timeout=20) == ([{"k": "a", "v": 1}], 1)
    held.flow.stop()


def test_a_function_that_pauses_its_flow_is_refused_before(store: StateStore) -> None:
    """The transaction is bad, and the flow goes on."""
    stream = cl.Stream(store, "s", schema=SCHEMA, key=["k"])
    flow = cl.Flow(store, [stream])

    @stream.compute
    def pause(row: cl.ChangeRecord) -> cl.ChangeRecord:
        if row["v"] == 1:
            flow.pause()
        return row

    with flow:
        stream.push([cl.upsert(k="a", v=1)])
        stream.push([cl.upsert(k="b", v=2)])
        flow.drain(20)
        [bad] = stream.bad_rows()
        assert "is asked by a function that it runs" in bad.error
        assert flow.paused_at is None
        assert stream.get("b") == {"k": "b", "v": 2}


def rows_of(store: StateStore) -> list[dict[str, Any]]:
    return sorted((row for batch in store.table("s").read() for row in batch.to_pylist()), key=lambda row: row["k"])


@pytest.mark.parametrize("is_raised", [False, True])
def test_the_end_of_a_block_does_not_wait_for_a_bucket_for_ever(*, is_raised: bool) -> None:
    """Story: it did. What is in the log comes back with the next start, and the error says so."""
    outage, bucket = Outage("log/", "sst/"), open_bucket("memory://")
    store = open_on(FaultyBucket(bucket, outage), QuickSystem())
    stream = cl.Stream(store, "s", schema=SCHEMA, key=["k"])
    flow = cl.Flow(store, [stream], checkpoint=3600, limits=ApplicationLimits(exit_ms=300))

    def block() -> None:
        with flow:
            for key in "abc":
                stream.push([cl.upsert(k=key, v=1)]).result(20)
            outage.begin()
            if is_raised:
                raise ValueError("of the block")

    with pytest.raises(WaitTimeout, match=r"flow 's' has not ended within 0.3 s, .*: the commit waits: ") as caught:
        block()
    assert "3 records are in its input log and in no committed epoch: the next start runs them again." in str(
        caught.value
    )
    assert " 0 are not known to be in the log, and 0 requests have not begun" in str(caught.value)
    assert isinstance(caught.value.__context__, ValueError) == is_raised
    # The process ends here, and another one begins.
    with open_on(bucket, QuickSystem()) as other:
        assert rows_of(other) == []
        with cl.Flow(other, [cl.Stream(other, "s", schema=SCHEMA, key=["k"])]) as again:
            again.drain(20)
        assert [row["k"] for row in rows_of(other)] == ["a", "b", "c"]
    outage.end()
    with pytest.raises(cl.ApplicationFenced):
        flow.stop(20)
    store.close()


def test_the_end_of_a_block_says_what_may_be_lost() -> None:
    """Of what is not in the log, nobody was told that it is durable. When the bucket is back, it is."""
    outage, bucket = Outage("applications/"), open_bucket("memory://")
    with open_on(FaultyBucket(bucket, outage), QuickSystem()) as store:
        stream = cl.Stream(store, "s", schema=SCHEMA, key=["k"])
        flow = cl.Flow(store, [stream], checkpoint=3600, limits=ApplicationLimits(exit_ms=300))
        pushed = []

        def block() -> None:
            with flow:
                stream.push([cl.upsert(k="a", v=1)]).result(20)
                outage.begin()
                pushed.append(stream.push([cl.upsert(k="b", v=1)]))

        with pytest.raises(WaitTimeout, match=r"the input log waits: .* 1 are not known to be in the log") as caught:
            block()
        assert "1 records are in its input log and in no committed epoch" in str(caught.value)
        assert not pushed[0].done()
        outage.end()
        flow.stop(20)
        assert pushed[0].result(20) == 2
        assert [row["k"] for row in rows_of(store)] == ["a", "b"]


def test_the_end_of_a_block_waits_for_what_only_takes_long(store: StateStore) -> None:
    """The limit counts while the bucket is away, and not while the flow works."""
    stream = cl.Stream(store, "s", schema=SCHEMA, key=["k"])
    flow = cl.Flow(store, [stream], limits=ApplicationLimits(exit_ms=50))
    left = threading.Event()

    @stream.compute
    def work(row: cl.ChangeRecord) -> cl.ChangeRecord:
        left.wait(20)
        # Several looks whether something is wrong.
        time.sleep(0.5)
        return row

    with flow:
        stream.push([cl.upsert(k="a", v=1)])
        left.set()
    assert rows_of(store) == [{"k": "a", "v": 1}]
