"""The version log: the one place where the store changes. The whole protocol, on one page.

Objects
    `log/<n>.delta`     entry n: one or more deltas. Created, never overwritten; n = 1, 2, 3, ... without holes.
    `snapshot/<n>`      the version after entry n; a cache, written by the process that appended every 64th entry.
    `log/boundary/<n>`  marker: entries up to n may be gone. Create-only, so stores without overwrite-if-match and
                        stores that throttle writes to one name do as well; the largest marker counts.

Append. Take the newest version known here (sequence v), let the callers decide on it, validate the deltas, and create
entry v+1. Of all writers exactly one succeeds, so every delta was validated on precisely the version it lands on;
that is all the safety there is, with no leader and no lease. On "already exists" read what is there, decide again on
the new version, create the next one, in turn with the others (`turns.py`). Calls that come while an entry is under way
go into the next one together (`group_commit.py`). An entry of a leader carries its term (`terms.py`).

Lost answer. A create that fails with `ObjectStoreUnavailable` may have happened. Entry v+1 is read back: the random
id in it says whether it is ours. If that cannot be read either, or is not there (a request may still be under way),
the append raises, and the entry is remembered as *pending*. It can land only as v+1, so the process that next occupies
that number settles it: this log finds its own id there when it next reads or appends, and a repetition of the same call
(same `key`) is answered with the result that the pending entry had.

Truncation. Deleting entry n lets a stalled writer create n again, and believe in it. So a marker is created before
the first delete, and an append counts only if no marker at or above n was there when n was created. Its writer lists
the markers after the create; if it finds such a one, it drops what it knew, loads again and starts over. It can be
wrong about that in one case: its entry was applied, and truncated too, between its create and its list. Truncation
leaves entries younger than `TRUNCATION_AGE_MS_MIN` alone, so that takes a stall of at least that long, and then a
call that would do harm if done twice raises instead.

The same age spares a busy writer the listing. Say that a check, begun at time T with version v known, found v to be
the tail and no marker above it. Every later entry was born after T, so no marker can cover one before T plus 30
seconds of the bucket's clock. An append that is answered within 10 seconds of T, by this machine's monotonic *and*
its wall clock, therefore counts without another listing. `docs/decisions/0013` has the proof, and what it
assumes of clocks: that they run at about the same rate, not that they agree.

Reading. `refresh` probes v+1, v+2, ... until one is not there, several at a time (`catch_up.py`); then it looks
for a base version to begin at. A reader that lagged behind a truncation would take a deleted entry for the tail, so it
lists the markers when it has not for ten seconds, and loads from a base version if one is above it. What it read
counts, and listeners hear of it, only then. Nobody polls: no call, no request.

Recovery. The newest readable base version, then entries until one is missing, then a listing: a marker above the base
version, or an entry after the missing one, means that entries are lost, which is tried again (a truncation or an append
may be running) and then reported.

The idea is SlateDB's (numbered manifests by create-if-absent, a boundary for truncation); deltas in place of whole
manifests, and markers in place of an overwritten boundary object, are ours.
"""

from collections.abc import Callable, Hashable, Mapping, Sequence
from typing import Any, TypeVar

from msgspec.structs import replace

from tussock.meta.log.appends.append_errors import failed_creation, interruption, lost_race, standstill, unknown_outcome
from tussock.meta.log.appends.drafts import Draft, plan_entry
from tussock.meta.log.appends.group_commit import AnyCall, Call, CallQueue, Decide, Progress, fail_all, succeed_all
from tussock.meta.log.appends.limits import DEFAULT_LOG_LIMITS, LogLimits
from tussock.meta.log.appends.outcomes import Outcomes
from tussock.meta.log.appends.turns import Turns
from tussock.meta.log.bucket_clock import BucketClock
from tussock.meta.log.catch_up import PROBES, Learned, is_far_behind, replay
from tussock.meta.log.format import LogEntry, base_path, encode_base, encode_entry, entry_path, with_ssts
from tussock.meta.log.marker_check import TRUNCATION_AGE_MS_MIN, Moment, RecentCheck
from tussock.meta.log.recovery import beyond, look_for_remains, newest_base, read_entry, truncation_boundary
from tussock.meta.version.version import Version
from tussock.statestore.base.logs import get_logger
from tussock.statestore.base.system import System
from tussock.statestore.contract.object_store import ObjectStore
from tussock.statestore.errors import CorruptLog, CorruptObject, InvalidOption, LimitReached, ObjectStoreUnavailable

