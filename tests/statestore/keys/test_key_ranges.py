"""Ranges of keys: in order and apart, and what is in them is exactly what is cut out."""

import random

import pyarrow as pa
import pytest

from tussock.statestore.keys.ranges import KeyRanges, Range
from tussock.statestore.rows.rows import Rows


def test_ranges_come_in_order_without_overlaps() -> None:
    """Those that touch are one; empty ones are none."""
    assert list(KeyRanges([(b"c", b"d"), (b"a", b"b"), (b"b", b"c"), (b"x", b"x"), (b"z", b"y")])) == [(b"a", b"d")]
    assert list(KeyRanges([(None, b"b"), (b"", b"a"), (b"c", None), (b"d", b"e")])) == [(None, b"b"), (b"c", None)]
    assert list(KeyRanges([(b"a", b"e"), (b"b", b"c")])) == [(b"a", b"e")]
    assert not KeyRanges([])
    assert KeyRanges([(b"a", b"b"), (b"c", None)]).bounds == (b"a", None)


def some_ranges(rng: random.Random, names: list[bytes]) -> KeyRanges:
    def bound() -> bytes | None:
        return rng.choice([None, *(rng.choice(names) + rng.choice([b"", b"\0", b"\xff"]) for _ in range(8))])

    pairs: list[Range] = [(bound(), bound()) for _ in range(rng.choice([0, 1, 2, 3, 5, 60]))]
    return KeyRanges([pair for pair in pairs if rng.random() < 0.9 or None not in pair])


def is_in(key: bytes, ranges: KeyRanges) -> bool:
    return any((start is None or key >= start) and (end is None or key < end) for start, end in ranges)


@pytest.mark.parametrize("width", [0, 1, 2, 3])
def test_ranges_answer_as_their_keys_do(width: int) -> None:
    """Cut, touched, common and left ones, against a look at each key; keys of one width and of several."""
    rng = random.Random(width)
    for _ in range(300):
        size = rng.choice([1, 5, 100])
        names = [bytes(rng.choices(b"\0\1ab\xff", k=width or rng.randrange(4))) for _ in range(size)]
        keys = sorted(set(names))
        rows = Rows(pa.array(keys, pa.binary()), 1, None, ())
        ranges, others = some_ranges(rng, names), some_ranges(rng, names)
        inside = [key for key in keys if is_in(key, ranges)]
        assert ranges.cut(rows).keys.to_pylist() == inside
        assert ranges.cut(rows.slice(0, 0)).keys.to_pylist() == []
        assert [key for key in keys if ranges.touch(key, key)] == inside
        assert [key for key in keys if is_in(key, ranges.common(others))] == [
            key for key in inside if is_in(key, others)
        ]
        low, high = sorted(rng.choices(keys, k=2))
        assert [key for key in inside if low <= key <= high] == [
            key for key in keys if low <= key <= high and is_in(key, KeyRanges(ranges.among(low, high)))
        ]
        assert not any(low <= key <= high for key in inside) or ranges.touch(low, high)
        assert [key for key in keys if is_in(key, ranges.from_key(low))] == [key for key in inside if key >= low]
