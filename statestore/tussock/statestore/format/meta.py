"""The meta of an SST: block index, bloom filter, schema and statistics.

    "TSKM" | u16 version | u16 zero | u32 payload length | payload | u32 crc32c of all before it

Version 1 is a separate object, `.meta`. Version 2 is the end of a small SST's `.data`, so that such an SST is one
object and one request; a u32 with the bytes of the whole meta follows the checksum, so that it can be found from the
object's end. Version 3 is the `.meta` of an SST with a large filter: frame and payload are its head, without the
filter, whose parts follow (`parted_filter`). Most reads fetch the head alone.

The payload is a MessagePack map with the fields of `SstMeta` by name; the block index is columnar, one array of
little-endian numbers per property, so that a million blocks load as fast as a file is read. The checksum of every
block stands in the index too: a `.data` object that was swapped for that of another SST cannot pass.
"""

import struct
from bisect import bisect_left, bisect_right
from collections.abc import Sequence
from functools import cached_property
from itertools import pairwise

import msgspec
import numpy as np
import pyarrow as pa
from crc32c import crc32c

from tussock.statestore.base.damage import UNREADABLE
from tussock.statestore.base.limits import DEFAULT_LIMITS, Limits
from tussock.statestore.errors import CorruptSst
from tussock.statestore.format.bloom import Bloom
from tussock.statestore.format.parted_filter import FilterShape, PartedFilter, check_parts
from tussock.statestore.format.value_bounds import ColumnBounds, ValueBounds

__all__ = [
    "DATA_HEADER",
    "META_LENGTH",
    "ONE_OBJECT_HEADER",
    "BlockIndex",
    "LoadedMeta",
    "SstMeta",
    "check_meta",
    "decode_head",
    "decode_meta",
    "encode_meta",
]

_FRAME = struct.Struct("<4sHHI")
_MAGIC = b"TSKM"
TWO_OBJECTS = 1
ONE_OBJECT = 2
FILTER_APART = 3

DATA_HEADER = b"TSKD" + struct.pack("<HH", TWO_OBJECTS, 0)
"""The first 8 bytes of a `.data` object that has a `.meta` beside it; the first block follows."""

ONE_OBJECT_HEADER = b"TSKD" + struct.pack("<HH", ONE_OBJECT, 0)
"""The first 8 bytes of a `.data` object that ends with its meta."""

META_LENGTH = struct.Struct("<I")
"""The end of such an object: the bytes of its meta, this number included."""


class BlockIndex(msgspec.Struct, frozen=True, kw_only=True):
    """Per block, in order: little-endian arrays as bytes (formats as NumPy writes them)."""

    offset: bytes  # <u8, position in the .data object
    length: bytes  # <u4, compressed, with the trailer
    raw_length: bytes  # <u4, before compression
    crc: bytes  # <u4
    rows: bytes  # <u4
    deletes: bytes  # <u4
    min_epoch: bytes  # <u8, 0 where the version gives the epoch
    max_epoch: bytes  # <u8
    continues: bytes  # u1, 1 where the block's first key has newer versions in the block before
    key_ends: bytes  # <u4, end of each first key in `first_keys`
    first_keys: bytes  # the first user key of each block, joined


