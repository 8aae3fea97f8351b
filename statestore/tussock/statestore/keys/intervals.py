"""Ranges of encoded keys for rows between two primary keys, or between the beginnings of two.

A typed table is ordered by virtual node and only then by key, so an interval of keys is a range in each node that can
have some of its rows: in one if both ends agree on the whole distribution key, else in all.
"""

from collections.abc import Iterable, Sequence
from itertools import takewhile
from typing import Any

from tussock.statestore.errors import InvalidOption
from tussock.statestore.keys.encoding import KeyEncoder, upper_bound
from tussock.statestore.shown import show_value

__all__ = ["Interval", "interval_ranges"]

Interval = tuple[Sequence[Any], Sequence[Any]]
"""Values of leading key columns at the lower and at the upper end, both inclusive; an empty one leaves its end open."""

_NODE_BYTES = 2


def interval_ranges(
    encoder: KeyEncoder, interval: Interval, vnodes: Iterable[int]
) -> list[tuple[bytes | None, bytes | None]]:
    """The ranges [start, end) of encoded keys that hold the rows of `interval` in these virtual nodes.

    A row is in the interval if its first key columns, as many as an end has values, are not below the lower and not
    above the upper end. Raises `InvalidOption` for ends that are no sequences, `SchemaMismatch` for a value that its
    column cannot hold.
    """
    is_pair = isinstance(interval, tuple | list) and len(interval) == 2
    if not is_pair or not all(isinstance(end, tuple | list) for end in interval):
        raise InvalidOption(
            f"between {show_value(interval)}: expected two tuples of leading key values, such as (('a',), ('b',))"
        )
    low, high = interval
    first, last = encoder.encode_prefix(low), encoder.encode_prefix(high)
    same = [value for value, _ in takewhile(lambda ends: ends[0] == ends[1], zip(low, high, strict=False))]
    only = encoder.prefix_vnode(same)
    stems = [node.to_bytes(_NODE_BYTES, "big") for node in vnodes if only is None or node == only]
    if len(high) == len(encoder.primary_key):
        # A whole key is itself only: a string at its end would also begin longer ones.
        return [(stem + first, stem + last + b"\0") for stem in stems]
    return [(stem + first, upper_bound(stem + last)) for stem in stems]
