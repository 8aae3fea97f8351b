"""Bloom filter over the user keys of an SST: "surely not here" without reading a block.

SST writers build one from the hashes of their keys and put its bytes into `.meta`; point reads ask it before they
fetch a block. It has no false negatives. With 10 bits a key, one absent key in 120 is let through (theory: 0.84 %).

The classic filter (Bloom, 1970) with all probes taken from one 64-bit hash by double hashing (Kirsch and
Mitzenmacher, "Less Hashing, Same Performance", 2006). The bytes, all little-endian:

| offset | size | field |
|---|---|---|
| 0 | 1 | format version: 1 |
| 1 | 1 | k, the number of probes: 1 to 30 |
| 2 | 2 | zero |
| 4 | 4 | m, the number of bits: a multiple of 64, not zero |
| 8 | m/8 | the bits: bit i is the bit of value `1 << (i & 7)` in byte `i >> 3` |

Probe i (from 0) of a hash h: `x = (low32(h) + i * (high32(h) | 1)) mod 2**32`, and the bit is `(x * m) >> 32`.
Scaling by a multiplication lets m be any size; a power of two would waste up to half of the space. The step is made
odd so that it is never zero.

Tried and not kept: a blocked filter (all probes in one 64-byte line). A single question took 1.1 microseconds, whatever
the answer; here it takes 0.5 for an absent key, which is refused after two probes on average, and 1.25 for a present
one. Absent keys are the case that matters: a read asks every run, and at most a few have the key.
"""

import math
import struct
from collections.abc import Iterator

import numpy as np
import numpy.typing as npt

from tussock.statestore.errors import InvalidOption

__all__ = ["DEFAULT_BITS_PER_KEY", "Bloom", "are_set", "build", "is_set", "packed_bits", "probes_of"]

DEFAULT_BITS_PER_KEY = 10

VERSION = 1
HEADER = struct.Struct("<BBHI")
PROBES_MAX = 30
BITS_MAX = (1 << 32) - 64
LOW_32 = 0xFFFF_FFFF
FEW_HASHES = 8

CHUNK_HASHES = 1 << 14
"""Hashes whose bits are set at a time: what is computed of them stays in the second-level cache. Over all hashes of an
SST of 64 MiB at once it took 40 ms in place of 30, and new memory for each step."""


