"""Which encoded keys a table remembers."""

from collections.abc import Sequence
from typing import Any

from tussock.statestore.tables.row_keys import KEY_BYTES_MAX, KEYS_MAX, RowKeys


class _CountingEncoder:
    """Text as it is."""

    def __init__(self) -> None:
        self.calls = 0

    def encode_row(self, key: Sequence[Any]) -> bytes:
        self.calls += 1
        return str(key[0]).encode()


def test_short_keys_are_remembered_and_long_ones_are_not() -> None:
    """Thousands of keys of a megabyte would take gigabytes."""
    encoder: Any = _CountingEncoder()
    keys = RowKeys(encoder, ["k"])
    for key, calls in (("x" * KEY_BYTES_MAX, 1), ("x" * (KEY_BYTES_MAX + 1), 3)):
        assert keys.key(key) == keys.key_of({"k": key}) == key.encode()
        assert encoder.calls == calls


def test_no_more_keys_are_remembered_than_it_says() -> None:
    """With one more it begins anew."""
    encoder: Any = _CountingEncoder()
    keys = RowKeys(encoder, ["k"])
    for number in range(KEYS_MAX + 1):
        keys.key(number)
    keys.key(KEYS_MAX)
    assert encoder.calls == KEYS_MAX + 1
    keys.key(0)
    assert encoder.calls == KEYS_MAX + 2
