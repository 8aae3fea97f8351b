"""Damaging SSTs of a store in a `ModelBucket`, and repairing them as `tussock repair sst` does."""

import itertools
from collections.abc import Callable, Iterable
from typing import Any

from support.buckets.faulty_bucket import FaultyBucket
from support.store.stores import TickingSystem
from support.store.versions import ModelBucket
from tussock.compactor.sst_repair import SstRepair
from tussock.meta.log.log import VersionLog
from tussock.meta.version.invariants import problems
from tussock.meta.version.version import Version
from tussock.statestore.contract.losses import AcceptedLoss
from tussock.statestore.contract.object_store import ObjectStore
from tussock.statestore.contract.records import SstInfo, data_object, meta_object
from tussock.statestore.format.meta import LoadedMeta, decode_meta

__all__ = ["damage_block", "damage_meta", "is_lost", "meta_of", "open_repair", "repair", "version_of"]


_processes = itertools.count(1)


def version_of(bucket: ModelBucket) -> Version:
    """The newest version, which is sound."""
    version = VersionLog(bucket, bucket.system, owner="test").refresh()
    assert problems(version) == []
    return version


def meta_of(bucket: ModelBucket, sst: SstInfo) -> LoadedMeta:
    """The SST's meta."""
    start = sst.offset + sst.data_bytes if sst.meta_in_data else 0
    data = bucket.get(meta_object(sst))[start : start + sst.meta_bytes]
    return decode_meta(data, sst.id, "test")


def damage_block(bucket: ModelBucket, sst: SstInfo, *blocks: int) -> None:
    """Flip a bit in each of these blocks."""
    meta = meta_of(bucket, sst)
    for block in blocks:
        _flip(bucket, data_object(sst), sst.offset + int(meta.offset[block]) + 1)


def damage_meta(bucket: ModelBucket, sst: SstInfo) -> None:
    """Flip a bit in the meta."""
    start = sst.offset + sst.data_bytes if sst.meta_in_data else 0
    _flip(bucket, meta_object(sst), start + 20)


def _flip(bucket: ModelBucket, path: str, at: int) -> None:
    data, written_ms = bucket.objects[path]
    bucket.objects[path] = (data[:at] + bytes([data[at] ^ 1]) + data[at + 1 :], written_ms)


def open_repair(
    bucket: ModelBucket | FaultyBucket,
    open_source: Callable[[str], ObjectStore] | None = None,
    *,
    ahead_ms: int = 0,
) -> SstRepair:
    """A repair by a process with a clock that far ahead of the bucket's."""
    inner = bucket if isinstance(bucket, ModelBucket) else bucket.inner
    system = TickingSystem()
    system.wall_ms = inner.system.now_ms() + ahead_ms  # type: ignore[union-attr]
    # Ids begin with the time; two processes do not draw the same ones.
    system.drawn = next(_processes) << 28
    return SstRepair(bucket, system, owner="repair", open_source=open_source or _no_source)


def repair(bucket: ModelBucket | FaultyBucket, **options: Any) -> list[AcceptedLoss]:
    """Put all damaged SSTs aside; returns the losses."""
    mending = open_repair(bucket, **options)
    try:
        damaged = [found for state, sst in mending.named() if (found := mending.examine(state, sst)) is not None]
        return [mending.put_aside(one) for one in damaged]
    finally:
        mending.close()


def is_lost(key: bytes, losses: Iterable[AcceptedLoss]) -> bool:
    """Whether a key lies in a range of one of these."""
    return any(
        lost.first <= key < lost.end or (lost.closed and key == lost.end) for loss in losses for lost in loss.ranges
    )


def _no_source(url: str) -> Any:
    raise AssertionError(url)
