"""The filter of a large SST, in parts by the hash of the key: a question needs one part, and nothing else of the meta.

A part is a filter as `bloom` documents it, of the keys whose hash has the part's number in its lowest bits, and a
checksum:

    filter | u32 crc32c of the SST's id, the part's number as u32, and the filter

All parts of an SST have one size, so that the place of each is known before anything of the meta was read; the id in
the checksum tells the part of another SST. The bits of a hash that choose the part hardly move its probes, which the
highest bits place, so the parts together let through what one filter does: 0.84 % of absent keys.

Why parts by hash, and not by range of keys: `docs/decisions/0038-large-filters-lie-apart.md`.
"""

import math
import struct
import threading
from collections.abc import Iterable, Sequence

import msgspec
import numpy as np
import numpy.typing as npt
from crc32c import crc32c

from tussock.statestore.errors import CorruptSst
from tussock.statestore.format.bloom import BITS_MAX, HEADER, VERSION, Bloom, are_set, is_set, packed_bits, probes_of

__all__ = ["CHECKSUM_BYTES", "FilterShape", "PartedFilter", "build_parts", "check_parts", "parts_of", "with_checksums"]

_CHECKSUM = struct.Struct("<I")

CHECKSUM_BYTES = _CHECKSUM.size
"""What a part has after its filter."""

_GROWTH = 4
"""Each time a part is missing, this many times as many are fetched as the time before: the whole filter of an SST of
64 MiB takes four requests, and of few questions nobody fetches more than four times what they needed."""

OBJECT_BYTES = 400
"""What a filter takes in memory beside its parts; and each place of a part, eight bytes."""


class FilterShape(msgspec.Struct, frozen=True, kw_only=True):
    """How the parts lie that follow the head of a meta."""

    parts: int  # a power of two
    bytes: int  # of each part, its checksum included


def parts_of(keys: int, bits_per_key: float, part_bytes: int) -> int:
    """In how many parts of up to `part_bytes` the filter of that many keys lies: a power of two."""
    filter_bytes = min(BITS_MAX, keys * bits_per_key) / 8
    return 1 << max(math.ceil(math.log2(max(filter_bytes / part_bytes, 1))), 0)


def build_parts(hashes: npt.NDArray[np.uint64], bits_per_key: float, parts: int) -> list[bytes]:
    """The filter of each part, without its checksum; `parts` is a power of two."""
    probes = probes_of(bits_per_key)
    bits = max(64, -(-math.ceil(min(BITS_MAX, len(hashes) * bits_per_key) / parts) // 64) * 64)
    packed, size = packed_bits(hashes, range(probes), bits, parts), bits // 8
    head = HEADER.pack(VERSION, probes, 0, bits)
    return [head + packed[at : at + size] for at in range(0, parts * size, size)]


def with_checksums(sst_id: str, filters: Sequence[bytes]) -> list[bytes]:
    """The parts as they lie in the meta of that SST."""
    return [one + _CHECKSUM.pack(_checksum(sst_id, number, one)) for number, one in enumerate(filters)]


def _checksum(sst_id: str, number: int, data: bytes | memoryview) -> int:
    return crc32c(data, crc32c(sst_id.encode() + _CHECKSUM.pack(number)))


def check_parts(data: bytes | memoryview, first: int, count: int, sst_id: str, where: str) -> list[memoryview]:
    """The filters of the parts `first` .. `first + count - 1`, which `data` is; `CorruptSst` if one is damaged."""
    view, size = memoryview(data), len(data) // count
    filters = []
    if size < HEADER.size + _CHECKSUM.size or size * count != len(data):
        raise CorruptSst(f"{where}: {len(data)} bytes are not {count} parts of a filter; it was truncated")
    for number in range(first, first + count):
        start = (number - first) * size
        one = view[start : start + size - _CHECKSUM.size]
        found, expected = _checksum(sst_id, number, one), _CHECKSUM.unpack_from(view, start + len(one))[0]
        if found != expected:
            raise CorruptSst(
                f"{where} part {number} of the filter: checksum mismatch, stored {expected:#010x}, the bytes of SST "
                f"{sst_id} give {found:#010x}"
            )
        filters.append(one)
    return filters


class PartedFilter:
    """A filter of which some parts, or all, are in memory; safe to ask from any thread."""

    __slots__ = ("_bits", "_last", "_lock", "_parts", "_probes", "_step", "_whole")

    def __init__(self, parts: int) -> None:
        """None of the parts is here yet; their number is a power of two."""
        self._parts: list[memoryview | None] = [None] * parts
        self._last = parts - 1
        self._bits = 0
        self._probes = range(0)
        self._step = 1
        self._whole: npt.NDArray[np.uint8] | None = None
        self._lock = threading.Lock()

    @classmethod
    def of(cls, filters: Sequence[memoryview]) -> "PartedFilter":
        """One with all its parts; `ValueError` if they are no filters."""
        made = cls(len(filters))
        made.add(0, filters)
        return made

    @property
    def parts(self) -> int:
        """How many parts it has, here or not."""
        return len(self._parts)

    @property
    def is_whole(self) -> bool:
        """Whether all parts are here."""
        return self._whole is not None

    @property
    def size_bytes(self) -> int:
        """Bytes of memory that the filter holds."""
        return OBJECT_BYTES + 8 * len(self._parts) + sum(len(part) for part in self._parts if part is not None)

    def may_contain(self, key_hash: int) -> bool | None:
        """As `Bloom.may_contain`; `None`: the part that knows is not here."""
        packed = self._parts[key_hash & self._last]
        return None if packed is None else is_set(packed, key_hash, self._probes, self._bits)

    def may_contain_many(self, hashes: npt.NDArray[np.uint64]) -> npt.NDArray[np.bool_]:
        """`may_contain` of each hash, aligned with `hashes`; all parts have to be here."""
        assert self._whole is not None
        return are_set(self._whole, hashes, self._probes, self._bits, len(self._parts))

    def missing(self, key_hash: int) -> tuple[int, int]:
        """The parts to fetch so that a key can be asked for, as (first, count): each time more of them."""
        count = min(self._step, len(self._parts))
        return (key_hash & self._last) // count * count, count

    def missing_of(self, hashes: Iterable[int]) -> tuple[int, int] | None:
        """The parts to fetch so that all these keys can be asked for, as one range; `None`: they are here."""
        absent = {key_hash & self._last for key_hash in hashes if self._parts[key_hash & self._last] is None}
        if len(absent) > 1:
            return min(absent), max(absent) - min(absent) + 1
        return self.missing(*absent) if absent else None

    def add(self, first: int, filters: Sequence[memoryview]) -> int:
        """Take parts from number `first` on; the bytes by which this grew. `ValueError` if they are no filters.

        The caller has verified their checksums.
        """
        blooms = [Bloom(one) for one in filters]
        with self._lock:
            for bloom in blooms:
                if self._bits and (bloom.bits, bloom.probes) != (self._bits, self._probes):
                    raise ValueError("its parts are filters of several sizes")
                self._bits, self._probes = bloom.bits, bloom.probes
            self._step *= _GROWTH
            before = self.size_bytes
            for number, bloom in enumerate(blooms, first):
                self._parts[number] = self._parts[number] or bloom.packed
            here = [part for part in self._parts if part is not None]
            if self._whole is None and len(here) == len(self._parts):
                # One array for questions of many keys, of which the parts are views.
                whole, size = memoryview(b"".join(here)), self._bits // 8
                self._parts = [whole[at : at + size] for at in range(0, len(whole), size)]
                self._whole = np.frombuffer(whole, np.uint8)
            return self.size_bytes - before