def build(hashes: npt.NDArray[np.uint64], bits_per_key: float = DEFAULT_BITS_PER_KEY) -> bytes:
    """The bytes of a filter that contains these hashes (of `hashing.hash_keys`; any order, repeats allowed).

    Of no hashes: a filter that contains nothing. `bits_per_key` is from 1 to 40; beyond 429 million keys at 10 bits
    each the filter stops growing and lets more through. 1 M keys take about 40 ms, and 10 MB while it runs.
    """
    probes = probes_of(bits_per_key)
    bits = min(BITS_MAX, max(64, -(-math.ceil(len(hashes) * bits_per_key) // 64) * 64))
    if len(hashes) <= FEW_HASHES:
        return HEADER.pack(VERSION, probes, 0, bits) + _bits_of_few(hashes, probes, bits).to_bytes(bits // 8, "little")
    return HEADER.pack(VERSION, probes, 0, bits) + packed_bits(hashes, range(probes), bits)


def probes_of(bits_per_key: float) -> int:
    """How many bits to set for a key; `InvalidOption` unless there are 1 to 40 of them for each key."""
    if not 1 <= bits_per_key <= 40:
        raise InvalidOption(f"bits_per_key is {bits_per_key}; expected 1 to 40 (10 lets 1 % of absent keys through)")
    # k = ln 2 * bits_per_key lets the least through; rounded down, as a probe less is worth the 0.02 % that it adds.
    return min(PROBES_MAX, max(1, math.floor(bits_per_key * math.log(2))))


def _bits_of_few(hashes: npt.NDArray[np.uint64], probes: int, bits: int) -> int:
    """The bits that are set, as a number: a step of NumPy takes as long for one hash as for hundreds."""
    found = 0
    for one in hashes.tolist():
        x, step = one & LOW_32, one >> 32 | 1
        for _ in range(probes):
            found |= 1 << (x * bits >> 32)
            x = x + step & LOW_32
    return found


class Bloom:
    """A filter over bytes that `build` made (the bytes are kept, not copied); safe to ask from any thread.

    Raises `ValueError` if the bytes are not a whole filter of a known version.
    """

    __slots__ = ("_bits", "_bytes", "_many", "_probes")

    def __init__(self, data: bytes | memoryview) -> None:
        if len(data) < HEADER.size:
            raise ValueError(f"bloom filter of {len(data)} bytes; expected at least {HEADER.size}")
        version, probes, reserved, bits = HEADER.unpack_from(data)
        if version != VERSION or reserved != 0:
            raise ValueError(f"bloom filter of version {version}.{reserved}; this release reads version {VERSION}.0")
        if not 1 <= probes <= PROBES_MAX or bits == 0 or bits % 64:
            raise ValueError(
                f"bloom filter with {probes} probes over {bits} bits; expected 1 to 30 over a multiple of 64"
            )
        if len(data) != HEADER.size + bits // 8:
            raise ValueError(f"bloom filter of {len(data)} bytes; its {bits} bits take {HEADER.size + bits // 8}")
        self._probes = range(probes)
        self._bits: int = bits
        self._bytes = memoryview(data)[HEADER.size :]
        self._many = np.frombuffer(self._bytes, np.uint8)

    @property
    def bits(self) -> int:
        """How many bits it has."""
        return self._bits

    @property
    def probes(self) -> range:
        """The numbers of a key's probes."""
        return self._probes

    @property
    def packed(self) -> memoryview:
        """Its bits."""
        return self._bytes

    @property
    def size_bytes(self) -> int:
        """Bytes of memory that the filter holds, its header included."""
        return HEADER.size + len(self._bytes)

    def may_contain(self, key_hash: int) -> bool:
        """False if no key of this hash was added; True if one was, or by chance (see the module docstring)."""
        return is_set(self._bytes, key_hash, self._probes, self._bits)

    def may_contain_many(self, hashes: npt.NDArray[np.uint64]) -> npt.NDArray[np.bool_]:
        """`may_contain` of each hash, aligned with `hashes`."""
        return are_set(self._many, hashes, self._probes, self._bits)


def packed_bits(hashes: npt.NDArray[np.uint64], probes: range, bits: int, parts: int = 1) -> bytes:
    """The bits of a filter of these hashes.

    Of `parts` filters, a power of two, they lie one behind the other: `bits` of each, which has the hashes with its
    number in their lowest bits.
    """
    # A byte a bit while building: scattered stores are several times faster than `np.bitwise_or.at` on packed bits.
    one_each = np.zeros(parts * bits, np.uint8)
    for start in range(0, len(hashes), CHUNK_HASHES):
        for bit in _bits_of(hashes[start : start + CHUNK_HASHES], probes, bits, parts):
            one_each[bit] = 1
    return np.packbits(one_each, bitorder="little").tobytes()


def is_set(packed: memoryview, key_hash: int, probes: range, bits: int) -> bool:
    """Whether all bits of a hash are set in a filter."""
    x = key_hash & LOW_32
    step = key_hash >> 32 | 1
    for _ in probes:
        bit = x * bits >> 32
        if not packed[bit >> 3] >> (bit & 7) & 1:
            return False
        x = x + step & LOW_32
    return True


def are_set(
    packed: npt.NDArray[np.uint8], hashes: npt.NDArray[np.uint64], probes: range, bits: int, parts: int = 1
) -> npt.NDArray[np.bool_]:
    """The same of each hash, aligned with `hashes`, in filters as `packed_bits` has them."""
    answer = np.ones(len(hashes), np.bool_)
    for bit in _bits_of(hashes, probes, bits, parts):
        answer &= (packed[bit >> np.int64(3)] >> (bit & np.int64(7)).astype(np.uint8) & np.uint8(1)).view(np.bool_)
    return answer


def _bits_of(hashes: npt.NDArray[np.uint64], probes: range, bits: int, parts: int) -> Iterator[npt.NDArray[np.int64]]:
    """The number of each hash's bit, a probe after the other."""
    starts = (hashes & np.uint64(parts - 1)).view(np.int64) * bits if parts > 1 else None
    x, step = _start_and_step(hashes)
    for _ in probes:
        bit = _bit_of(x, bits)
        yield bit if starts is None else starts + bit
        x += step
        x &= np.uint64(LOW_32)


def _start_and_step(hashes: npt.NDArray[np.uint64]) -> tuple[npt.NDArray[np.uint64], npt.NDArray[np.uint64]]:
    """The first x and the distance between probes, for each hash; both below 2**32."""
    return hashes & np.uint64(LOW_32), hashes >> np.uint64(32) | np.uint64(1)


def _bit_of(x: npt.NDArray[np.uint64], bits: int) -> npt.NDArray[np.int64]:
    """Scale each x from 0 .. 2**32-1 to a bit number; the product of two numbers below 2**32 fits 64 bits."""
    return (x * np.uint64(bits) >> np.uint64(32)).view(np.int64)
