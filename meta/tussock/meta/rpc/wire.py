"""What a request is made of, counted in its bytes before anything is made of them.

A record that is empty has two bytes on the wire, and hundreds once it is an object: a message of some megabytes of
nothing would be gigabytes. So the records of a request are counted first, by the encoding that protobuf documents.
"""

from collections.abc import Mapping
from typing import Any

__all__ = ["RECORDS", "Miscounted", "records_in"]

Shape = Mapping[int, Any]
"""By the numbers of the fields whose records are looked into, what is looked into there."""

_TABLES: Shape = {2: {1: {}}}
"""Runs, and SSTs in them."""
RECORDS: Mapping[str, Shape] = {
    "Commit": {3: _TABLES},
    "CommitEach": {3: {3: _TABLES}},
    "CollectBarrier": {6: _TABLES},
    "ReportTask": {3: {}},
}
"""By RPC; of others the fields at the top are counted."""


class Miscounted(Exception):
    """The bytes are no message; or have more records than were to be counted, which are the second argument."""


def records_in(data: bytes, shape: Shape, most: int) -> int:
    """How many fields the message has at its top, and the records of `shape` within; `Miscounted` beyond `most`."""
    found = 0
    # What is still to be looked at: where it begins and ends, and its shape.
    left: list[tuple[int, int, Shape]] = [(0, len(data), shape)]
    while left:
        at, end, inside = left.pop()
        while at < end:
            key, at = _number(data, at, end)
            found += 1
            if found > most:
                raise Miscounted(f"more than {most} records", most)
            kind = key & 7
            if kind == 0:
                _, at = _number(data, at, end)
            elif kind == 2:
                length, at = _number(data, at, end)
                deeper = inside.get(key >> 3)
                # A message without fields to count is one record, whatever it holds.
                if deeper:
                    left.append((at, at + length, deeper))
                at += length
            elif kind in (1, 5):
                at += 8 if kind == 1 else 4
            else:
                raise Miscounted(f"a field of kind {kind} at {at}")
        if at != end:
            raise Miscounted(f"a field that ends at {at}, beyond {end}")
    return found


def _number(data: bytes, at: int, end: int) -> tuple[int, int]:
    """The number that is written at `at`, seven bits a byte, and where the next thing begins."""
    value = shift = 0
    while at < end and shift < 70:
        byte = data[at]
        at += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return value, at
        shift += 7
    raise Miscounted(f"a number that does not end at {at}")
