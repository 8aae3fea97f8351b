"""The loop of one stream: a state machine that goes on step by step, and stands still wherever it is told to.

It decides nothing about time, threads or storage: its host does what has to be done, and lets it go on again.
"""

from collections import deque
from typing import NamedTuple, Protocol

from tussock.compute.changelog.changes.changes import Changes
from tussock.compute.changelog.changes.record import ChangeRecord
from tussock.compute.changelog.changes.stream_shape import StreamShape
from tussock.compute.changelog.changes.transaction import StreamTransaction
from tussock.compute.changelog.loop.breakpoints import Breakpoint, Side
from tussock.compute.changelog.loop.debugger import Debugger
from tussock.compute.changelog.loop.location import Location, LoopProgress
from tussock.compute.changelog.loop.put_rules import PutFault, PutResult

__all__ = ["EXPIRY", "BadTransaction", "ComputeFault", "LoopHost", "Queued", "StreamLoop"]


EXPIRY = " expiry"
"""In place of the stream that a transaction is of: rows that go by themselves. No stream has such a name."""


class Queued(NamedTuple):
    """A transaction in the queue of a stream."""

    source: str
    """The stream that it is of; empty: it was pushed."""
    transaction: StreamTransaction
    is_apart: bool = False
    """Its records are not just those that the stream has published under its number."""


class ComputeFault(Exception):
    """A record cannot be computed: `args` are its number in the transaction, `None` if it is not known, and why."""


class BadTransaction(NamedTuple):
    """Why a transaction is none."""

    row: int | None
    """The number of the record, from 0: of the input where computing failed, of the output where putting did."""
    cause: str
    at: Location
    """COMPUTE or PUT."""


class LoopHost(Protocol):
    """What a loop needs done."""

    def may_take(self, loop: "StreamLoop") -> bool:
        """Whether one from the queue may be taken now."""

    def taken(self, loop: "StreamLoop", pending: Queued) -> Queued:
        """One from the queue as it is to be worked on: with what was held back before it."""

    def begin(self, loop: "StreamLoop") -> None:
        """A transaction begins: until `done` or `bad`, what is written can be taken back."""

    def expired(self, loop: "StreamLoop", now_ms: int) -> Changes:
        """What lets rows go that are too old, or too many, by then."""

    def compute(self, loop: "StreamLoop", changes: Changes) -> Changes:
        """What the stream's function makes of records. Raises `ComputeFault`."""

    def put(self, loop: "StreamLoop", computed: Changes) -> PutResult:
        """Store what was computed; raises `PutFault`, and nothing is stored."""

    def done(self, loop: "StreamLoop", taken: Queued, published: Changes) -> None:
        """Keep a transaction in the histories."""

    def bad(self, loop: "StreamLoop", taken: Queued, why: BadTransaction) -> None:
        """Take back what was written for a transaction, and keep it with the bad ones."""

    def deliver(self, loop: "StreamLoop") -> bool:
        """Give the newest transaction to those behind it; `False`: somebody has no room."""


