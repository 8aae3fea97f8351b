"""Runs a compactor node as a process: wires settings, logs, session, bucket and slots, and ends them in order.

SIGTERM and SIGINT drain: running tasks are stopped and handed back, so that others begin them at once, and the process
ends with code 0. A second signal ends it at once; what it ran is then taken back when its session lapses.
"""

import sys
from collections.abc import Sequence

import msgspec

from tussock.compactor.executor import OUTPUT_SST_BYTES
from tussock.compactor.node.health import start_health
from tussock.compactor.node.node import CompactorNode
from tussock.compactor.node.slot_process import ProcessSlot, SlotSettings
from tussock.compactor.node.slots import META_CACHE_BYTES, Slot
from tussock.compactor.node.stop_signals import StopSignals
from tussock.meta.client.access import dial_with
from tussock.meta.client.buckets import credentials_of, open_session_bucket
from tussock.meta.client.connection import MetaConnection
from tussock.meta.rpc import meta_pb2 as pb
from tussock.statestore.base.identity import Access
from tussock.statestore.base.logs import get_logger
from tussock.statestore.base.service_logs import start_logging
from tussock.statestore.base.system import RealSystem, System
from tussock.statestore.errors import InvalidOption, MetaUnavailable
from tussock.statestore.sst.reader import Sstables

__all__ = ["CompactorSettings", "serve", "sst_bytes_for"]

log = get_logger("tussock.compactor")

_BASE_BYTES = 160 << 20
"""A slot's process before its first row: Python and the Arrow libraries."""
_STREAM_BYTES = 96 << 20
"""What a merge holds of its inputs, read ahead and in hand, and while a block is encoded."""
_SSTS_IN_MEMORY = 3
"""Outputs at once: one being encoded, two on their way."""
_SST_BYTES_MIN = 4 << 20


class CompactorSettings(msgspec.Struct, frozen=True, kw_only=True):
    """What a node is told."""

    addresses: tuple[str, ...]
    """`host:port` of the meta service's replicas, some of them at least."""
    name: str
    """Unique among the compactors that are connected."""
    slots: int = 1
    """Tasks, or parts of them, that run at once, each in a process."""
    memory_bytes: int = 0
    """For all slots together; 0: as much as they like, which is about 0.5 GB each."""
    deadline_seconds: float = 30.0
    """Seconds after which a request to the bucket, or a call of the service, has failed."""
    drain_seconds: float = 20.0
    """How long SIGTERM waits for running tasks to stop and be handed back."""
    health_listen: str = ""
    """`host:port` where probes are answered (`health.py`); empty for nowhere."""
    log_level: str = "info"
    log_format: str = "json"


def sst_bytes_for(memory_bytes: int, slots: int) -> int:
    """How large outputs may be before compression, so that all slots together stay within `memory_bytes`.

    Raises `InvalidOption` if the memory is too small for the slots.
    """
    if not memory_bytes:
        return OUTPUT_SST_BYTES
    left = memory_bytes // slots - _BASE_BYTES - _STREAM_BYTES
    if left < _SSTS_IN_MEMORY * _SST_BYTES_MIN:
        least = slots * (_BASE_BYTES + _STREAM_BYTES + _SSTS_IN_MEMORY * _SST_BYTES_MIN)
        raise InvalidOption(
            f"{memory_bytes >> 20} MiB are too few for {slots} slots, which need {least >> 20} MiB; give more memory, "
            "or fewer slots"
        )
    return min(left // _SSTS_IN_MEMORY, OUTPUT_SST_BYTES)


def serve(settings: CompactorSettings, access: Access) -> None:
    """Compact until SIGTERM or SIGINT, then hand back what runs and end.

    Waits for a service that is not there yet. Raises what the settings or the service do not allow.
    """
    start_logging(settings.log_level, settings.log_format, sys.stderr)
    sst_bytes = sst_bytes_for(settings.memory_bytes, settings.slots)
    system = RealSystem()
    connection = MetaConnection(
        settings.addresses,
        system,
        dial_with(access, system),
        name=settings.name,
        kind=pb.COMPACTOR,
        deadline_seconds=settings.deadline_seconds,
    )
    stopped = StopSignals()
    node = CompactorNode(connection, system)

    def equip(opened: pb.OpenSessionResponse) -> tuple[Sstables, Sequence[Slot]]:
        return _equip(settings, connection, opened, sst_bytes, system)

    health = start_health(settings.health_listen, node.defect, node.obstacle) if settings.health_listen else ""
    while not stopped.came:
        try:
            node.start(settings.slots, equip)
        except MetaUnavailable as error:
            log.warning("waiting for the meta service", addresses=settings.addresses, error=str(error))
        else:
            store = connection.opened.store_url
            log.info("compacting", name=settings.name, slots=settings.slots, store=store, health=health)
            stopped.wait()
    log.info("draining", name=settings.name, seconds=settings.drain_seconds)
    node.drain(settings.drain_seconds)
    log.info("stopped", name=settings.name)


def _equip(
    settings: CompactorSettings,
    connection: MetaConnection,
    opened: pb.OpenSessionResponse,
    sst_bytes: int,
    system: System,
) -> tuple[Sstables, Sequence[Slot]]:
    slot_settings = SlotSettings(
        url=opened.store_url,
        options=dict(opened.store_options),
        deadline_seconds=settings.deadline_seconds,
        sst_bytes=sst_bytes,
        has_credentials=opened.hands_out_credentials,
    )
    credentials = credentials_of(connection, system) if opened.hands_out_credentials else None
    slots = [ProcessSlot(f"slot-{number}", slot_settings, credentials) for number in range(settings.slots)]
    bucket = open_session_bucket(connection, opened.store_url, settings.deadline_seconds, system)
    # For cutting tasks: the metas of a large task pass through, and are read again by the slots.
    sstables = Sstables(
        bucket,
        META_CACHE_BYTES,
        system,
        lambda url: open_session_bucket(connection, url, settings.deadline_seconds, system),
    )
    return sstables, slots
