"""The version log: the one place where the store changes. The whole protocol, on one page.

Objects
    `log/<n>.delta`     entry n: one or more deltas. Created, never overwritten; n = 1, 2, 3, ... without holes.
    `snapshot/<n>`      the version after entry n; a cache, written by whoever appended every 64th entry.
    `log/boundary/<n>`  marker: entries up to n may be gone. Create-only, so stores without overwrite-if-match and
                        stores that throttle writes to one name do as well; the largest marker counts.

Append. Take the newest version known here (sequence v), let the caller decide on it, validate the deltas, and create
entry v+1. Of all writers exactly one succeeds, so every delta was validated on precisely the version it lands on;
that is all the safety there is, with no leader, lease or clock. On "already exists" read what is there, decide again
on the new version, create the next one.

Lost answer. A create that fails with `ObjectStoreUnavailable` may have happened. Entry v+1 is read back: the random
id in it says whether it is ours. If that cannot be read either, or is not there (a request may still be under way),
the append raises, and the entry is remembered as *pending*. It can land only as v+1, so whoever next occupies that
number settles it: this log finds its own id there when it next reads or appends, and a repetition of the same call
(same `key`) is answered with the result that the pending entry had.

Truncation. Deleting entry n lets a stalled writer create n again, and believe in it. So a marker is created before
the first delete, and an append counts only once its writer, having created entry n, has listed the markers and found
none at or above n. If it finds one, it drops what it knew, loads again and starts over. It can be wrong about that in
one case: its entry was applied, and truncated too, between its create and its list. Truncation leaves entries younger
than `TRUNCATION_AGE_MS_MIN` alone, so that takes a stall of at least that long, and then a call that would do harm if
done twice raises instead.

Reading. `refresh` probes v+1, v+2, ... until one is not there. A reader that lagged behind a truncation would take a
deleted entry for the tail, so it lists the markers when it has not for ten seconds, and loads from a snapshot if one
is above it. Nobody polls: no call, no request.

Recovery. The newest readable snapshot, then entries until one is missing, then a listing: a marker above the snapshot,
or an entry after the missing one, means that entries are lost, which is tried again (a truncation or an append may be
running) and then reported.

The idea is SlateDB's (numbered manifests by create-if-absent, a boundary for truncation); deltas in place of whole
manifests, and markers in place of an overwritten boundary object, are ours.
"""

import contextlib
import threading
from collections.abc import Callable, Hashable, Sequence
from typing import NamedTuple, TypeVar

from tussock.meta.delta import Delta, advance
from tussock.meta.framing import LogEntry, encode_entry, encode_snapshot, entry_path, snapshot_path
from tussock.meta.recovery import apply_entry, beyond, newest_snapshot, read_entry, truncation_boundary
from tussock.meta.version import Version
from tussock.statestore.errors import CorruptLog, ObjectStoreUnavailable, TussockError
from tussock.statestore.object_store import ObjectStore
from tussock.statestore.system import System

__all__ = ["TRUNCATION_AGE_MS_MIN", "VersionLog"]

TRUNCATION_AGE_MS_MIN = 30_000
"""Entries younger than this are never truncated, whatever grace period is asked for: three boundary checks."""
BOUNDARY_CHECK_SECONDS = 10.0
APPEND_ATTEMPTS_MAX = 100
LOAD_ATTEMPTS_MAX = 5
SETTLED_MAX = 64

Result = TypeVar("Result")


class _Pending(NamedTuple):
    seq: int
    key: Hashable
    result: object