class StreamLoop:
    """Of one stream."""

    def __init__(
        self,
        name: str,
        shape: StreamShape,
        host: LoopHost,
        debugger: Debugger,
        chunk: int | None,
        *,
        is_whole: bool = False,
    ) -> None:
        """`chunk`: how many records are computed at once, at most; `None`: all of a transaction.

        `is_whole`: what is put is computed of all of it, even if its records were gone through one by one before.
        """
        self.name = name
        self.shape = shape
        self._host = host
        self.chunk = chunk
        self._is_whole = is_whole
        self._debugger = debugger
        self.queue: deque[Queued] = deque()
        self.queue_bytes = 0
        self.location = Location.INPUT
        self.breakpoints: list[Breakpoint] = []
        self.is_held = False
        """This stream alone takes nothing from its queue."""
        self._taken: Queued | None = None
        self._at = 0
        self._is_computed = False
        """The record at `_at` is; an output breakpoint may have paused there."""
        self._is_checked = False
        """Its input breakpoints were asked."""
        self._out: list[ChangeRecord] = []
        self._whole: Changes | None = None
        """What was computed of all records at once."""
        self._out_row: list[ChangeRecord] | None = None
        self._why: BadTransaction | None = None
        self._is_stale = False

    # --- What can be seen --------------------------------------------------------------------------------------------

    @property
    def in_trans(self) -> StreamTransaction | None:
        """The transaction that is worked on, until its PUT has ended."""
        taken = self._taken
        return taken.transaction if taken is not None and self.location is not Location.OUTPUT else None

    @property
    def in_row(self) -> ChangeRecord | None:
        """The record that is computed, or is next."""
        at, taken = self.row, self._taken
        return taken.transaction.changes.records[at] if at is not None and taken is not None else None

    @property
    def out_row(self) -> list[ChangeRecord] | None:
        """What the newest record was computed to; of the record before until that is known."""
        return self._out_row if self.location in (Location.COMPUTE, Location.PUT) else None

    @property
    def out_trans(self) -> list[ChangeRecord] | None:
        """What was computed so far."""
        if self._taken is None or self.location not in (Location.COMPUTE, Location.PUT):
            return None
        return list(self._whole.records) if self._whole is not None else list(self._out)

    @property
    def row(self) -> int | None:
        """In COMPUTE and BAD_ROW, the number of the record that it stands at."""
        taken = self._taken
        if taken is None or self.location not in (Location.COMPUTE, Location.BAD_ROW):
            return None
        return self._at if self._at < len(taken.transaction) else None

    @property
    def has_rows_left(self) -> bool:
        """Whether COMPUTE has a record that is not computed."""
        taken = self._taken
        return taken is not None and self._at + self._is_computed < len(taken.transaction)

    @property
    def has_work(self) -> bool:
        """Whether there is something to do, room or not."""
        return self.location is not Location.INPUT or bool(self.queue)

    @property
    def why(self) -> BadTransaction | None:
        """In BAD_ROW, what is wrong."""
        return self._why

    # --- Going on ----------------------------------------------------------------------------------------------------

    def enqueue(self, pending: Queued) -> None:
        """A transaction comes."""
        self.queue.append(pending)
        self.queue_bytes += pending.transaction.changes.nbytes

    def advance(self) -> LoopProgress:
        """Go on by one step."""
        if self._is_stale:
            self._redo()
        if self.location is Location.INPUT:
            return self._input()
        if self.location is Location.COMPUTE:
            return self._compute()
        if self.location is Location.PUT:
            return self._put()
        if self.location is Location.OUTPUT:
            return self._output()
        return self._bad_row()

    def set_aside(self) -> None:
        """What the transaction had written was taken back; it is computed once more when the loop goes on."""
        self._is_stale = True

    def _redo(self) -> None:
        """Compute its records again, up to where it stands."""
        self._is_stale = False
        taken = self._taken
        if taken is None or self.location not in (Location.COMPUTE, Location.PUT):
            return
        self._host.begin(self)
        changes = taken.transaction.changes
        if taken.source == EXPIRY:
            return
        if self._whole is not None:
            self._whole = self._host.compute(self, changes)
            return
        for at in range(self._at + self._is_computed):
            self._compute_row(changes, at)

    def _input(self) -> LoopProgress:
        if not self.queue or self.is_held or not self._host.may_take(self):
            return LoopProgress.IDLE
        if not self._debugger.may_enter(self):
            return LoopProgress.PAUSED
        self._take(self.queue.popleft())
        return LoopProgress.MOVED

    def _take(self, pending: Queued) -> None:
        self.queue_bytes -= pending.transaction.changes.nbytes
        self._at, self._is_computed, self._is_checked = 0, False, False
        self._out, self._out_row, self._whole = [], None, None
        if pending.source == EXPIRY:
            self._expire(pending)
            return
        self._taken = self._host.taken(self, pending)
        self._host.begin(self)
        self.location = Location.COMPUTE

    def expire(self, now_ms: int) -> None:
        """Before the next transaction is taken, let rows go that are too old by then, or too many."""
        if not self.queue or self.queue[0].source != EXPIRY:
            nothing = Changes(self.shape, [], None, now_ms)
            self.queue.appendleft(Queued(EXPIRY, StreamTransaction(now_ms, nothing)))

    def _expire(self, pending: Queued) -> None:
        now_ms = pending.transaction.seq
        expired = self._host.expired(self, now_ms)
        if not len(expired):
            return
        self._taken, self._whole = Queued(EXPIRY, StreamTransaction(now_ms, expired)), expired
        self._host.begin(self)
        self.location = Location.PUT

    def _compute(self) -> LoopProgress:
        taken = self._taken
        assert taken is not None, "COMPUTE has a transaction"
        changes = taken.transaction.changes
        try:
            if self.chunk is None and not self._at and self._is_free():
                self._whole = self._host.compute(self, changes)
            elif not (self._compute_chunks(changes) or self._compute_rows(changes)):
                return LoopProgress.PAUSED
        except ComputeFault as fault:
            row, cause = fault.args
            self._at += row or 0
            self._fail(BadTransaction(None if row is None else self._at, cause, Location.COMPUTE))
            return LoopProgress.MOVED
        self._at = len(changes)
        self.location = Location.PUT
        self._debugger.computed_all(self)
        return LoopProgress.MOVED

    def _is_free(self) -> bool:
        """Whether nothing can stop it before the transaction is computed."""
        if self._is_computed or self._is_checked or (self.breakpoints and self._debugger.asks_breakpoints):
            return False
        return self._debugger.is_free(self)

    def _compute_chunks(self, changes: Changes) -> bool:
        """Many records at a time, until a pause; whether all are computed."""
        assert self.chunk is not None or not self._is_free(), "what is computed as a whole has no chunks"
        while self._is_free() and self._at < len(changes):
            # The last one alone: a pause behind it shows what it was computed to.
            until = min(self._at + self.chunk, len(changes))  # type: ignore[operator]
            for part in (changes.part(self._at, until - 1), changes.part(until - 1, until)):
                self._out_row = list(self._host.compute(self, part).records)
                self._out += self._out_row
                self._at += len(part)
        return self._at >= len(changes)

    def _compute_rows(self, changes: Changes) -> bool:
        """ChangeRecord by record; whether all are computed."""
        while True:
            if self._is_computed:
                self._at, self._is_computed, self._is_checked = self._at + 1, False, False
            if self._at >= len(changes):
                return True
            row = changes.records[self._at]
            if not self._is_checked:
                self._is_checked = True
                self._ask_breakpoints("input", row)
            if not self._debugger.may_compute(self):
                return False
            self._out_row = self._compute_row(changes, self._at)
            self._out += self._out_row
            self._is_computed = True
            if self._ask_breakpoints("output", row):
                return False

    def _compute_row(self, changes: Changes, at: int) -> list[ChangeRecord]:
        """One record alone. Where the transaction is computed as a whole, only that decides whether it is bad."""
        try:
            return list(self._host.compute(self, changes.part(at, at + 1)).records)
        except ComputeFault:
            if not self._is_whole:
                raise
            return []

    def _ask_breakpoints(self, side: Side, row: ChangeRecord) -> bool:
        """Whether one of them has paused the flow."""
        if not self._debugger.asks_breakpoints:
            return False
        hit = [one for one in self.breakpoints if one.side == side and one.is_hit(row, self._out_row or ())]
        if hit:
            self._debugger.pause(self, hit[0].number)
        return bool(hit)

    def _put(self) -> LoopProgress:
        if not self._debugger.may_enter(self):
            return LoopProgress.PAUSED
        taken = self._taken
        assert taken is not None, "PUT has a transaction"
        try:
            result = self._host.put(self, self._computed(taken))
        except ComputeFault as fault:
            row, cause = fault.args
            self._at = row or 0
            self._fail(BadTransaction(row, cause, Location.COMPUTE))
            return LoopProgress.MOVED
        except PutFault as fault:
            row, cause = fault.args
            self._fail(BadTransaction(row, cause, Location.PUT))
            return LoopProgress.MOVED
        self._host.done(self, taken, result.changes)
        self._taken = None
        self._forget()
        self.location = Location.OUTPUT
        return LoopProgress.MOVED

    def _computed(self, taken: Queued) -> Changes:
        """All of it."""
        if self._whole is not None:
            return self._whole
        if not self._is_whole:
            return Changes(self.shape, self._out, None, taken.transaction.time)
        # What was written for single records goes: a replay writes what is computed of all of them.
        self._host.begin(self)
        self._is_stale = False
        return self._host.compute(self, taken.transaction.changes)

    def _output(self) -> LoopProgress:
        if not self._host.deliver(self):
            return LoopProgress.BLOCKED
        self.location = Location.INPUT
        return LoopProgress.MOVED

    def _bad_row(self) -> LoopProgress:
        if not self._debugger.may_enter(self):
            return LoopProgress.PAUSED
        assert self._taken is not None, "BAD_ROW has a transaction"
        assert self._why is not None, "BAD_ROW knows what is wrong"
        self._host.bad(self, self._taken, self._why)
        self._taken = self._why = None
        self._forget()
        self.location = Location.INPUT
        return LoopProgress.MOVED

    def _fail(self, why: BadTransaction) -> None:
        self._why = why
        self.location = Location.BAD_ROW
        self._debugger.computed_all(self)

    def _forget(self) -> None:
        self._out, self._out_row, self._whole = [], None, None
        self._at, self._is_computed = 0, False
