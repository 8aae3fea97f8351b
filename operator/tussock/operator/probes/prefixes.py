"""Takes a prefix for a store, and gives it back: the same in every kind of bucket.

Taking is a conditional write, so of two operators that come at once one sees the other's marker. Giving back deletes
only what provably belongs to the store: under a marker with its uid, which says that no store of unknown origin was
there before; only objects with names that a store uses; and nothing at all while there are backups, which would be
useless without the rest.

Taking looks around before and after it has put a marker (`neighbours.py`): of two stores that come at once with one
prefix inside the other, at least one sees the other's marker, takes its own back and starts nothing.
"""

from collections.abc import Iterator, Sequence
from itertools import islice
from typing import Protocol

from tussock.operator.planning.deletion import EmptiedFact
from tussock.operator.planning.words.conditions import Reason
from tussock.operator.planning.words.facts import BucketFact
from tussock.operator.probes.marker import FOLDERS, Marker, Owner, in_use_fact, is_of_store, overlap_fact, owner_marker
from tussock.operator.probes.neighbours import Bucket, neighbour_of
from tussock.statestore.base.system import System
from tussock.statestore.contract.object_store import OWNER_MARKER

__all__ = ["NotRemoved", "NotWritable", "Place", "give_back", "take"]

CLEAN_SECONDS = 12.0
"""The longest run of removing objects; the next run continues."""
DELETED_AT_ONCE = 1000
"""The limit of a request of S3's protocol."""
ATTEMPTS = 3
"""Attempts if another client writes the marker at the same moment."""
_BACKUPS_TOLD = 3


class NotWritable(Exception):
    """A bucket is readable and not writable; the message says why."""

    def __init__(self, message: str, *, is_full: bool = False) -> None:
        """`is_full`: for lack of room."""
        super().__init__(message)
        self.is_full = is_full


class NotRemoved(Exception):
    """An object could not be deleted; the message names it and says why."""


class Place(Bucket, Protocol):
    """A prefix of a bucket. Every method may raise what its library raises."""

    @property
    def url(self) -> str:
        """The address of the place, without credentials."""

    def path(self, name: str) -> str:
        """The name in the bucket of an object of this place."""

    def marker(self) -> Marker | None:
        """The present marker."""

    def put_marker(self, marker: Marker, *, replaced: Marker | None) -> bool:
        """Write the marker if none is there, or in place of the one that was read; returns whether that was so.

        Raises `NotWritable` if the bucket refuses writes.
        """

    def remove_marker(self, marker: Marker) -> None:
        """Remove the marker that was just read, on condition that it is unchanged where the library can say so."""

    def names(self, folder: str) -> Iterator[str]:
        """The names of all objects in a folder of the place: `log/...`."""

    def delete(self, names: Sequence[str]) -> None:
        """Delete up to `DELETED_AT_ONCE` objects; `NotRemoved`."""


def take(place: Place, owner: Owner, adopt: str, *, write: bool, mark: bool = True) -> BucketFact:
    """Take the place for `owner`, if it may have it. `write`: try to write even if the marker is there.

    Without `mark` nothing is written, and the result is whether it may have it.
    """
    for attempt in range(ATTEMPTS):
        found = place.marker()
        # Only asked for when it matters: a listing at each look would cost money.
        foreign = found is None or found.owner.uid != owner.uid
        wanted = owner_marker(found, owner, adopt, has_store=foreign and _has_store(place))
        if wanted is None:
            assert found is not None
            return in_use_fact(place.url, place.path(OWNER_MARKER), found.owner)
        has_store = wanted.found != "nothing"
        # With a marker there, the prefix was a store's already, and its neighbours were looked for then.
        near = neighbour_of(place, owner) if mark and found is None else None
        if near is not None:
            return overlap_fact(place.url, near.path, near.owner)
        if not mark or (wanted == found and not write):
            return BucketFact(None, has_store=has_store)
        try:
            if place.put_marker(wanted, replaced=found):
                near = neighbour_of(place, owner) if found is None else None
                if near is None:
                    return BucketFact(None, has_store=has_store)
                # It may have looked before, and have started. If both have come just now, one of them tries again.
                _withdraw(place, owner)
                if owner.uid > near.owner.uid or attempt == ATTEMPTS - 1:
                    return overlap_fact(place.url, near.path, near.owner)
        except NotWritable as error:
            return BucketFact(
                Reason.BUCKET_NOT_WRITABLE,
                f"The operator can read {place.url} but not write to it: {str(error).rstrip('.')}.",
                is_full=error.is_full,
            )
    told = f"{place.url}: other clients write {place.path(OWNER_MARKER)} at the same time; the operator tries again."
    return BucketFact(Reason.BUCKET_UNREACHABLE, told)


