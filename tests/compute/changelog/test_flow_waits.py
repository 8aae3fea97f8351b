"""How long a caller waits for a flow that cannot answer, such as while its bucket is away."""

import threading
from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pytest

from tussock.compute import changelog as cl
from tussock.statestore import InvalidOption, StateStore, WaitTimeout, connect

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
