"""The proof that an SST which somebody wants to commit is there, whole, and of the table that it is named for.

One request for a small SST (whose blocks are then checked as well), two for others; `prove_meta` makes one for either
and reads no blocks, for the client of an embedded store, which commits its own job's uploads. What the proof costs is
measured in `benchmarks/README.md`; without it, a commit that names a lost upload would be found out by its readers.
"""

from functools import lru_cache

import numpy as np
import pyarrow as pa
from crc32c import crc32c

from tussock.statestore.contract.object_store import ObjectStore
from tussock.statestore.contract.records import SstInfo, TableSpec, data_path, meta_path, stored_bytes
from tussock.statestore.errors import CorruptSst
from tussock.statestore.format.meta import SstMeta, check_meta
from tussock.statestore.format.schema_changes import is_earlier
from tussock.statestore.sst.objects import META_BYTES_MAX, read_whole
from tussock.statestore.sst.writer import value_schema

__all__ = ["prove_bytes", "prove_meta", "prove_sst"]

WHOLE_BYTES_MAX = 256 << 10
"""Objects up to this size are read whole and all their blocks checked."""


def prove_sst(bucket: ObjectStore, sst: SstInfo, spec: TableSpec) -> None:
    """Raise `ObjectNotFound` if an object of the SST is missing, `CorruptSst` if it is not what `sst` says."""
    path = data_path(sst.id)
    where = f"{bucket.url}/{path}"
    if sst.meta_in_data and sst.data_bytes <= WHOLE_BYTES_MAX and not sst.source:
        _check_claim(where, sst)
        prove_bytes(read_whole(bucket, path, stored_bytes(sst)), sst, spec, where)
        return
    prove_meta(bucket, sst, spec)
    if not sst.meta_in_data:
        last = bucket.get_range(path, max(sst.data_bytes - 1, 0), 2)
        _check_length(where, sst.data_bytes - 1 + len(last), sst.data_bytes)


def prove_meta(bucket: ObjectStore, sst: SstInfo, spec: TableSpec) -> None:
    """As `prove_sst`, by the SST's meta alone: one small request, which shows nothing of the blocks."""
    path = data_path(sst.id)
    where = f"{bucket.url}/{path}"
    if sst.source or sst.entry or sst.offset:
        held = sst.source or f"log entry {sst.entry}"
        raise CorruptSst(f"{where}: it is in {held}, and a commit brings SSTs that were uploaded to its own store")
    _check_claim(where, sst)
    if sst.meta_in_data:
        tail = bytes(bucket.get_range(path, sst.data_bytes, sst.meta_bytes + 1))
        _check_length(where, sst.data_bytes + len(tail), sst.data_bytes + sst.meta_bytes)
        meta = check_meta(tail, sst.id, where)
    else:
        where = f"{bucket.url}/{meta_path(sst.id)}"
        data = read_whole(bucket, meta_path(sst.id), sst.meta_bytes)
        _check_length(where, len(data), sst.meta_bytes)
        meta = check_meta(data, sst.id, where)
    _check_meta(where, meta, sst, spec)


def prove_bytes(whole: bytes, sst: SstInfo, spec: TableSpec, where: str) -> None:
    """Raise `CorruptSst` unless `whole` is the object of a small SST, as `sst` describes it, every block checked."""
    _check_length(where, len(whole), sst.data_bytes + sst.meta_bytes)
    meta = check_meta(whole[sst.data_bytes :], sst.id, where)
    view = memoryview(whole)
    index = meta.index
    try:
        starts, lengths = np.frombuffer(index.offset, "<u8").tolist(), np.frombuffer(index.length, "<u4").tolist()
        checksums = np.frombuffer(index.crc, "<u4").tolist()
    except ValueError as error:
        raise CorruptSst(f"{where}: its block index cannot be read: {error}") from error
    if not len(starts) == len(lengths) == len(checksums) > 0:
        raise CorruptSst(f"{where}: the columns of its block index are not equally long")
    for block, (start, length, expected) in enumerate(zip(starts, lengths, checksums, strict=True)):
        # The stored checksum is the last four bytes of a block, over all before it.
        if length < 4 or start + length > sst.data_bytes or crc32c(view[start : start + length - 4]) != expected:
            raise CorruptSst(f"{where}: block {block} at offset {start} does not match its checksum; it is damaged")
    _check_meta(where, meta, sst, spec)


def _check_claim(where: str, sst: SstInfo) -> None:
    if sst.meta_bytes > META_BYTES_MAX:
        raise CorruptSst(f"{where}: its meta is said to have {sst.meta_bytes} bytes, and has {META_BYTES_MAX} at most")


def _check_meta(where: str, meta: SstMeta, sst: SstInfo, spec: TableSpec) -> None:
    said = (sst.rows, sst.deletes, sst.smallest, sst.largest, sst.data_bytes)
    found = (meta.rows, meta.deletes, meta.smallest, meta.largest, meta.data_bytes)
    if said != found:
        raise CorruptSst(f"{where}: its meta says {found} of rows, deletes, keys and bytes, the commit says {said}")
    apart = (sst.head_bytes, sst.filter_parts)
    place = (
        (0, 0) if meta.filter is None else (sst.meta_bytes - meta.filter.parts * meta.filter.bytes, meta.filter.parts)
    )
    # A record without them comes from an older program: then the meta is fetched whole.
    if apart not in {place, (0, 0)}:
        raise CorruptSst(f"{where}: its head and the parts of its filter are {place}, the commit says {apart}")
    expected = _stored_schema(spec)
    # A writer that has not seen yet that the table was altered stores the columns from before; they are read as such.
    if meta.schema != expected and not is_earlier(_read_schema(meta.schema, where), _read_schema(expected, where)):
        raise CorruptSst(
            f"{where}: its columns are {_read_schema(meta.schema, where).names}, those of table {spec.name!r} are "
            f"{_read_schema(expected, where).names}; it is another table's"
        )
    # The rows of a table with other virtual nodes would not be found under their keys.
    if spec.vnodes and int.from_bytes(meta.largest[:2], "big") >= spec.vnodes:
        raise CorruptSst(
            f"{where}: its largest key is of virtual node {int.from_bytes(meta.largest[:2], 'big')}, and table "
            f"{spec.name!r} has {spec.vnodes}; it is another table's"
        )


@lru_cache(maxsize=1024)
def _stored_schema(spec: TableSpec) -> bytes:
    """The schema of the table's SSTs, as a writer of this version puts it into their meta."""
    written: bytes = value_schema(spec).serialize().to_pybytes()
    return written


def _read_schema(data: bytes, where: str) -> pa.Schema:
    try:
        return pa.ipc.read_schema(pa.py_buffer(data))
    except pa.ArrowException as error:
        raise CorruptSst(f"{where}: its schema cannot be read: {error}") from error


def _check_length(where: str, found: int, expected: int) -> None:
    if found != expected:
        raise CorruptSst(f"{where}: expected {expected} bytes, found {found}; the upload is not whole")
