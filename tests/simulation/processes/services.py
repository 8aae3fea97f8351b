"""The processes of a platform: replicas of the meta service, compactor nodes, and their clients."""

import contextlib
from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from simulation.machine.bucket import NodeBucket
from simulation.machine.scheduler import Node
from simulation.machine.system import SimSystem
from simulation.processes.process import PICKER, Process
from support import inside
from tussock.compactor.node.node import CompactorNode
from tussock.compactor.node.slots import InlineSlot, Slot
from tussock.meta.client.backend import PlatformBackend
from tussock.meta.client.connection import MetaConnection
from tussock.meta.rpc import meta_pb2 as pb
from tussock.meta.server.node import MetaNode
from tussock.meta.server.settings.node_options import NodeOptions
from tussock.statestore.buckets.request_counter import RequestCounts
from tussock.statestore.client import StateStore
from tussock.statestore.errors import DuplicateName, MetaUnavailable, ObjectStoreUnavailable, SessionExpired
from tussock.statestore.parts import StoreParts
from tussock.statestore.sst.reader import Sstables

if TYPE_CHECKING:
    from simulation.world import World

__all__ = ["RemoteProcess", "compact", "lead_or_follow"]

SST_BYTES = 500


class RemoteProcess(Process):
    """A process whose store is behind the meta service."""

    is_remote = True

    def connect(self) -> None:
        """Open the store, however many attempts the service needs."""
        while True:
            connection = MetaConnection(
                self.world.addresses(),
                self.system,
                self.world.network.dial(self.node),
                name=repr(self.node),
                deadline_seconds=15.0,
            )
            backend = PlatformBackend(connection, self.system, replace(self.settings(), deadline=15.0))
            try:
                backend.start()
                break
            except (MetaUnavailable, ObjectStoreUnavailable):
                connection.close()
                self.system.sleep(1.0)
        requests = RequestCounts(self.bucket)
        settings = self.settings()
        self.store = StateStore(StoreParts(settings, self.system, self.bucket, requests, backend))
        self.check_memory()


def lead_or_follow(world: "World", node: Node, address: str) -> None:
    """Be a replica of the meta service."""
    system = SimSystem(world.scheduler, node)
    bucket = NodeBucket(world.bucket, node, lambda: world.faults)
    plan = world.plan
    options = NodeOptions(
        store_url="sim://",
        address=address,
        retention_seconds=plan.retention,
        gc_grace_seconds=plan.gc_grace,
        picker=PICKER,
        vacuum_interval_seconds=20.0,
        session_lease_seconds=20.0,
        pin_lease_seconds=plan.pin_lease,
        log_poll_seconds=1.0,
        tick_seconds=0.5,
    )
    while True:
        try:
            meta = MetaNode(RequestCounts(bucket), system, options)
            break
        except ObjectStoreUnavailable:
            system.sleep(1.0)
    log: Any = meta.meta.log
    inside.base_every(log, plan.base_every)
    meta.start()
    world.network.servers[address] = node, meta


def compact(world: "World", node: Node) -> None:
    """Be a compactor node of two slots."""
    system = SimSystem(world.scheduler, node)
    bucket = NodeBucket(world.bucket, node, lambda: world.faults)

    def equip(_: pb.OpenSessionResponse) -> tuple[Sstables, Sequence[Slot]]:
        requests = RequestCounts(bucket)
        view = requests.for_purpose("compaction")
        sstables = Sstables(view, 1 << 20, system, requests.opener("compaction"))
        slots = [InlineSlot(view, system, requests.opener("compaction"), SST_BYTES) for _ in range(2)]
        return sstables, slots

    while True:
        connection = MetaConnection(
            world.addresses(),
            system,
            world.network.dial(node),
            name=repr(node),
            kind=pb.COMPACTOR,
            deadline_seconds=15.0,
        )
        try:
            CompactorNode(connection, system).start(2, equip)
            return
        except (DuplicateName, MetaUnavailable, ObjectStoreUnavailable):
            # A duplicate: the session of an earlier try lives until it lapses.
            with contextlib.suppress(MetaUnavailable, SessionExpired):
                connection.close()
            system.sleep(1.0)
