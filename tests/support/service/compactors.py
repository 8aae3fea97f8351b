"""Compactor nodes inside the test's process, whose slots are threads, for a platform in that process."""

from collections.abc import Callable, Sequence

from tussock.compactor.node.node import CompactorNode
from tussock.compactor.node.slots import InlineSlot, Slot
from tussock.meta.client.addresses import addresses_in
from tussock.meta.client.connection import MetaConnection
from tussock.meta.client.transport import GrpcTransport
from tussock.meta.rpc import meta_pb2 as pb
from tussock.statestore.base.system import RealSystem
from tussock.statestore.buckets import open_bucket
from tussock.statestore.sst.reader import Sstables


def start_compactor(
    url: str,
    *,
    slots: int = 1,
    name: str = "compactor",
    wrap: Callable[[Slot], Slot] = lambda slot: slot,
    **options: int,
) -> CompactorNode:
    """Start a node at the service `tussock://...`; the test drains it. `wrap` may replace its slots."""
    system = RealSystem()
    connection = MetaConnection(
        addresses_in(url), system, GrpcTransport, name=name, kind=pb.COMPACTOR, deadline_seconds=10.0
    )
    node = CompactorNode(connection, system, **options)

    def equip(opened: pb.OpenSessionResponse) -> tuple[Sstables, Sequence[Slot]]:
        bucket = open_bucket(opened.store_url, options=dict(opened.store_options))
        made = [InlineSlot(bucket, system, open_bucket) for _ in range(slots)]
        return Sstables(bucket, 16 << 20, system), [wrap(slot) for slot in made]

    node.start(slots, equip)
    return node
