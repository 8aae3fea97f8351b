"""Small SSTs in a bucket, written from plain tuples, and their rows by a brute-force model."""

from collections.abc import Iterable, Sequence
from itertools import count
from typing import NamedTuple

import msgspec
import numpy as np
import pyarrow as pa

from tussock.meta.version.version import CompactionTask
from tussock.statestore.base.limits import DEFAULT_LIMITS
from tussock.statestore.contract.object_store import ObjectStore
from tussock.statestore.contract.records import SstInfo, TableSpec
from tussock.statestore.rows.rows import Rows
from tussock.statestore.sst.writer import SstWriter


def manual_task(
    inputs: Sequence[tuple[SstInfo, ...]], *, watermark: int, bottom: bool = True, parted: bool = False
) -> CompactionTask:
    """A whole compaction of table 1 into level 1, as somebody has claimed it."""
    return CompactionTask(
        id="task-1",
        table_id=1,
        kind="manual",
        inputs=tuple(inputs),
        target_level=1,
        bottom=bottom,
        watermark=watermark,
        owner="test",
        claimed_ms=0,
        expires_ms=1,
        parted=parted,
    )


class Put(NamedTuple):
    """One version of a key; a value of `None` is a delete."""

    key: bytes
    epoch: int
    value: bytes | None


_SERIAL = count(1)


def raw_spec(*, block_bytes: int = 64 << 10, compression: str = "lz4", vnodes: int = 0) -> TableSpec:
    return TableSpec(id=1, name="kv", block_bytes=block_bytes, compression=compression, vnodes=vnodes)


def sort_puts(puts: Iterable[Put]) -> list[Put]:
    """Sort by key, then from the newest epoch to the oldest; stable."""
    return sorted(puts, key=lambda put: (put.key, -put.epoch))


def to_rows(puts: Sequence[Put], *, columns: int = 1, epoch: int = 0) -> Rows:
    """Puts as `Rows`; with `epoch` they share it. A second value column holds the value's length as an integer."""
    deletes = np.array([put.value is None for put in puts], np.bool_)
    values = [put.value or b"" for put in puts]
    columns_of = (pa.array(values, pa.binary()), pa.array([len(value) for value in values], pa.int64()))
    return Rows(
        pa.array([put.key for put in puts], pa.binary()),
        epoch or np.array([put.epoch for put in puts], np.uint64),
        deletes if deletes.any() else None,
        columns_of[:columns],
    )


def to_puts(rows: Rows) -> list[Put]:
    """`Rows` of a raw table as puts."""
    return [
        Put(key, int(epoch), None if deleted else value)
        for key, epoch, deleted, value in zip(
            rows.keys.to_pylist(),
            rows.epoch_array().tolist(),
            rows.delete_array().tolist(),
            rows.columns[0].to_pylist() if rows.columns else [b""] * len(rows),
            strict=True,
        )
    ]


def store_ssts(
    bucket: ObjectStore,
    spec: TableSpec,
    batches: Iterable[Rows],
    *,
    sst_bytes: int = 1 << 20,
    epoch: int = 0,
    one_object_bytes: int = 0,
    whole_filter_bytes: int = DEFAULT_LIMITS.whole_filter_bytes,
) -> tuple[SstInfo, ...]:
    """Write a sorted run; with `epoch` like a commit, whose epoch the version gives, otherwise like a compaction.

    Each SST is two objects, like a large one; one of up to `one_object_bytes` is one object. A filter of more than
    `whole_filter_bytes` lies apart.
    """
    infos = []
    writer = SstWriter(
        spec,
        sst_bytes=sst_bytes,
        epoch_inherited=bool(epoch),
        one_object_bytes=one_object_bytes,
        whole_filter_bytes=whole_filter_bytes,
    )
    for sst in writer.write(batches):
        info, objects = sst.objects(f"{next(_SERIAL):032x}")
        for path, parts in objects.items():
            bucket.put(path, parts)
        if epoch:
            info = msgspec.structs.replace(info, epoch=epoch, min_epoch=epoch, max_epoch=epoch)
        infos.append(info)
    return tuple(infos)


def store_run(
    bucket: ObjectStore,
    puts: Iterable[Put],
    *,
    block_bytes: int = 64 << 10,
    sst_bytes: int = 1 << 20,
    compression: str = "lz4",
    epoch: int = 0,
    one_object_bytes: int = 0,
    whole_filter_bytes: int = DEFAULT_LIMITS.whole_filter_bytes,
) -> tuple[SstInfo, ...]:
    """Write puts in any order as a sorted run of a raw table."""
    rows = to_rows(sort_puts(puts), epoch=epoch)
    spec = raw_spec(block_bytes=block_bytes, compression=compression)
    batches = [rows] if len(rows) else []
    return store_ssts(
        bucket,
        spec,
        batches,
        sst_bytes=sst_bytes,
        epoch=epoch,
        one_object_bytes=one_object_bytes,
        whole_filter_bytes=whole_filter_bytes,
    )


def newest(runs: Sequence[Iterable[Put]], epoch: int) -> dict[bytes, Put]:
    """The newest version with an epoch <= `epoch` of each key, deletes included; of equal epochs the newer run's."""
    seen: dict[bytes, Put] = {}
    for run in runs:
        for put in run:
            if put.epoch <= epoch and (put.key not in seen or put.epoch > seen[put.key].epoch):
                seen[put.key] = put
    return seen


def visible(
    runs: Sequence[Iterable[Put]],
    epoch: int,
    *,
    start: bytes | None = None,
    end: bytes | None = None,
    reverse: bool = False,
    limit: int | None = None,
) -> list[Put]:
    """The rows of a scan at `epoch`, in its order."""
    found = [
        put
        for key, put in sorted(newest(runs, epoch).items(), reverse=reverse)
        if put.value is not None and (start is None or key >= start) and (end is None or key < end)
    ]
    return found[:limit]
