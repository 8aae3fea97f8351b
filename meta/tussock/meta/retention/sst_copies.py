"""Copying SSTs from bucket to bucket, each compared with its checksums on the way.

Restores and copies of backups have this in common. A copy of an attempt before is read, not trusted: a disk may have
failed since. Memory: `WORKERS` SSTs at a time, each held whole (64 MiB before compression as a rule).
"""

import hashlib
import struct
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import NamedTuple

from crc32c import crc32c
from msgspec.structs import replace

from tussock.statestore.base.logs import get_logger
from tussock.statestore.base.system import System
from tussock.statestore.contract.object_store import ObjectStore
from tussock.statestore.contract.records import (
    SstInfo,
    data_object,
    data_path,
    meta_object,
    object_sizes,
    sst_text,
)
from tussock.statestore.errors import CorruptSst, ObjectNotFound
from tussock.statestore.format.meta import DATA_HEADER, ONE_OBJECT_HEADER, LoadedMeta, decode_meta

__all__ = ["Copy", "copy_ssts", "own_sst", "read_ssts"]

log = get_logger("tussock.meta")

WORKERS = 4
CHUNK_BYTES = 8 << 20
"""SSTs are fetched by ranges of about this size."""

_CRC = struct.Struct("<I")


class Copy(NamedTuple):
    """One SST to copy."""

    sst: SstInfo
    bucket: ObjectStore
    """Where its objects are."""
    digest: bytes = b""
    """What its bytes must give; empty: not known."""


class _Bytes(NamedTuple):
    """An SST as it was read: its checksums fit."""

    data: Sequence[bytes]
    meta: bytes

    def digest(self) -> bytes:
        """SHA-256 over the blocks, then the meta, wherever each of them lies."""
        found = hashlib.sha256()
        for part in (*self.data, self.meta):
            found.update(part)
        return found.digest()


def own_sst(sst: SstInfo) -> SstInfo:
    """The SST as the place that it is copied to has it: always as a separate object."""
    return replace(sst, source="", entry=0, offset=0)


def copy_ssts(
    copies: Iterable[Copy],
    target: ObjectStore,
    present: Mapping[str, int],
    system: System,
    on_copy: Callable[[SstInfo, bytes], None],
) -> None:
    """Copy what is not there yet, or not as it should be; all of it is durable when this returns.

    Args:
        copies: what to copy.
        target: where to.
        present: objects that are in `target` by an attempt before, with their bytes.
        system: threads.
        on_copy: hears of each SST that is in place, with its digest; called in the caller's thread.

    Raises:
        CorruptSst: one is missing or damaged; the message names the object.
    """

    def work(copy: Copy) -> bytes:
        is_there = all(present.get(path) == size for path, size in object_sizes(own_sst(copy.sst)).items())
        return _copy(copy, target, is_there=is_there)

    _for_each(copies, work, system, on_copy)


def read_ssts(copies: Iterable[Copy], system: System, on_read: Callable[[SstInfo, bytes], None]) -> None:
    """Read SSTs and check them as `copy_ssts` does, without a copy."""
    _for_each(copies, lambda copy: _read(copy, is_copy=bool(copy.digest)).digest(), system, on_read)


def _for_each(
    copies: Iterable[Copy], work: Callable[[Copy], bytes], system: System, on_done: Callable[[SstInfo, bytes], None]
) -> None:
    with system.pool("tussock-copy", WORKERS) as pool:
        running = [(copy.sst, pool.submit(work, copy)) for copy in copies]
        try:
            for sst, one in running:
                on_done(sst, one.result())
        finally:
            # After a failure: what has not begun does not begin.
            for _, one in running:
                one.cancel()


def _copy(copy: Copy, target: ObjectStore, *, is_there: bool) -> bytes:
    sst = copy.sst
    if is_there:
        try:
            return _read(Copy(own_sst(sst), target, copy.digest), is_copy=True).digest()
        except CorruptSst as error:
            log.warning("a copy of an earlier attempt is damaged, and is made again", error=str(error))
    found = _read(copy, is_copy=bool(copy.digest))
    if sst.meta_in_data:
        target.put(data_path(sst.id), [*found.data, found.meta])
    else:
        target.put(data_path(sst.id), found.data)
        target.put(meta_object(sst), found.meta)  # a separate object there too
    return found.digest()