def give_back(place: Place, owner: Owner, system: System, *, delete: bool) -> EmptiedFact:
    """Remove the owner's marker, and before it (`delete`) the store, if that provably belongs to the owner.

    Continues for at most `CLEAN_SECONDS`. The result says what is kept although it was to go.
    """
    found = place.marker()
    if found is None:
        # Nothing shows whose the objects are. A deletion that had removed everything, with the marker last, finds none.
        if delete and any(_own_names(place)):
            return _kept_fact(
                f"{place.url}: its objects stay, because no object {place.path(OWNER_MARKER)} shows whose they are"
            )
        return EmptiedFact(done=True)
    if found.owner.uid != owner.uid:
        told = f"{place.url} belongs to {found.owner}, and the operator changed nothing there"
        return _kept_fact(told) if delete else EmptiedFact(done=True)
    keeps = _reason_to_keep(place, found) if delete else ""
    if delete and not keeps:
        try:
            deleted, more = _delete_all(place, system)
        except NotRemoved as error:
            return EmptiedFact(done=False, message=f"{place.url}: {error}.", stuck=True)
        if more:
            told = f"the operator has deleted {deleted} objects in this run, and more are left"
            return EmptiedFact(done=False, message=f"{place.url}: {told}.")
    # Read again, for the deletion of a store takes a while, and `spec.adopt` of another one replaces the marker.
    _withdraw(place, owner)
    return _kept_fact(keeps) if keeps else EmptiedFact(done=True)


def _withdraw(place: Place, owner: Owner) -> None:
    """Remove the owner's own marker, if it is there."""
    found = place.marker()
    if found is not None and found.owner.uid == owner.uid:
        place.remove_marker(found)


def _reason_to_keep(place: Place, marker: Marker) -> str:
    """Why nothing may be deleted under the store's own marker; empty if nothing is in the way."""
    if marker.found == "store":
        return (
            f"{place.url}: its objects stay, because a store was there before this StateStore, which does not "
            f"adopt it (spec.adopt: {marker.owner.uid})"
        )
    backups = list(islice(filter(is_of_store, place.names("backup")), _BACKUPS_TOLD + 1))
    if not backups:
        return ""
    told = ", ".join(name.removeprefix("backup/").rpartition(".")[0] for name in backups[:_BACKUPS_TOLD])
    more = " and others" if len(backups) > _BACKUPS_TOLD else ""
    return (
        f"{place.url}: its objects stay, because backups in it or clones of it need them ({told}{more}); "
        "delete the objects by hand once those are no longer needed"
    )


def _kept_fact(told: str) -> EmptiedFact:
    return EmptiedFact(done=False, message=f"{told}.", hopeless=True)


def _has_store(place: Place) -> bool:
    """Whether there is a store: its log, or a snapshot of it. Other objects alone are garbage of one."""
    return any(is_of_store(name) for folder in ("log", "snapshot") for name in place.names(folder))


def _own_names(place: Place) -> Iterator[str]:
    for folder in FOLDERS:
        yield from filter(is_of_store, place.names(folder))


def _delete_all(place: Place, system: System) -> tuple[int, bool]:
    """Remove the objects of the store; returns how many, and whether more are left."""
    until = system.monotonic() + CLEAN_SECONDS
    names = _own_names(place)
    deleted = 0
    # At least one batch, so that each run makes progress.
    while batch := list(islice(names, DELETED_AT_ONCE)):
        place.delete(batch)
        deleted += len(batch)
        if system.monotonic() >= until:
            return deleted, True
    return deleted, False
