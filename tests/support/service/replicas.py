"""Replicas that choose a leader: each with its clocks and a faulty way to the bucket, in a time that a test moves."""

from collections.abc import Callable

from support.buckets.faulty_bucket import FaultyBucket
from support.store.versions import FakeSystem, ModelBucket, spec
from tussock.meta.log.log import VersionLog
from tussock.meta.server.election import LeaderLease
from tussock.meta.version.deltas.delta import Delta
from tussock.meta.version.deltas.tables import CreateTable
from tussock.meta.version.version import Version
from tussock.statestore.errors import ObjectStoreUnavailable

__all__ = ["LEASE", "Node", "OwnClock", "leader_of", "run"]

LEASE = 3.0


class OwnClock(FakeSystem):
    """A machine whose monotonic clock starts anywhere and whose wall clock may be wrong."""

    def __init__(self, world: FakeSystem, name: str) -> None:
        super().__init__()
        self.world = world
        self.offset = 1000.0 * len(name) + sum(name.encode())
        self.rate = 1.0
        self.name = name.encode()

    def monotonic(self) -> float:
        return self.offset + self.world.ticks * self.rate

    def random_bytes(self, count: int) -> bytes:
        self.drawn += 1
        return (self.name + self.drawn.to_bytes(4, "big")).rjust(count, b"\0")[-count:]


class Node:
    """A replica: its own clocks, its own faulty way to the shared bucket, its own log."""

    def __init__(self, bucket: ModelBucket, name: str, lease: float = LEASE) -> None:
        self.bucket = FaultyBucket(bucket)
        self.system = OwnClock(bucket.system, name)
        self.log = VersionLog(self.bucket, self.system, owner=name)
        self.address = f"{name}:7370"
        self.lease = LeaderLease(self.bucket, self.system, self.log, address=self.address, lease_seconds=lease)
        self.due = 0.0

    def step(self) -> bool:
        """One round of a node's loop; after a failed round another one follows."""
        try:
            return self.lease.step()
        except ObjectStoreUnavailable:
            return self.lease.is_held()

    def append(self) -> None:
        def decide(version: Version) -> tuple[list[Delta], None]:
            return [CreateTable(spec=spec(f"t{version.next_table_id}", version.next_table_id))], None

        self.log.append(decide)


def run(nodes: list[Node], seconds: float, each: Callable[[], None] | None = None) -> None:
    """Let time pass in steps of 10 ms; each node steps when its pause is over, and there are never two leaders."""
    world = nodes[0].system.world
    for _ in range(round(seconds * 100)):
        world.forward(0.01)
        for node in nodes:
            if world.ticks >= node.due:
                node.step()
                node.due = world.ticks + node.lease.pause_seconds
        assert sum(node.lease.is_held() for node in nodes) <= 1
        if each is not None:
            each()


def leader_of(nodes: list[Node]) -> Node:
    (leader,) = [node for node in nodes if node.lease.is_held()]
    return leader
