"""How many may read a flow at once, and for how long it waits for those elsewhere that do not go on."""

from collections.abc import Iterator
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from support.applications.forward_system import ForwardSystem
from support.store.stores import open_on
from tussock.compute import changelog as cl
from tussock.compute.service.rpc import application_pb2 as pb
from tussock.statestore import InvalidOption, connect
from tussock.statestore.buckets import open_bucket

SCHEMA = pa.schema([("k", pa.int64())])
ROWS = 10_001
"""Of two pages."""


class Node:
    """A flow of one stream as a node has it."""

    def __init__(self) -> None:
        self.system = ForwardSystem()
        self.store = open_on(open_bucket("memory://"), self.system)
        self.stream = cl.Stream(self.store, "s", schema=SCHEMA, key=["k"])
        self._served = cl.Flow(self.store, [self.stream]).served()
        self._served.start()

    def ask(self, kind: str, request: pb.Request) -> Any:
        return self._served.begin(kind, request).result(20)

    def page(self, reader: str, page: int = 0) -> Any:
        return self.ask("stream_rows", pb.Request(stream_rows=pb.StreamRows(stream="s", reader=reader, page=page)))

    def poll(self, subscriber: str, from_seq: int) -> Any:
        """The number of the next one, once there is something or a moment has passed."""
        asked = pb.Subscribe(stream="s", subscriber=subscriber, from_seq=from_seq, wait_ms=1)
        return self.ask("subscribe", pb.Request(subscribe=asked))["next"]

    def push(self, rows: pa.RecordBatch | list[cl.ChangeRecord]) -> None:
        self.stream.push(rows).result(20)

    def subscribers(self) -> int:
        return int(self._served.status()["streams"][0]["subscribers"])

    def stop(self) -> None:
        self._served.stop()
        self.store.close()


@pytest.fixture
def node() -> Iterator[Node]:
    found = Node()
    found.push(pa.record_batch([pa.array(np.arange(ROWS)), pa.repeat("INSERT", ROWS)], names=["k", "_op"]))
    yield found
    found.stop()


def test_a_flow_has_a_thousand_subscriptions_at_most() -> None:
    """Of all its streams together; the next one is refused until one is closed."""
    with connect("memory://", compaction=False) as store:
        one, other = (cl.Stream(store, name, schema=SCHEMA, key=["k"]) for name in ("one", "other"))
        with cl.Flow(store, [one, other], name="flow"):
            found = [stream.subscribe(None) for stream in (one, other) for _ in range(500)]
            for stream in (one, other):
                with pytest.raises(InvalidOption, match="the flow has 1,000 subscriptions already; close some"):
                    stream.subscribe(None)
            found[0].close()
            with other.subscribe(None), pytest.raises(InvalidOption, match="1,000 subscriptions"):
                one.subscribe(None)


def test_sixteen_snapshots_are_read_at_once_at_most(node: Node) -> None:
    """The next one is refused, and nothing of it begun, until one is at its end."""
    for number in range(16):
        assert not node.page(f"r{number}")["is_last"]
    with pytest.raises(cl.Full, match="stream 's': 16 snapshots are read already; this one did not begin"):
        node.page("more")
    assert not node.page("r3")["is_last"], "who did not get a page asks again"
    assert node.page("r3", 1)["is_last"]
    assert not node.page("more")["is_last"]
    with pytest.raises(cl.Full):
        node.page("r3", 0)
    assert node.page("r3", 1)["is_last"], "who did not get the last page asks again"


def test_snapshots_that_are_read_to_their_end_are_none_of_them(node: Node) -> None:
    """Story: the seventeenth within half a minute was refused. Last pages are kept of the newest of them only."""
    for number in range(40):
        assert not node.page(f"r{number}")["is_last"]
        assert node.page(f"r{number}", 1)["is_last"]
    assert node.page("r39", 1)["is_last"]
    with pytest.raises(cl.HistoryGone):
        node.page("r0", 1)


def test_a_snapshot_that_does_not_go_on_is_forgotten_after_half_a_minute(node: Node) -> None:
    """Then there is room for another one."""
    for number in range(16):
        node.page(f"r{number}")
    node.system.forward(20)
    assert node.page("r0", 1)["is_last"]
    node.system.forward(11)
    with pytest.raises(
        cl.HistoryGone,
        match="stream 's': page 1 of its rows was not asked for within 30 s after the one before it, or there is none",
    ):
        node.page("r1", 1)
    for number in range(16):
        assert not node.page(f"new{number}")["is_last"]


def test_a_subscriber_that_does_not_read_on_is_forgotten_after_half_a_minute(node: Node) -> None:
    """One that has something to read; one that has read all, and asks, is not."""
    assert node.poll("idle", 2) == 2
    assert node.poll("busy", 2) == 2
    node.push([cl.delete(k=1)])
    assert node.poll("idle", 2) == 3
    for seconds, left in ((20, 2), (11, 1)):
        node.system.forward(seconds)
        # Leases are looked at after polls: after the first of them when the second is answered.
        assert [node.poll("busy", 3) for _ in range(2)] == [3, 3]
        assert node.subscribers() == left
    # It may come back, as what it has not read is still in the history.
    assert node.poll("idle", 2) == 3
    assert node.subscribers() == 2
