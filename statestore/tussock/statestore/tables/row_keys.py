"""Encoded keys of rows that are read and written alone, remembered: most steps of a program meet the same few keys."""

from collections.abc import Sequence
from typing import Any

from tussock.statestore.keys.encoding import KeyEncoder
from tussock.statestore.rows.row_codec import Row

__all__ = ["RowKeys"]

KEYS_MAX = 16_384
KEY_BYTES_MAX = 256
"""Longer keys are not remembered: they may have a megabyte each."""
_REMEMBERED = (int, str)
"""Classes whose equal values have equal keys; 1, 1.0 and True are equal, too, and are keys of different columns."""


class RowKeys:
    """The keys of one table's rows. Safe to use from several threads: what one forgets another encodes again."""

    def __init__(self, encoder: KeyEncoder, primary_key: Sequence[str]) -> None:
        self._encode = encoder.encode_row
        self._primary_key = primary_key
        self._only = primary_key[0] if len(primary_key) == 1 else None
        self._known: dict[int | str, bytes] = {}

    def key(self, key: Any) -> bytes:
        """The encoded key of what `get` takes; raises as `encode_row` does."""
        if type(key) not in _REMEMBERED or self._only is None:
            return self._encode(key if isinstance(key, tuple | list) else (key,))
        known = self._known.get(key)
        if known is None:
            known = self._encode((key,))
            if len(known) > KEY_BYTES_MAX:
                return known
            if len(self._known) >= KEYS_MAX:
                self._known.clear()
            self._known[key] = known
        return known

    def key_of(self, row: Row) -> bytes:
        """The encoded key of a row."""
        if self._only is not None:
            return self.key(row[self._only])
        return self._encode([row[name] for name in self._primary_key])
