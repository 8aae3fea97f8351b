"""What a replay says that has another result than the run that was recorded."""

from collections.abc import Sequence

from tussock.compute.applications.errors import NotDeterministic
from tussock.compute.applications.records import Record
from tussock.compute.functions.epochs.transaction import FunctionTransaction

__all__ = ["other_batch", "other_result"]

NAMES_MAX = 10
_WAY_OUT = (
    "start the functions that ran then, and stop that program in order, which commits all; then start the changed ones"
)


def other_result(record: Record, program: str, ended: Sequence[FunctionTransaction]) -> NotDeterministic:
    """Of an epoch, with numbers and functions of its first ten transactions."""
    targets = [(one.tid, one.request.target) for one in ended[:NAMES_MAX]]
    names = ", ".join(
        f"{tid}: {function.operator}.{function.name} of {entity[1]!r:.50}" for tid, (function, entity, _) in targets
    )
    names += " ..." if len(ended) > NAMES_MAX else ""
    return NotDeterministic(
        f"record {record.seq} of the input log: epoch {record.batch_id} of program {program!r} had another result, "
        f"states or replies, when it ran first ({names}): functions have to depend on their arguments, their entities "
        f"and what ctx gives, and may not change between a crash and the next start: {_WAY_OUT}"
    )


def other_batch(record: Record) -> NotDeterministic:
    """Of a batch function."""
    return NotDeterministic(
        f"record {record.seq} of the input log: batch function {record.name} had another result when it ran first: "
        f"it has to depend on its batch only, and may not change between a crash and the next start: {_WAY_OUT}"
    )
