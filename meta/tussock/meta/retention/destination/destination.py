"""A destination: a place in another bucket with copies of one store's backups, which share their SSTs.

Its state is a **catalogue**, which changes as the version log does: each entry is an object that is created and never
overwritten, so of several processes exactly one makes the next. An entry holds the whole state, so the newest is
enough, and older ones go. A copy takes these steps:

    c1  append an entry by which the copy begins; its number is the copy's *part*
    c2  put the SSTs that no finished copy has into the folder of the part
    c3  create the manifest there, which says where each SST of the copy lies: in this part or in those of others
    c4  append an entry by which it is finished; refused if it was given up

and a deletion takes these:

    d1  append an entry without the copy, or without one that was begun a week ago and is given up
    d2  read the catalogue; go on only if no copy is being made in it
    d3  read the manifests of its copies, and delete what lies in parts up to this entry's number and none of them names

Proof that an object P that a finished copy names is never deleted. Say that a process does d3 by entry k: P lies in a
part up to k, no copy is being made in k, and none that is finished in k names P. Then no copy that is finished after k
names P. Take the first of them that does, begun by entry c. If c <= k, then in k it is neither being made nor finished,
so it was dropped before, and c4 is refused. If c > k, P is not in its part, which is c; so it took P in step c2 from a
copy that the catalogue then had as finished. If that was finished after k, it would be the first; if before, it is
still there after k and names P, so it was there in k. This holds for any k, however old: a process that sleeps between
d2 and d3 does no harm. And what a copy took is still there when it is finished: while it is being made, d2 ends every
deletion by an entry from c on, and by an entry before c P was not deleted, as a copy that was finished after names it.

No step compares clocks: the week decides only when a copy is given up, and then c4 is refused. A crash anywhere leaves
a copy being made, which the next call continues, or garbage, which the next deletion takes.

Old entries are deleted from the oldest on, the newest few stay. So a process that slept may create an entry of a number
that was deleted long ago: it looks whether another one follows, and then whether that was made after its own.
"""

from collections.abc import Callable
from typing import NamedTuple

from msgspec.structs import replace

from tussock.meta.log.format import sequence_of
from tussock.meta.log.objects import read_object
from tussock.meta.retention.destination.records import (
    Catalogue,
    Manifest,
    catalogue_path,
    decode_catalogue,
    decode_manifest,
    encode_catalogue,
    is_manifest_path,
    manifest_path,
    part_of,
)
from tussock.statestore.base.logs import get_logger
from tussock.statestore.base.system import System
from tussock.statestore.contract.copies import CopyInfo
from tussock.statestore.contract.object_store import ObjectStore
from tussock.statestore.errors import (
    BackupNotFound,
    CorruptLog,
    LimitReached,
    NewerFormat,
    ObjectNotFound,
    ObjectStoreUnavailable,
    TussockError,
)

__all__ = ["COPIES_MAX", "Destination", "FoundCopy", "holds_copies"]

log = get_logger("tussock.meta")

COPIES_MAX = 1_000
"""Each is a few hundred bytes of every entry of the catalogue."""
ENTRIES_KEPT = 16
ATTEMPTS_MAX = 20
ABANDONED_MS = 7 * 24 * 3600 * 1000
"""A copy that was begun longer ago than that, and is not finished, is given up by the next change."""


class FoundCopy(NamedTuple):
    """A copy that can be read."""

    part: int
    manifest: Manifest


