"""Keys that are looked for together, in the forms in which lookups ask for them."""

from collections.abc import Sequence
from typing import TypeAlias

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from tussock.statestore.format.hashing import hash_key, hash_keys
from tussock.statestore.rows.key_arrays import fixed_view, key_order

__all__ = ["FEW_KEYS", "Keys", "WantedKeys", "as_array", "names_of"]

FEW_KEYS = 256
"""Fewer keys are handled as Python objects, which takes less time than a round through arrays."""

Keys: TypeAlias = list[bytes] | pa.BinaryArray
"""Encoded keys, as a list if they are few."""


class WantedKeys:
    """Keys that are looked for, ascending, in the forms in which they are asked for, each made when it is."""

    def __init__(
        self, names: list[bytes], into: npt.NDArray[np.intp] | list[int], array: pa.BinaryArray | None
    ) -> None:
        self.names = names
        self.into = into
        """Which of the caller's keys each of them is."""
        self._array = array
        self._fixed: list[npt.NDArray[np.bytes_] | None] = []
        self._slots: list[int] | None = into if isinstance(into, list) else None
        self._hashes: npt.NDArray[np.uint64] | None = None
        self._hash_of: dict[bytes, int] = {}

    @classmethod
    def sorted(cls, places: Sequence[int], names: list[bytes]) -> "WantedKeys":
        """Those of the keys at these places."""
        into = sorted(places, key=names.__getitem__)
        return cls([names[at] for at in into], into, None)

    @classmethod
    def of(cls, keys: Keys) -> "WantedKeys":
        """All keys."""
        if len(keys) < FEW_KEYS:
            return cls.sorted(range(len(keys)), names_of(keys))
        keys = as_array(keys)
        order = key_order(keys)
        ordered = keys.take(pa.array(order))
        return cls(ordered.to_pylist(), order, ordered)

    @property
    def array(self) -> pa.BinaryArray:
        """The keys in Arrow's form."""
        if self._array is None:
            self._array = pa.array(self.names, pa.binary())
        return self._array

    @property
    def fixed(self) -> npt.NDArray[np.bytes_] | None:
        """The keys as `fixed_view` has them; `None` if they have several widths."""
        if not self._fixed:
            self._fixed = [fixed_view(self.array)]
        return self._fixed[0]

    @property
    def slots(self) -> list[int]:
        """`into` as numbers of Python."""
        if self._slots is None:
            self._slots = np.asarray(self.into).tolist()
        return self._slots

    @property
    def hashes(self) -> npt.NDArray[np.uint64]:
        """The hash of each key."""
        if self._hashes is None:
            self._hashes = hash_keys(self.array)
        return self._hashes

    def hash_of(self, at: int) -> int:
        """The hash of one key, which is reckoned once for all runs."""
        name = self.names[at]
        known = self._hash_of.get(name)
        if known is None:
            known = self._hash_of[name] = hash_key(name)
        return known

    def without(self, found: bytearray) -> "WantedKeys":
        """The keys of which `found` is 0; the same object if that is all of them."""
        if not any(found):
            return self
        left = np.flatnonzero(np.frombuffer(found, np.uint8) == 0)
        wanted = WantedKeys([self.names[at] for at in left.tolist()], np.asarray(self.into, np.intp)[left], None)
        wanted._hash_of = self._hash_of
        wanted._hashes = None if self._hashes is None else self._hashes[left]
        return wanted


def as_array(keys: Keys) -> pa.BinaryArray:
    """The keys in Arrow's form."""
    return pa.array(keys, pa.binary()) if isinstance(keys, list) else keys


def names_of(keys: Keys) -> list[bytes]:
    """The keys as objects."""
    return keys if isinstance(keys, list) else keys.to_pylist()
