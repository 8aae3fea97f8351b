"""Shortening the log: which entries, base versions and markers nobody will read again, and their removal.

Two base versions are kept, both read before anything else is given up, so that damage to one loses nothing. The marker
is created before the first delete: a crash between leaves garbage only. `log.py` says why markers are needed at all.

An entry below the boundary in which an SST lies that somebody may still read stays, as an object that is no part of
the log any more. It goes with a later vacuum, once nobody needs it.
"""

import math
from collections.abc import Set as AbstractSet
from typing import NamedTuple

from tussock.meta.log.format import decode_base, marker_path, sequence_of
from tussock.meta.log.marker_check import TRUNCATION_AGE_MS_MIN
from tussock.meta.log.objects import read_object
from tussock.statestore.contract.object_store import ObjectInfo, ObjectStore
from tussock.statestore.errors import CorruptLog, ObjectNotFound

__all__ = ["Truncation", "first_entry_after", "plan_truncation", "truncate"]

SNAPSHOTS_KEPT = 2


class Truncation(NamedTuple):
    """What can go."""

    boundary: int
    """Entries up to this one are no longer needed; 0: nothing was ever truncated."""
    is_new: bool
    """The boundary has no marker yet."""
    garbage: list[tuple[ObjectInfo, str]]
    """Objects with the reason for each."""


def plan_truncation(
    bucket: ObjectStore,
    now_ms: int,
    grace_ms: int,
    needed: AbstractSet[int],
    known_seq: int,
    *,
    may_mark: bool = True,
) -> Truncation:
    """Find what can go: entries covered by two readable base versions and older than the grace period. Changes nothing.

    Args:
        bucket: where the log is.
        now_ms: by the bucket's clock, as is the age of an object.
        grace_ms: entries younger than this stay, and those younger than `TRUNCATION_AGE_MS_MIN`.
        needed: sequences of the entries in which SSTs lie that are still needed.
        known_seq: the version by which that was judged. Another vacuum's marker may be above it, and entries that are
            later than that version may bring SSTs of which it does not know.
        may_mark: a marker may be created; else what is below the newest one goes.
    """
    bases = [(seq, info) for info in bucket.list("snapshot/") if (seq := sequence_of(info.path)) is not None]
    covered = _covered_by_bases(bucket, dict(bases))
    markers: list[tuple[int, ObjectInfo]] = []
    entries: list[tuple[int, ObjectInfo]] = []
    for info in bucket.list("log/"):
        seq = sequence_of(info.path)
        if seq is None:
            continue
        (markers if info.path.startswith("log/boundary/") else entries).append((seq, info))
    marked = max((seq for seq, _ in markers), default=0)
    boundary = marked
    oldest_young_ms = now_ms - max(grace_ms, TRUNCATION_AGE_MS_MIN)
    for seq, info in entries if may_mark else ():
        if seq > marked and (seq > covered or info.modified_ms > oldest_young_ms):
            break
        boundary = max(boundary, seq)
    judged = min(boundary, known_seq)
    garbage = [(info, "log entry below the boundary") for seq, info in entries if seq <= judged and seq not in needed]
    garbage += [(info, "base version below the boundary") for seq, info in bases if seq < boundary]
    garbage += [(info, "superseded marker") for seq, info in markers if seq < boundary]
    return Truncation(boundary, boundary > marked, garbage)


def first_entry_after(bucket: ObjectStore, ms: int) -> float:
    """The sequence of the first entry that the bucket stamped after that time; infinite if there is none.

    Entries up to `plan_truncation`'s age are there, so of a drop within the grace period the entry is.
    """
    young = [info.path for info in bucket.list("log/") if info.modified_ms > ms]
    entries = [sequence_of(path) for path in young if not path.startswith("log/boundary/")]
    return min((seq for seq in entries if seq is not None), default=math.inf)


def truncate(bucket: ObjectStore, plan: Truncation) -> None:
    """Carry the plan out: the marker first."""
    if plan.is_new:
        bucket.create(marker_path(plan.boundary), str(plan.boundary).encode())
    bucket.delete([info.path for info, _ in plan.garbage])


def _covered_by_bases(bucket: ObjectStore, infos: dict[int, ObjectInfo]) -> int:
    """The sequence of the second newest base version that can be read; 0 if there are not two."""
    readable = 0
    for seq in sorted(infos, reverse=True):
        try:
            decode_base(infos[seq].path, seq, read_object(bucket, infos[seq].path))
        except (CorruptLog, ObjectNotFound):
            continue
        readable += 1
        if readable == SNAPSHOTS_KEPT:
            return seq
    return 0