def _read(copy: Copy, *, is_copy: bool) -> _Bytes:
    """Read an SST whole. A damaged header of one that `is_copy` is refused, else mended: no read of a store needs it.

    Without that a bit that flips on the way, where no checksum is, would be in the copy, or in its digest, for good.
    """
    sst = copy.sst
    try:
        meta_start = sst.offset + sst.data_bytes if sst.meta_in_data else 0
        meta_bytes = bytes(_range(copy, meta_object(sst), meta_start, sst.meta_bytes))
        meta = _read_meta(copy, meta_bytes)
        found = _Bytes([bytes(part) for part in _read_data(copy, meta, is_copy=is_copy)], meta_bytes)
    except ObjectNotFound as error:
        raise CorruptSst(f"{error}; the backup names it: it was lost, or the backup deleted meanwhile") from error
    if copy.digest and found.digest() != copy.digest:
        where = sst_text(f"{copy.bucket.url}/{data_object(sst)}", sst)
        raise CorruptSst(
            f"{where}: expected SHA-256 {copy.digest.hex()} over its blocks and meta, found {found.digest().hex()}; "
            "the checksums in it fit, so it is another SST, or was changed on purpose"
        )
    return found


def _range(copy: Copy, path: str, start: int, length: int) -> memoryview:
    data = copy.bucket.get_range(path, start, length)
    if len(data) != length:
        raise CorruptSst(
            f"{copy.bucket.url}/{path}: {len(data)} bytes from offset {start}, the backup says {length}; truncated"
        )
    return data


def _read_meta(copy: Copy, data: bytes) -> LoadedMeta:
    sst, where = copy.sst, sst_text(f"{copy.bucket.url}/{meta_object(copy.sst)}", copy.sst)
    meta = decode_meta(data, sst.id, where)
    said = (sst.rows, sst.deletes, sst.data_bytes, sst.smallest, sst.largest)
    if (meta.rows, meta.deletes, meta.data_bytes, meta.smallest, meta.largest) != said:
        raise CorruptSst(f"{where}: its rows, bytes or key range are not those that the backup names")
    return meta


def _read_data(copy: Copy, meta: LoadedMeta, *, is_copy: bool) -> list[bytes | memoryview]:
    """The `.data` up to the end of its blocks, every block compared with its checksum in the index."""
    path, begin = data_object(copy.sst), copy.sst.offset
    where = sst_text(f"{copy.bucket.url}/{path}", copy.sst)
    ends = (meta.offset + meta.length).tolist()
    if ends[-1] != copy.sst.data_bytes:
        raise CorruptSst(f"{where}: its blocks end at {ends[-1]}, not at {copy.sst.data_bytes}")
    header = ONE_OBJECT_HEADER if copy.sst.meta_in_data else DATA_HEADER
    if meta.offset.tolist() != [len(header), *ends[:-1]]:
        raise CorruptSst(f"{where}: its blocks do not follow each other; it was changed on purpose")
    parts: list[bytes | memoryview] = [header]
    if is_copy and (head := bytes(_range(copy, path, begin, len(header)))) != header:
        raise CorruptSst(f"{where}: expected the header {header.hex()}, found {head.hex()}")
    first = 0
    while first < meta.blocks:
        start, last = int(meta.offset[first]), first + 1
        while last < meta.blocks and ends[last] - start <= CHUNK_BYTES:
            last += 1
        part = _range(copy, path, begin + start, ends[last - 1] - start)
        for block in range(first, last):
            body = part[int(meta.offset[block]) - start : ends[block] - start]
            # The trailer's last field is the checksum of all before it, and the index repeats it.
            found, stored = crc32c(body[: -_CRC.size]), _CRC.unpack(body[-_CRC.size :])[0]
            if not found == stored == meta.crc[block]:
                raise CorruptSst(
                    f"{where} block {block} at offset {int(meta.offset[block])}: checksum mismatch, "
                    f"the index says {meta.crc[block]:#010x}, the bytes give {found:#010x}"
                )
        parts.append(part)
        first = last
    return parts
