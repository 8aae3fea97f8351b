"""Epochs: 64-bit numbers that only ever grow, `milliseconds since the Unix epoch << 16 | serial`.

Nobody computes the previous or the next epoch with -1 or +1: the clock may have moved, and other writers take
epochs too. The bound is 2**63 so that every epoch fits a signed 64-bit column in Spark and SQL.
"""

import operator
from datetime import UTC, datetime
from typing import Any

from tussock.statestore.errors import InvalidBatch, InvalidOption
from tussock.statestore.shown import show_value

__all__ = [
    "MAX_EPOCH",
    "check_epoch",
    "check_position",
    "check_read_epoch",
    "epoch_at_ms",
    "epoch_ms",
    "integer_of",
    "iso",
    "next_epoch",
]

SERIAL_BITS = 16
MAX_EPOCH = (1 << 63) - 1


def integer_of(value: Any, least: int = 0) -> int | None:
    """The integer that a value is, whatever its class, such as one of NumPy.

    `None` if it is none in least .. 2**63-1, or a truth value.
    """
    if isinstance(value, bool):
        return None
    try:
        number = operator.index(value)
    except TypeError:
        return None
    return number if least <= number <= MAX_EPOCH else None


def check_epoch(epoch: object) -> int:
    """Return `epoch` if it can be one, i.e. is an integer in 1 .. 2**63-1; else raise `InvalidBatch`."""
    number = integer_of(epoch, 1)
    if number is None:
        raise InvalidBatch(
            f"epoch {show_value(epoch)} is not an integer from 1 to 2**63-1; take one from store.new_epoch()"
        )
    return number


def check_read_epoch(epoch: object) -> int:
    """Return `epoch` if one can read at it: an epoch, or 0, before all commits; else raise `InvalidOption`."""
    number = integer_of(epoch)
    if number is None:
        raise InvalidOption(
            f"epoch {show_value(epoch)} is not an integer from 0 to 2**63-1; read at one such as store.committed_epoch"
        )
    return number


def check_position(epoch: object, name: str) -> int:
    """Return `epoch` if it can be where a reader of changes is: an epoch, or 0 for before all; else `InvalidOption`."""
    number = integer_of(epoch)
    if number is None:
        raise InvalidOption(f"changes: {name} is {show_value(epoch)}; expected 0 <= {name} <= 2**63-1, an epoch or 0")
    return number


def next_epoch(now_ms: int, newest: int) -> int:
    """The smallest epoch that is both of this millisecond or later and greater than `newest`.

    A clock that jumped back yields the epoch after `newest`, so epochs grow whatever the clock does.
    """
    return max(now_ms << SERIAL_BITS, newest + 1)


def epoch_ms(epoch: int) -> int:
    """The wall-clock milliseconds that an epoch from `next_epoch` carries."""
    return epoch >> SERIAL_BITS


def epoch_at_ms(ms: int) -> int:
    """The largest epoch of that millisecond: reading at it shows the epochs that were taken until then.

    An epoch carries the time at which its writer took it, so one that was taken before and is committed after that
    time joins in.
    """
    return min((ms << SERIAL_BITS) | ((1 << SERIAL_BITS) - 1), MAX_EPOCH)


def iso(ms: int) -> str:
    """Milliseconds since the Unix epoch in ISO 8601, in UTC."""
    try:
        return datetime.fromtimestamp(ms / 1000, UTC).isoformat(timespec="milliseconds")
    except (OverflowError, ValueError, OSError):
        return "a time that no calendar has"