class SstMeta(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Everything that is known of an SST besides its rows."""

    id: str
    schema: bytes
    """The stored value columns as an Arrow IPC schema message; the key is not among them."""
    rows: int
    deletes: int
    smallest: bytes
    largest: bytes
    data_bytes: int
    index: BlockIndex
    bloom: bytes
    """Filter over user keys, as `bloom` documents it; empty if the table has none, or if it lies apart."""
    bounds: tuple[ColumnBounds, ...] = ()
    """Of some value columns; left out where there are none."""
    filter: FilterShape | None = None
    """How the parts of a filter that lies apart follow the head."""


def encode_meta(meta: SstMeta, *, in_data: bool = False) -> bytes:
    """The bytes of the `.meta` object, or with `in_data` what ends the `.data` object of a small SST.

    Of a meta whose filter lies apart this is the head, which the parts follow.
    """
    payload = msgspec.msgpack.encode(meta)
    version = ONE_OBJECT if in_data else TWO_OBJECTS if meta.filter is None else FILTER_APART
    body = _FRAME.pack(_MAGIC, version, 0, len(payload)) + payload
    body += struct.pack("<I", crc32c(body))
    return body + META_LENGTH.pack(len(body) + META_LENGTH.size) if in_data else body


class LoadedMeta:
    """A decoded meta, with the block index unpacked for searching. What the meta cache holds."""

    def __init__(
        self, meta: SstMeta, size: int, limits: Limits = DEFAULT_LIMITS, parts: Sequence[memoryview] = ()
    ) -> None:
        """`size` is that of the bytes it comes from, `parts` the filters that lie apart, if they were read."""
        index = meta.index
        self._limits = limits
        self.id = meta.id
        self.rows = meta.rows
        self.deletes = meta.deletes
        self.smallest = meta.smallest
        self.largest = meta.largest
        self.data_bytes = meta.data_bytes
        self.schema = pa.ipc.read_schema(pa.py_buffer(meta.schema))
        self.types: list[pa.DataType] = list(self.schema.types)
        self.offset = np.frombuffer(index.offset, "<u8").astype(np.int64)
        self.length = np.frombuffer(index.length, "<u4").astype(np.int64)
        self.raw_length = np.frombuffer(index.raw_length, "<u4").astype(np.int64)
        self.crc = np.frombuffer(index.crc, "<u4").tolist()
        self.block_rows = np.frombuffer(index.rows, "<u4").astype(np.int64)
        self.block_deletes = np.frombuffer(index.deletes, "<u4").astype(np.int64)
        self.min_epoch = np.frombuffer(index.min_epoch, "<u8")
        self.max_epoch = np.frombuffer(index.max_epoch, "<u8")
        self.continues = index.continues
        ends = np.frombuffer(index.key_ends, "<u4").tolist()
        starts = [0, *ends[:-1]]
        self.first_keys = [index.first_keys[start:end] for start, end in zip(starts, ends, strict=True)]
        self.bloom: Bloom | PartedFilter | None = Bloom(meta.bloom) if meta.bloom else None
        """`None`: there is none, or it lies apart and only the head was read."""
        self.filter = meta.filter
        if parts:
            self.bloom = PartedFilter.of(parts)
        numbers = (self.offset, self.length, self.raw_length, self.block_rows, self.block_deletes)
        sizes = {len(self.first_keys), len(self.crc), len(self.min_epoch), len(self.max_epoch), len(self.continues)}
        sizes.update(map(len, numbers))
        if len(sizes) != 1 or not self.first_keys:
            raise ValueError(f"the columns of the block index have {sorted(sizes)} blocks")
        if int(self.block_rows.sum()) != self.rows or ends[-1] != len(index.first_keys):
            raise ValueError("the block index has other rows or keys than it says")
        self.bounds = ValueBounds(meta.bounds, self.types, len(self.first_keys))
        # As much as the file, most of it the filter, plus the unpacked lists: about 210 bytes a block beside its key.
        self.nbytes = size + sum(map(len, self.first_keys)) + 250 * len(self.first_keys)

    @property
    def blocks(self) -> int:
        """How many blocks the SST has."""
        return len(self.first_keys)

    def block_of(self, key: bytes) -> int:
        """The first block that may hold `key`; -1 if every key of the SST is larger.

        The versions of one key may fill several blocks; `continues` says so, so that the search steps back over
        exactly those and a lookup of a key that merely starts a block reads that block alone.
        """
        block = bisect_right(self.first_keys, key) - 1
        while block > 0 and self.continues[block] and self.first_keys[block] == key:
            block -= 1
        return block

    def skip_newer(self, block: int, key: bytes, epoch: int) -> int:
        """From `block` on, which may hold `key`, the first block with a row at `epoch` or before; -1: `key` has none.

        A key's versions descend, so the blocks before it can be left unread.
        """
        while self.min_epoch[block] > epoch:
            block += 1
            if block == self.blocks or not self.continues[block] or self.first_keys[block] != key:
                return -1
        return block

    def is_of_one_key(self, block: int) -> bool:
        """Whether all rows of the block are sure to be versions of its first key."""
        if self.block_rows[block] == 1:
            return True
        after = block + 1
        return after < self.blocks and bool(self.continues[after]) and self.first_keys[block] == self.first_keys[after]

    def block_range(self, start: bytes | None, end: bytes | None) -> tuple[int, int]:
        """Blocks i .. j-1 hold every key with start <= key < end; `None` leaves a side open."""
        first = 0 if start is None else max(self.block_of(start), 0)
        last = self.blocks if end is None else bisect_left(self.first_keys, end)
        return first, max(last, first)

    @cached_property
    def raw_ends(self) -> list[int]:
        """Of each block the bytes before compression of it and all before it; 0 at its end, for the place -1."""
        return [*np.cumsum(self.raw_length).tolist(), 0]

    @cached_property
    def row_ends(self) -> list[int]:
        """Of each block the rows of it and all before it; 0 at its end, for the place -1."""
        return [*np.cumsum(self.block_rows).tolist(), 0]

    @cached_property
    def segments(self) -> list[int]:
        """Borders of the segments: segment s has the blocks borders[s] .. borders[s+1]-1.

        The versions of one key never part over two segments: what iterates by segments relies on it.
        """
        borders, size = [0], 0
        for block, length in enumerate(self.raw_length.tolist()):
            if size and size + length > self._limits.segment_bytes and not self.continues[block]:
                borders.append(block)
                size = 0
            size += length
        return [*borders, self.blocks] if self.blocks else [0]

    @cached_property
    def segment_numbers(self) -> list[int]:
        """Of each block the segment that holds it."""
        return [number for number, (start, end) in enumerate(pairwise(self.segments)) for _ in range(start, end)]

    @cached_property
    def segment_keys(self) -> list[bytes]:
        """The first user key of each segment."""
        return [self.first_keys[block] for block in self.segments[:-1]]

    def segment_of(self, key: bytes) -> int:
        """The segment that has all versions of `key`, if the SST has any; -1 if every key of the SST is larger."""
        return bisect_right(self.segment_keys, key) - 1

    def is_moderate(self, segment: int) -> bool:
        """Whether the segment may be held as one: the versions of a key can make it larger than memory."""
        first, last = self.segments[segment], self.segments[segment + 1]
        return last - first == 1 or self.raw_ends[last - 1] - self.raw_ends[first - 1] <= self._limits.segment_bytes_max


def decode_meta(data: bytes, sst_id: str, where: str, limits: Limits = DEFAULT_LIMITS) -> LoadedMeta:
    """Decode a whole meta of any version; `CorruptSst` naming `where` if it is damaged, foreign, newer or another's.

    `limits` say how large its segments are.
    """
    meta, end = _open(data, sst_id, where)
    return _load(meta, len(data), limits, where, _parts_behind(data, end, meta, where))


def decode_head(data: bytes, sst_id: str, where: str, limits: Limits = DEFAULT_LIMITS) -> LoadedMeta:
    """The same of the head of a meta whose filter lies apart: all but the filter."""
    meta, end = _open(data, sst_id, where)
    if meta.filter is None or end != len(data):
        raise CorruptSst(f"{where}: its first {len(data)} bytes are not the head of a meta; it is not what is named")
    return _load(meta, len(data), limits, where, ())


def check_meta(data: bytes, sst_id: str, where: str) -> SstMeta:
    """The record in a whole meta, its checksums verified, its index not yet unpacked; `CorruptSst` as above."""
    meta, end = _open(data, sst_id, where)
    _parts_behind(data, end, meta, where)
    return meta


def _load(meta: SstMeta, size: int, limits: Limits, where: str, parts: Sequence[memoryview]) -> LoadedMeta:
    try:
        return LoadedMeta(meta, size, limits, parts)
    except (LookupError, ValueError, OSError, struct.error, pa.ArrowException) as error:
        raise CorruptSst(f"{where}: not a meta of this format: {error}") from error


def _parts_behind(data: bytes, end: int, meta: SstMeta, where: str) -> Sequence[memoryview]:
    """The parts of the filter, which the head that ends there tells of; none if it lies in the record."""
    if meta.filter is None:
        return ()
    parts, size = meta.filter.parts, meta.filter.bytes
    if parts < 1 or parts & (parts - 1):
        raise CorruptSst(f"{where}: not a meta of this format: its filter has {parts} parts, not a power of two")
    if len(data) != end + parts * size:
        raise CorruptSst(f"{where}: a meta of {len(data)} bytes, its head says {end + parts * size}; it was truncated")
    return check_parts(memoryview(data)[end:], 0, parts, meta.id, where)


def _open(data: bytes, sst_id: str, where: str) -> tuple[SstMeta, int]:
    """The record in a meta, frame and checksum verified, and where its bytes end: parts of a filter may follow."""
    if len(data) < _FRAME.size + 4:
        raise CorruptSst(f"{where}: {len(data)} bytes are too few for an SST's meta; it was truncated")
    magic, version, reserved, length = _FRAME.unpack_from(data)
    if magic != _MAGIC:
        raise CorruptSst(f"{where}: not an SST's meta: expected {_MAGIC!r} where it begins, found {magic!r}")
    if version not in (TWO_OBJECTS, ONE_OBJECT, FILTER_APART) or reserved:
        raise CorruptSst(
            f"{where}: format version {version}.{reserved}, this program reads 1.0 to {FILTER_APART}.0; upgrade it"
        )
    end = _FRAME.size + length
    size = end + 4 + (META_LENGTH.size if version == ONE_OBJECT else 0)
    if len(data) < size or (len(data) > size and version != FILTER_APART):
        raise CorruptSst(f"{where}: a meta of {len(data)} bytes, its header says {size}; it was truncated")
    found, expected = crc32c(memoryview(data)[:end]), struct.unpack_from("<I", data, end)[0]
    if found != expected:
        raise CorruptSst(f"{where}: checksum mismatch, stored {expected:#010x}, the bytes give {found:#010x}")
    if version == ONE_OBJECT and META_LENGTH.unpack_from(data, end + 4)[0] != size:
        raise CorruptSst(f"{where}: its last 4 bytes are not the {size} of its meta")
    try:
        meta = msgspec.msgpack.decode(memoryview(data)[_FRAME.size : end], type=SstMeta)
    except UNREADABLE as error:
        raise CorruptSst(f"{where}: not a meta of this format: {error}") from error
    if meta.id != sst_id:
        raise CorruptSst(f"{where}: holds the meta of SST {meta.id}; objects were mixed up")
    if (meta.filter is None) != (version != FILTER_APART):
        raise CorruptSst(f"{where}: not a meta of this format: version {version} with its filter in the wrong place")
    return meta, size