class VersionLog:
    """The log of one bucket, and the newest version read from it. Safe to share between threads."""

    def __init__(self, bucket: ObjectStore, system: System, *, owner: str, snapshot_every: int = 64) -> None:
        """No request is made yet.

        Args:
            bucket: where the log is.
            system: clocks and entropy.
            owner: written into each entry, for people.
            snapshot_every: entries between two snapshots; fewer make opening faster and appends dearer.
        """
        self._bucket = bucket
        self._system = system
        self._owner = owner
        self._snapshot_every = snapshot_every
        self._lock = threading.RLock()
        self._version: Version | None = None
        self._checked_at = 0.0
        self._pending: dict[bytes, _Pending] = {}
        self._settled: dict[Hashable, object] = {}

    @property
    def version(self) -> Version:
        """The newest version known here; no request, except that the first use loads it."""
        known = self._version
        return self.refresh() if known is None else known

    def refresh(self) -> Version:
        """Read to the tail of the log; one GET if nothing is new."""
        with self._lock:
            if self._version is None:
                return self._load()
            start = self._version.seq
            try:
                self._version = self._replayed(self._version)
            except CorruptLog:
                # Below the markers stray entries of stalled writers may lie; they are no part of the log.
                if truncation_boundary(self._bucket) <= start:
                    raise
                return self._load()
            if self._system.monotonic() - self._checked_at >= BOUNDARY_CHECK_SECONDS:
                # After the reading, so that a stray entry that was read is seen to be below its marker.
                boundary = truncation_boundary(self._bucket)
                self._checked_at = self._system.monotonic()
                if boundary > start:
                    return self._load()
            return self._version

    def append(
        self,
        decide: Callable[[Version], tuple[Sequence[Delta], Result]],
        *,
        key: Hashable = None,
        repeatable: bool = True,
    ) -> Result:
        """Append what `decide` wants, and answer its result.

        `decide(version)` returns the deltas for the version given, none if there is nothing to do, and the result to
        answer; it may raise. It is called again, on a newer version, whenever somebody else was faster.

        Args:
            decide: pure but for clocks; called with the log locked.
            key: names the call; repeated after an unknown outcome, it answers what the first would have. Calls that
                mean different things must have different keys.
            repeatable: deciding anew is harmless even if an earlier try took effect unseen.

        Raises:
            ObjectStoreUnavailable: it may or may not have happened; the same call may be repeated.
            CorruptLog: the log cannot be read to its tail.
        """
        with self._lock:
            fresh = self._version is None
            for _ in range(APPEND_ATTEMPTS_MAX):
                version = self.version
                if key is not None and key in self._settled:
                    answered: Result = self._settled.pop(key)  # type: ignore[assignment]  # stored under the same key
                    return answered
                try:
                    deltas, result = decide(version)
                    after = advance(version, deltas) if deltas else version
                except TussockError:
                    # The objection may come of an old version: a table created elsewhere, a task already reported.
                    if fresh:
                        raise
                    self.refresh()
                    fresh = True
                    continue
                if not deltas:
                    return result
                if self._created(after, deltas, _Pending(after.seq, key, result), repeatable):
                    return result
                fresh = True
            raise ObjectStoreUnavailable(
                f"{self._bucket.url}: other writers were faster {APPEND_ATTEMPTS_MAX} times in a row at appending to "
                f"the log, now at entry {self.version.seq}; nothing was appended, try again"
            )

    def _created(self, after: Version, deltas: Sequence[Delta], pending: _Pending, repeatable: bool) -> bool:
        """Create entry `after.seq`; `False` if the caller has to decide again on what is known now."""
        path = entry_path(after.seq)
        entry = LogEntry(
            id=self._system.random_bytes(16), writer=self._owner, at_ms=self._system.now_ms(), deltas=tuple(deltas)
        )
        self._pending[entry.id] = pending
        started = self._system.monotonic(), self._system.now_ms()
        try:
            ours = self._bucket.create(path, encode_entry(after.seq, entry)) or self._is_ours(after.seq, entry.id)
        except ObjectStoreUnavailable as error:
            ours = self._read_back(after.seq, entry.id, error)
        if not ours:
            self.refresh()
            return False
        try:
            boundary = truncation_boundary(self._bucket)
        except ObjectStoreUnavailable as error:
            raise _unknown(path, error) from error
        self._checked_at = self._system.monotonic()
        if boundary >= after.seq:
            stalled = (self._checked_at - started[0]) * 1000 >= TRUNCATION_AGE_MS_MIN
            stalled = stalled or self._system.now_ms() - started[1] >= TRUNCATION_AGE_MS_MIN
            self._pending.pop(entry.id, None)
            with contextlib.suppress(ObjectStoreUnavailable):
                self._bucket.delete([path])
            self._load()
            if stalled and not repeatable:
                raise ObjectStoreUnavailable(
                    f"{path}: this process stood still while it appended, and the log was truncated past the entry "
                    f"meanwhile (marker {boundary}): the commit may or may not have happened. Commits that name a "
                    "writer and a batch can always be repeated; look at the store before repeating this one"
                )
            return False
        # What was pending for this number is settled; this call itself answers its result here and now.
        self._pending = {other: waiting for other, waiting in self._pending.items() if waiting.seq > after.seq}
        self._version = after
        if after.seq % self._snapshot_every == 0:
            # The append has happened, whatever becomes of this; the next snapshot makes up for a failed one.
            with contextlib.suppress(ObjectStoreUnavailable):
                self._bucket.create(snapshot_path(after.seq), encode_snapshot(after))
        return True

    def _is_ours(self, seq: int, entry_id: bytes) -> bool:
        """Whether the entry that exists is the one just sent: a bucket that retried may say "exists" of our own."""
        found = read_entry(self._bucket, seq)
        return found is not None and found.id == entry_id

    def _read_back(self, seq: int, entry_id: bytes, cause: ObjectStoreUnavailable) -> bool:
        try:
            found = read_entry(self._bucket, seq)
        except ObjectStoreUnavailable as error:
            raise _unknown(entry_path(seq), error) from cause
        if found is None:
            raise _unknown(entry_path(seq), cause) from cause
        return found.id == entry_id

    def _load(self) -> Version:
        """Recover from the bucket alone; see the module's docstring."""
        for _ in range(LOAD_ATTEMPTS_MAX):
            start, problems = newest_snapshot(self._bucket)
            version = self._replayed(start)
            boundary, later = beyond(self._bucket, version.seq)
            self._checked_at = self._system.monotonic()
            if boundary <= start.seq:
                if later is not None:
                    # Appended since the reading, or a hole, which would look like the end of the log.
                    version = self._replayed(version)
                if later is None or later <= version.seq:
                    self._version = version
                    return version
        if boundary <= start.seq:
            raise CorruptLog(
                f"{entry_path(version.seq + 1)} is missing, although {entry_path(later or 0)} is there: the log has a "
                f"hole, and what comes after it cannot be trusted; restore the missing entries"
            )
        raise CorruptLog(
            f"{self._bucket.url}: log/boundary says that entries up to {boundary} were removed, but the newest "
            f"readable snapshot holds only those up to {start.seq} ({'; '.join(problems) or 'no newer one is there'}); "
            f"restore a snapshot of {boundary} or later"
        )

    def _replayed(self, version: Version) -> Version:
        """`version` moved on by all the entries that follow it."""
        while True:
            entry = read_entry(self._bucket, version.seq + 1)
            if entry is None:
                return version
            version = apply_entry(version, entry)
            self._settle(version.seq, entry.id)

    def _settle(self, seq: int, entry_id: bytes) -> None:
        """Entry `seq` is known now: it decides about all that was pending for that number."""
        landed = self._pending.pop(entry_id, None)
        if landed is not None and landed.key is not None:
            self._settled[landed.key] = landed.result
            if len(self._settled) > SETTLED_MAX:
                self._settled.pop(next(iter(self._settled)))
        self._pending = {key: other for key, other in self._pending.items() if other.seq > seq}


def _unknown(path: str, cause: Exception) -> ObjectStoreUnavailable:
    return ObjectStoreUnavailable(
        f"{path}: the answer to its creation was lost, so the commit may or may not have happened; repeating it with "
        f"the same writer and batch is safe ({cause})"
    )
