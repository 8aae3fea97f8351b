"""What a run does for the loops of its streams: computing, storing, keeping, delivering."""

from collections import deque
from collections.abc import Collection, Iterable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any, Protocol

import pyarrow as pa

from tussock.compute.applications.deadline import Deadline, Overdue
from tussock.compute.applications.errors import BadRow, NotDeterministic
from tussock.compute.changelog.bad_rows import Handling
from tussock.compute.changelog.borders.flow_borders import FlowBorders
from tussock.compute.changelog.changes.changes import Changes
from tussock.compute.changelog.changes.stream_shape import StreamShape
from tussock.compute.changelog.changes.transaction import StreamTransaction, changes_bytes
from tussock.compute.changelog.computations import Computation
from tussock.compute.changelog.engine.held_back import HELD_BYTES_MAX, HeldBack, together
from tussock.compute.changelog.engine.journal import Journal
from tussock.compute.changelog.engine.kept_state import KeptState
from tussock.compute.changelog.engine.running_stream import RunningStream
from tussock.compute.changelog.loop.put_columns import put_columns
from tussock.compute.changelog.loop.put_rules import PutResult, put_records
from tussock.compute.changelog.loop.stream_loop import EXPIRY, BadTransaction, ComputeFault, Queued, StreamLoop
from tussock.compute.changelog.plan import skips_nothing
from tussock.statestore.errors import InvalidOption, SchemaMismatch
from tussock.statestore.transactions.delta import Delta

__all__ = ["LoopWork", "Readers"]

FEW_RECORDS = 64
"""More are put by column. Their number alone decides, and not whether they are objects: those of a transaction that was
gone through step by step are, and a replay, which computes all at once, has to write the same."""


class Readers(Protocol):
    """The subscribers of all streams."""

    def has_room(self, stream: str, seq: int) -> bool:
        """Whether all of a stream can take the transaction of this number."""

    def needed(self, stream: str, seq: int) -> int:
        """The number of the oldest transaction that one of them has not read; else `seq`."""