__all__ = ["BASE_EVERY", "Listener", "VersionLog"]

log = get_logger("tussock.meta")

BASE_EVERY = 64
LOAD_ATTEMPTS_MAX = 5

Result = TypeVar("Result")
Listener = Callable[[bytes | None, Version], None]
"""Called with the frame of each entry and the version after it; after a jump by a base version with `None`."""


class VersionLog:
    """The log of one bucket, and the newest version read from it. Safe to share between threads."""

    def __init__(
        self,
        bucket: ObjectStore,
        system: System,
        *,
        owner: str,
        base_every: int = BASE_EVERY,
        linger_seconds: float = 0.0,
        follows_copies: bool = False,
        limits: LogLimits = DEFAULT_LOG_LIMITS,
    ) -> None:
        """No request is made yet.

        Args:
            bucket: where the log is.
            system: clocks, entropy and locks.
            owner: written into each entry, for people.
            base_every: entries between two base versions; fewer make opening faster and appends dearer.
            linger_seconds: how long an entry waits for as many calls as the last one had, if those were several.
            follows_copies: SSTs may lie in the place before its first entry, which will name them. Else a place with
                SSTs or backups and without a log has lost its log, and is read and written by nobody.
            limits: of one entry and of one append.
        """
        self.clock = BucketClock(bucket, system, owner)  # No entry may be far ahead of it.
        self._bucket, self._system, self._owner = bucket, system, owner
        self._base_every, self._limits, self._is_wary = base_every, limits, not follows_copies
        self._queue = CallQueue(system, linger_seconds, limits)
        # Held while the version may change, requests included. Reading the known version takes no lock.
        self._lock = system.lock()
        self._version: Version | None = None
        self._check, self._outcomes, self._turns = RecentCheck(system), Outcomes(), Turns(system)
        self._snapshot_due: Version | None = None
        self._listeners: list[Listener] = []
        self._term = 0

    @property
    def version(self) -> Version:
        """The newest version known here; no request and no waiting, except that the first use loads it."""
        return self.refresh() if (known := self._version) is None else known

    @property
    def term(self) -> int:
        """The term of the entries that are appended here; 0: this process leads nobody."""
        return self._term

    @term.setter
    def term(self, term: int) -> None:
        """Calls made from now on are of that term.

        It only grows: a replica that no longer leads keeps its old term, so that its late calls are refused.
        """
        if term < self._term:
            raise InvalidOption(f"term {term} follows term {self._term}: terms only grow")
        self._term = term

    def subscribe(self, listener: Listener) -> Version:
        """Tell `listener` of every entry that this log learns from now on, its own too; returns the version before.

        Each entry comes once, in order. The listener is called with the log locked, so it must be quick, must not
        wait or raise, and must not append. A caller of `append` is answered after the listeners have heard of it.
        """
        with self._lock:
            version = self.version
            self._listeners.append(listener)
            return version

    def refresh(self) -> Version:
        """Read to the tail of the log; one GET if nothing is new."""
        return self._read_on(exists=False)

    def _read_on(self, *, exists: bool) -> Version:
        # `exists`: the next entry is known to be there.
        with self._lock:
            if self._version is None:
                return self._load()
            start = self._version.seq
            began = Moment.now(self._system)
            try:
                learned = replay(self._bucket, self._system, self._version, most=PROBES, exists=exists)
                if len(learned) >= PROBES:
                    # Listeners want every entry, and our own may be among them without our knowing.
                    jumps = not self._listeners and not self._outcomes.is_open
                    if jumps and is_far_behind(self._bucket, learned[-1].version.seq):
                        return self._load()
                    learned += self._replay(learned[-1].version)
            except CorruptLog:
                # Below the markers stray entries of stalled writers may lie; they are no part of the log.
                if truncation_boundary(self._bucket) <= start:
                    raise
                return self._load()
            if not self._check.holds():
                # After the reading, so that a stray entry that was read is seen to be below its marker.
                if truncation_boundary(self._bucket) > start:
                    return self._load()
                self._check.passed(began)
            self._learn(learned)
            return self._version

    def append(
        self,
        decide: Decide[Result],
        *,
        key: Hashable = None,
        repeatable: bool = True,
        payloads: Mapping[str, bytes] | None = None,
        is_upkeep: bool = False,
    ) -> Result:
        """Append what `decide` wants, and answer its result.

        `decide(version)` returns the deltas for the version given, none if there is nothing to do, and the result to
        answer; it may raise. It is called again, on a newer version, whenever somebody else was faster. Concurrent
        calls share an entry: the version given may hold the deltas of other calls, which land together with these.

        Args:
            decide: pure but for clocks; called in any caller's thread, with the log locked. It must not append.
            key: names the call; repeated after an unknown outcome, it returns what the first would have. Calls that
                mean different things must have different keys.
            repeatable: deciding anew is harmless even if an earlier try took effect unseen.
            payloads: by id, small SSTs that the entry brings along if the deltas commit them.
            is_upkeep: it may wait for a moment where calls come all the time, to get into the entry of another one.

        Raises:
            ObjectStoreUnavailable: it may have happened, unless `nothing_written`; the same call may be repeated.
            WaitTimeout: others were faster each time; nothing was appended.
            Fenced: the log's term is over; nothing was appended.
            ClockAhead, CorruptLog: this clock is too far ahead of the bucket's; the log cannot be read to its tail.
        """
        call = self.call(decide, key=key, repeatable=repeatable, payloads=payloads, is_upkeep=is_upkeep)
        self.carry_out([call])
        return call.answer()

    def call(self, decide: Decide[Result], **options: Any) -> Call[Result]:
        """A call that `carry_out` is to do; see `append`."""
        return Call(decide, term=self._term, **options)

    def carry_out(self, calls: Sequence[AnyCall]) -> None:
        """Append what several calls want, each as by `append`; then each of them has its answer, or its error."""
        if self._queue.carry_out(calls, self._append_group):
            self._write_due_snapshot()  # after the others were let go: of many callers only one waits for it

    def _append_group(self, calls: Sequence[AnyCall]) -> None:
        """Do all of `calls`, or tell each why not."""
        try:
            progress = Progress(is_fresh=self._version is None)
            while not all(call.done for call in calls):
                with self._lock:
                    pause = self._decide_and_create(calls, progress)
                if pause:
                    # Not under the lock: others may read meanwhile.
                    self._system.sleep(pause)
        except Exception as error:  # noqa: BLE001  # told to every caller
            fail_all(calls, error)
        except BaseException:
            fail_all(calls, interruption())
            raise

    def _decide_and_create(self, calls: Sequence[AnyCall], progress: Progress) -> float:
        """Try once; returns the seconds to wait before the next try."""
        plan = plan_entry(self.version, [one for one in calls if not one.done and not self._repeats(one)], self._limits)
        if not plan.deltas:
            succeed_all(plan.accepted)
            if plan.refused and not progress.is_fresh:
                # The objection may come of an old version: a table created elsewhere, a task already reported.
                self.refresh()
                progress.is_fresh = True
                return 0.0
            for call, error in plan.refused:
                call.fail(error)
            return 0.0
        if not progress.had_pause:
            progress.had_pause = True
            if pause := self._turns.pause():
                return pause
        progress.is_fresh = True
        # Refused ones are decided again on the version that this makes: if it is ours, that is the tail.
        if self._create(plan, calls[0].term):
            succeed_all(plan.accepted)
            return 0.0
        progress.races += 1
        if progress.races == self._limits.append_attempts:
            raise lost_race(self._bucket.url, self.version.seq, self._limits.append_attempts)
        return self._turns.retry_seconds(progress.races)

    def _repeats(self, call: AnyCall) -> bool:
        """Whether the call repeats one whose outcome was unknown, and which turned out to have happened."""
        if (known := self._outcomes.take(call.key)) is not None:
            call.succeed(known[0])
        return known is not None

    def _create(self, plan: Draft, term: int) -> bool:
        """Create the entry; `False` if those calls that are not done have to be decided again on what is known now."""
        self.clock.check(plan.deltas)
        after = replace(plan.after, seq=plan.after.seq + 1)
        entry = LogEntry(
            id=self._system.random_bytes(16),
            writer=self._owner,
            at_ms=self._system.now_ms(),
            deltas=plan.deltas,
            term=term,
        )
        frame = encode_entry(after.seq, entry)
        data = with_ssts(after.seq, frame, plan.ssts)
        self._outcomes.begin(after.seq, entry.id, [(call.key, result) for call, result in plan.accepted])
        began = Moment.now(self._system)
        try:
            ours = self._bucket.create(entry_path(after.seq), data)
            self._turns.note_attempt(self._system.monotonic() - began.seconds, won=ours)
            ours = ours or self._is_ours(after.seq, entry.id)
        except (CorruptObject, ObjectStoreUnavailable) as error:
            if isinstance(error, CorruptObject) or error.nothing_written:
                self._outcomes.close(entry.id)
                raise failed_creation(entry_path(after.seq), error) from error
            ours = self._read_back(after.seq, entry.id, error)
        if not ours:
            self._read_on(exists=True)
            return False
        if not self._check.holds():
            try:
                boundary = truncation_boundary(self._bucket)
            except ObjectStoreUnavailable as error:
                raise unknown_outcome(entry_path(after.seq), error) from error
            if boundary >= after.seq:
                self._drop_stray(after.seq, entry.id, boundary, began, plan)
                return False
            self._check.passed(began)
        # This call itself answers its callers, here and now.
        self._outcomes.close(entry.id)
        self._learn([Learned(entry.id, frame, after, self._owner)])
        if after.seq % self._base_every == 0:
            self._snapshot_due = after
        return True

    def _drop_stray(self, seq: int, entry_id: bytes, boundary: int, began: Moment, plan: Draft) -> None:
        """Entry `seq`, created at or below a marker, is no part of the log: load what is.

        The object is left to vacuum. After a stall it may have been an entry, in which SSTs lie that are still read.
        """
        now = Moment.now(self._system)
        stalled_ms = max((now.seconds - began.seconds) * 1000, now.ms - began.ms)
        self._outcomes.close(entry_id)
        self._load()
        for call, _ in plan.accepted:
            if stalled_ms >= TRUNCATION_AGE_MS_MIN and not call.repeatable:
                call.fail(standstill(entry_path(seq), boundary))

    def _is_ours(self, seq: int, entry_id: bytes) -> bool:
        """Whether the entry that exists is the one just sent: a bucket that retried may say "exists" of our own."""
        return (found := read_entry(self._bucket, seq)) is not None and found.entry.id == entry_id

    def _read_back(self, seq: int, entry_id: bytes, cause: ObjectStoreUnavailable) -> bool:
        try:
            found = read_entry(self._bucket, seq)
        except ObjectStoreUnavailable as error:
            raise unknown_outcome(entry_path(seq), error) from cause
        if found is None:
            raise unknown_outcome(entry_path(seq), cause) from cause
        return found.entry.id == entry_id

    def _load(self) -> Version:
        """Recover from the bucket alone; see the module's docstring."""
        remains = ""
        for _ in range(LOAD_ATTEMPTS_MAX):
            start, problems = newest_base(self._bucket, self.clock.heard)
            began = Moment.now(self._system)
            learned = self._replay(start)
            version = learned[-1].version if learned else start
            boundary, later = beyond(self._bucket, version.seq, self.clock.heard)
            if boundary <= start.seq:
                if later is not None:
                    # Appended since the reading, or a hole, which would look like the end of the log.
                    learned += self._replay(version)
                    version = learned[-1].version if learned else start
                if later is None or later <= version.seq:
                    if version.seq == 0 and self._is_wary and (remains := look_for_remains(self._bucket, remains)):
                        continue
                    self._check.passed(began)
                    for one in learned:
                        self._outcomes.settle(one.version.seq, one.entry_id)
                    self._version = version
                    for listener in self._listeners:
                        listener(None, version)
                    return version
        if boundary <= start.seq:
            raise CorruptLog(
                f"{entry_path(version.seq + 1)} is missing, although {entry_path(later or 0)} is there: the log has a "
                f"hole, and what comes after it cannot be trusted; restore the missing entries"
            )
        raise CorruptLog(
            f"{self._bucket.url}: log/boundary says that entries up to {boundary} were removed, but the newest "
            f"readable base version holds only those up to {start.seq} "
            f"({'; '.join(problems) or 'no newer one is there'}); "
            f"restore a base version of {boundary} or later"
        )

    def _replay(self, version: Version) -> list[Learned]:
        """All the entries that follow `version`."""
        return replay(self._bucket, self._system, version)

    def _learn(self, learned: Sequence[Learned]) -> None:
        """Take over entries that are known to be part of the log."""
        for one in learned:
            if one.writer != self._owner:
                self._turns.note_rival(one.writer)
            self._outcomes.settle(one.version.seq, one.entry_id)
            self._version = one.version
            for listener in self._listeners:
                listener(one.frame, one.version)

    def _write_due_snapshot(self) -> None:
        with self._lock:
            due, self._snapshot_due = self._snapshot_due, None
        try:
            if due is not None:
                self._bucket.create(base_path(due.seq), encode_base(due))
        except (ObjectStoreUnavailable, LimitReached) as error:
            # The append has happened, whatever becomes of this. Without base versions nothing of the log ever goes.
            log.warning("a base version was not written, the next one makes up for it", error=str(error))