class Destination:
    """The copies in one bucket."""

    def __init__(self, bucket: ObjectStore, system: System, *, owner: str, copies_max: int = COPIES_MAX) -> None:
        self.bucket = bucket
        self._copies_max = copies_max
        self._system = system
        self._owner = owner

    def read(self) -> Catalogue:
        """The newest catalogue; one of `seq` 0 if nothing was copied there."""
        for _ in range(ATTEMPTS_MAX):
            entries = [seq for one in self.bucket.list("catalogue/") if (seq := sequence_of(one.path)) is not None]
            if not entries:
                return Catalogue()
            path = catalogue_path(max(entries))
            try:
                return decode_catalogue(path, max(entries), read_object(self.bucket, path))
            except ObjectNotFound:
                continue  # others have appended more than are kept meanwhile
        raise self._busy()

    def copies(self) -> list[CopyInfo]:
        """All copies by name, those being made too; `CorruptLog` if the catalogue is lost and copies are there."""
        catalogue = self.read()
        if not catalogue.seq and holds_copies(self.bucket):
            raise CorruptLog(
                f"{self.bucket.url} has copies and no catalogue: it was lost. Nothing is copied there, or deleted, any "
                "more; a restore finds a copy by the name of its backup all the same"
            )
        return sorted(catalogue.copies.values(), key=lambda one: one.name)

    def append(self, decide: Callable[[Catalogue, int], Catalogue | None]) -> Catalogue:
        """Append what `decide` makes of the newest catalogue, and return it; `None` leaves it as it is.

        `decide` is also given the number that the entry will have, and may be called several times.
        """
        for _ in range(ATTEMPTS_MAX):
            now = self.read()
            found = decide(now, now.seq + 1)
            wanted = now if found is None else self._without_abandoned(found)
            if wanted.copies == now.copies:
                return now
            if len(wanted.copies) > max(self._copies_max, len(now.copies)):
                raise LimitReached(
                    f"{self.bucket.url} would have {len(wanted.copies)} copies of backups, and may have "
                    f"{self._copies_max}; delete some, or take another place",
                    self._copies_max,
                )
            entry = replace(
                wanted,
                seq=now.seq + 1,
                id=self._system.random_bytes(16),
                follows=now.id,
                writer=self._owner,
                at_ms=self._system.now_ms(),
            )
            if self._create(entry):
                return entry
        raise self._busy()

    def manifest(self, copy: CopyInfo) -> Manifest:
        """The manifest of a finished copy.

        `BackupNotFound` if the copy was deleted meanwhile, `CorruptLog` if the manifest is damaged, or lost.
        """
        try:
            return self.manifest_of(copy.part)
        except ObjectNotFound as error:
            now = self.read()
            known = now.copies.get(copy.name)
            if known is None or known.part != copy.part:
                raise self.no_such_copy(copy.name, now) from error
            raise CorruptLog(
                f"{error}; the catalogue names this copy: restore the object, or delete the copy"
            ) from error

    def manifest_of(self, part: int) -> Manifest:
        """The manifest in a part, whatever the catalogue says of it; `ObjectNotFound` or `CorruptLog`."""
        path = manifest_path(part)
        return decode_manifest(path, part, read_object(self.bucket, path))

    def find(self, name: str) -> FoundCopy:
        """The copy of the backup of that name; without a catalogue, by the newest intact manifest of it.

        `BackupNotFound` if there is none, or it is not finished.
        """
        try:
            catalogue = self.read()
        except NewerFormat:
            raise  # it is whole
        except CorruptLog as error:
            return self._found_without_catalogue(name, str(error))
        if not catalogue.seq:
            return self._found_without_catalogue(name, "there is none")
        known = catalogue.copies.get(name)
        if known is None or not known.finished_ms:
            raise self.no_such_copy(name, catalogue)
        return FoundCopy(known.part, self.manifest(known))

    def no_such_copy(self, name: str, catalogue: Catalogue) -> BackupNotFound:
        """The error for a name that no finished copy has."""
        known = catalogue.copies.get(name)
        state = f"; it was begun by {known.owner} and is not finished" if known is not None else ""
        there = ", ".join(sorted(one.name for one in catalogue.copies.values() if one.finished_ms)[-10:]) or "none"
        return BackupNotFound(
            f"no copy of a backup {name!r} in {self.bucket.url}{state}; its newest names: {there}", name
        )

    def _create(self, entry: Catalogue) -> bool:
        path = catalogue_path(entry.seq)
        try:
            is_created = self.bucket.create(path, encode_catalogue(entry))
        except ObjectStoreUnavailable:
            if not self._is_there(entry):
                raise
            is_created = True
        # The library repeats a request whose answer was lost, and meets the object that it has itself created.
        if not is_created and not self._is_there(entry):
            return False
        if all(sequence_of(later.path) is None for later in self.bucket.list("catalogue/", after=path)):
            self._forget_old(entry.seq)
            return True
        return self._follows(entry)

    def _is_there(self, entry: Catalogue) -> bool:
        path = catalogue_path(entry.seq)
        try:
            return decode_catalogue(path, entry.seq, read_object(self.bucket, path)).id == entry.id
        except ObjectNotFound:
            return False

    def _follows(self, entry: Catalogue) -> bool:
        """Whether the next entry was made after this one: else the number was used, and deleted, long ago."""
        path = catalogue_path(entry.seq + 1)
        try:
            return decode_catalogue(path, entry.seq + 1, read_object(self.bucket, path)).follows == entry.id
        except ObjectNotFound:
            return False

    def _forget_old(self, seq: int) -> None:
        if seq <= ENTRIES_KEPT:
            return
        entries = [(one.path, sequence_of(one.path)) for one in self.bucket.list("catalogue/")]
        try:
            self.bucket.delete([path for path, entry in entries if entry is not None and entry <= seq - ENTRIES_KEPT])
        except TussockError as error:
            # The entry is there. Perhaps nothing may be deleted in that bucket, on purpose.
            log.warning("old entries of the catalogue stay", url=self.bucket.url, error=str(error))

    def abandoned_before_ms(self) -> int:
        """Copies that began before that time, and are not finished, are given up."""
        return self._system.now_ms() - ABANDONED_MS

    def _without_abandoned(self, catalogue: Catalogue) -> Catalogue:
        since = self.abandoned_before_ms()
        kept = {name: one for name, one in catalogue.copies.items() if one.finished_ms or one.begun_ms > since}
        return replace(catalogue, copies=kept)

    def _found_without_catalogue(self, name: str, why: str) -> FoundCopy:
        found = []
        for one in self.bucket.list("parts/"):
            if not is_manifest_path(one.path) or (part := part_of(one.path)) is None:
                continue
            try:
                found.append(FoundCopy(part, self.manifest_of(part)))
            except (CorruptLog, ObjectNotFound) as error:
                log.warning("a manifest cannot be read, so its copy is not considered", error=str(error))
        found = [one for one in found if one.manifest.info.name == name]
        if not found:
            raise BackupNotFound(f"no copy of a backup {name!r} in {self.bucket.url}, nor its catalogue ({why})", name)
        return max(found, key=lambda one: (one.manifest.info.created_ms, one.part))

    def _busy(self) -> TussockError:
        return ObjectStoreUnavailable(
            f"{self.bucket.url}: others have changed its catalogue {ATTEMPTS_MAX} times in a row meanwhile; try again"
        )


def holds_copies(bucket: ObjectStore) -> bool:
    """Whether a bucket is a destination, or what is left of one."""
    return any(sequence_of(one.path) is not None for one in bucket.list("catalogue/")) or any(
        part_of(one.path) is not None for one in bucket.list("parts/")
    )