class LoopWork:
    """A `LoopHost`."""

    def __init__(self, streams: Mapping[str, RunningStream], readers: Readers, borders: FlowBorders) -> None:
        self._streams = streams
        self._readers = readers
        self._borders = borders
        self.journal = Journal()
        self._open: StreamLoop | None = None
        """The loop whose transaction has a savepoint."""
        self._mark: tuple[int, int, int] | None = None
        """Its ages there."""
        self.is_replay = False
        self._replayed: deque[Handling] = deque()
        self.transactions = self.rows = 0
        """Taken in this run."""

    def start(self, delta: Delta, kept: KeptState, deadline: Deadline) -> None:
        """A run begins."""
        self._delta = delta
        self._kept = kept
        self._deadline = deadline

    def begin_replay(self, handled: Iterable[Handling]) -> None:
        """A record is done again; `handled`: what became of its bad transactions."""
        self.is_replay, self._replayed = True, deque(handled)

    def end_replay(self) -> int | None:
        """It is done; returns the digest of what was written."""
        self.is_replay = False
        return self.journal.forget()

    def set_aside(self) -> None:
        """Take back what an unfinished transaction has written; its loop computes it again."""
        if self._open is not None:
            self._delta.undo()
            ages = self._streams[self._open.name].plan.ages
            if ages is not None and self._mark is not None:
                ages.undo(self._mark)
            self._open.set_aside()
            self._open = None

    @contextmanager
    def aside(self) -> Iterator[None]:
        """Between two transactions: what is written within goes again. One that is unfinished is computed once more."""
        self.set_aside()
        self._delta.begin()
        try:
            yield
        finally:
            self._delta.undo()

    def trim(self, stream: RunningStream, now_ms: int) -> None:
        """Let old transactions of the histories go that nobody has to read."""
        name, newest = stream.plan.name, stream.history.seq
        behind = [one for one in stream.behind if name not in one.begins]
        needed = min((one.read.get(name, 0) + 1 for one in behind), default=newest)
        stream.history.trim(min(needed, self._readers.needed(name, newest)), now_ms)
        stream.taken_history.trim(stream.taken, now_ms)

    # --- As a host of loops ------------------------------------------------------------------------------------------

    def may_take(self, loop: StreamLoop) -> bool:
        """Not while another stream still reads its rows, which have to stay as they are until then."""
        stream = self._streams[loop.name]
        return self.is_replay or not any(loop.name in one.begins for one in stream.behind)

    def taken(self, loop: StreamLoop, pending: Queued) -> Queued:
        """Together with what is held back of the same input."""
        source, one, _ = pending
        held = self._streams[loop.name].held.get(one.changes.shape.stream)
        if held is None:
            return pending
        return Queued(source, StreamTransaction(one.seq, together(held.changes, one.changes)), is_apart=True)

    def begin(self, loop: StreamLoop) -> None:
        """A transaction begins."""
        self.set_aside()
        self._delta.begin()
        self._open = loop
        ages = self._streams[loop.name].plan.ages
        self._mark = None if ages is None else ages.mark()

    def compute(self, loop: StreamLoop, changes: Changes) -> Changes:
        """What the stream makes of records."""
        return self.computed(self._streams[loop.name].plan.computation, changes)

    def computed(self, computation: Computation, changes: Changes) -> Changes:
        """What a computation makes of records, within its time."""
        # Of a bad transaction that was given once more, too, which comes as if it was pushed.
        source = changes.shape.stream
        if not computation.is_users:
            found = computation.compute(source, changes)
            try:
                found.check_times()
            except SchemaMismatch as error:
                raise ComputeFault(None, str(error)) from error
            return found
        computation.at = None
        try:
            return self._deadline.run(computation.compute, source, changes)
        except Overdue as error:
            raise ComputeFault(computation.at, f"it did not return within {self._deadline.seconds:g} s") from error

    def put(self, loop: StreamLoop, computed: Changes) -> PutResult:
        """Into the stream's table; `StreamChanged` if somebody has altered it."""
        self._kept.check_unaltered(loop.name)
        try:
            return self.put_into(self._kept.tables[loop.name], loop.shape, computed)
        except (pa.ArrowException, SchemaMismatch):
            # This moment, maybe.
            self._kept.check_unaltered(loop.name)
            raise

    def put_into(self, table: Any, shape: StreamShape, computed: Changes) -> PutResult:
        """The same into any table of its columns; raises `PutFault`, and nothing is stored."""
        # Of few records each is put faster than columns are set up.
        if len(computed) > FEW_RECORDS:
            result = put_columns(shape, computed, table.multi_get)
        else:
            result = put_records(shape, computed, table.get)
        if result.deletes is not None and len(result.deletes):
            table.delete(result.deletes)
        if result.upserts is not None and len(result.upserts):
            table.upsert(result.upserts)
        return result

    def expired(self, loop: StreamLoop, now_ms: int) -> Changes:
        """Rows that have to go."""
        ages = self._streams[loop.name].plan.ages
        assert ages is not None, "only what has ages expires"
        return ages.due(now_ms)

    def done(self, loop: StreamLoop, taken: Queued, published: Changes) -> None:
        """Keep it in the histories."""
        stream = self._streams[loop.name]
        ages = stream.plan.ages
        self._read_ahead(stream, taken)
        self._took(stream, taken, self._write(stream, published))
        source, one, is_apart = taken
        if source != EXPIRY:
            into = StreamTransaction(stream.taken, one.changes)
            stream.taken_history.add(into, one.seq if source and not is_apart else 0, stream.history.seq + 1)
            held = stream.held.pop(one.changes.shape.stream, None)
            if held is not None:
                self._kept.bad_rows.remove(held.number)
        self._keep_published(stream, published)
        if ages is not None and ages.keep.rows and not self.is_replay and ages.has_due(0):
            loop.expire(published.time)

    def publish(self, stream: RunningStream, computed: Changes, passed: Collection[str]) -> None:
        """Put and keep what no transaction has come to, and hand it on; nothing if it changes nothing.

        Those of `passed` are told that they have taken it: they take the rows instead.
        """
        self.begin(stream.loop)
        published = self.put(stream.loop, computed).changes
        if not len(published):
            self._delta.undo()
            self._open = None
            return
        self._write(stream, published)
        self._keep_published(stream, published)
        newest = stream.history.find(stream.history.seq)
        assert newest is not None, "the newest transaction is kept"
        for behind in stream.behind:
            if behind.plan.name in passed:
                behind.read[stream.plan.name] = newest.seq
            # One that has still to begin finds it among the rows.
            elif stream.plan.name not in behind.begins:
                behind.loop.enqueue(Queued(stream.plan.name, newest))

    def keep_bad(self, stream: RunningStream, taken: Queued, why: BadTransaction) -> Handling:
        """Ask what becomes of a bad transaction, and keep it so; an operator holds it back.

        Raises `BadRow` if the flow has to stop, also as no more can be kept or held back.
        """
        handling = self._replayed.popleft() if self.is_replay else self._handling(stream, taken, why)
        if handling == "stop":
            raise _stops(stream, taken, why, "mend what computes it, or let it be kept, by on_bad_row('dead-letter')")
        is_view = stream.plan.computation.is_view
        data = None if is_view or handling == "skip" else changes_bytes(taken.transaction.changes)
        if not self.is_replay and not (is_view and self._held(stream, taken)):
            lack = self._kept.bad_rows.lack_of_room(len(data or b""))
            if lack:
                raise _stops(stream, taken, why, lack)
        stream.bad += 1
        if is_view:
            self._hold_back(stream, taken, why)
        else:
            self._kept.bad_rows.add(stream.plan.name, taken, why, data)
        return handling

    def bad(self, loop: StreamLoop, taken: Queued, why: BadTransaction) -> None:
        """Give it up, and keep it with the bad ones."""
        stream = self._streams[loop.name]
        self.set_aside()
        seq = taken.transaction.seq
        if self.is_replay and not self._replayed:
            raise NotDeterministic(
                f"transaction {seq} of stream {loop.name!r} is bad in the replay ({why.cause}), and was not when it "
                "ran first: a compute function may use its record and its time only, and the stream's rows are its own"
            )
        self._read_ahead(stream, taken)
        handling = self.keep_bad(stream, taken, why)
        self._took(stream, taken, None)
        self.journal.note_bad(handling, f"{why.row} {why.cause}")

    def deliver(self, loop: StreamLoop) -> bool:
        """To subscribers, and to the streams behind."""
        stream = self._streams[loop.name]
        if not self.is_replay:
            if not self._readers.has_room(loop.name, stream.history.seq):
                return False
            if not all(one.has_room() for one in stream.behind):
                return False
        newest = stream.history.find(stream.history.seq)
        assert newest is not None, "the newest transaction is kept"
        for behind in stream.behind:
            # One that has still to begin finds it among the rows.
            if loop.name not in behind.begins:
                behind.loop.enqueue(Queued(loop.name, newest))
        return True

    def _handling(self, stream: RunningStream, taken: Queued, why: BadTransaction) -> Handling:
        changes = taken.transaction.changes
        held = self._held(stream, taken)
        if held is not None and changes.nbytes > HELD_BYTES_MAX:
            raise BadRow(
                f"stream {stream.plan.name!r}: it holds back what {changes.shape.stream!r} has published from "
                f"transaction {held.seq} on, {len(changes):,} records: more than {HELD_BYTES_MAX >> 20} MiB, as record "
                f"{why.row} of them cannot be: {why.cause}; the flow stops: mend what the stream computes and start "
                "it again",
                stream.plan.name,
                held.seq,
                why.row,
                why.cause,
            )
        handling = stream.plan.handle_bad(taken, why)
        if handling == "skip" and stream.plan.computation.is_view:
            raise InvalidOption(skips_nothing(stream.plan.name))
        return handling

    def _hold_back(self, stream: RunningStream, taken: Queued, why: BadTransaction) -> None:
        """What comes is computed together with it."""
        changes = taken.transaction.changes
        source = changes.shape.stream
        held = self._held(stream, taken)
        seq = taken.transaction.seq if held is None else held.seq
        number = self._kept.bad_rows.hold(stream.plan.name, source, seq, why, None if held is None else held.number)
        stream.held[source] = HeldBack(number, seq, changes)

    @staticmethod
    def _held(stream: RunningStream, taken: Queued) -> HeldBack | None:
        return stream.held.get(taken.transaction.changes.shape.stream)

    def _write(self, stream: RunningStream, published: Changes) -> int | None:
        """The rest of what a transaction writes; returns the digest of all of it."""
        if stream.plan.ages is not None:
            stream.plan.ages.note(published)
        self._borders.add(stream.plan.name, stream.history.seq + 1, published)
        digest = self._delta.digest()
        self._delta.keep()
        self._open = None
        return digest

    def _keep_published(self, stream: RunningStream, published: Changes) -> None:
        stream.history.add(StreamTransaction(stream.history.seq + 1, published))
        stream.rows_out += len(published)
        self.trim(stream, published.time)

    def _read_ahead(self, stream: RunningStream, taken: Queued) -> None:
        """All that may fail of what follows; an outage has the transaction computed once more."""
        if taken.source in stream.begins:
            stream.read_ahead(self._streams[taken.source])

    def _took(self, stream: RunningStream, taken: Queued, digest: int | None) -> None:
        source, seq = taken.source, taken.transaction.seq
        self.journal.note_step(stream.plan.name, source, seq, digest)
        if source == EXPIRY:
            return
        stream.taken += 1
        if source in stream.begins:
            stream.begin_on(self._streams[source])
        else:
            stream.read[source] = seq
        if not source:
            stream.waiting.pop(seq, None)
        self.transactions += 1
        self.rows += len(taken.transaction)
        stream.rows_in += len(taken.transaction)


def _stops(stream: RunningStream, taken: Queued, why: BadTransaction, way_out: str) -> BadRow:
    name, seq, source = stream.plan.name, taken.transaction.seq, taken.source or "what was pushed"
    return BadRow(
        f"stream {name!r}: transaction {seq} of {source}, record {why.row}: {why.cause}; the flow stops, and meets the "
        f"transaction again when it starts: {way_out}",
        name,
        seq,
        why.row,
        why.cause,
    )
