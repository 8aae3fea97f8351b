"""A flow as a `Program` of the runner: pushes in, records of what the streams have done out, and records again.

One thread runs all streams of a flow. Those behind go first, so that a transaction goes through the flow before the
next one is taken, and queues fill only behind a stream that stands still. A record of the input log has what came in,
and which streams took a transaction of which input, in order: of a replay this alone decides what comes to what.
"""

from collections.abc import Collection, Mapping, Sequence
from typing import Any, Protocol

from tussock.compute.applications.deadline import Deadline
from tussock.compute.applications.durability.troubles import STATE
from tussock.compute.applications.errors import BadRow, NotDeterministic, StreamChanged
from tussock.compute.applications.limits import ApplicationLimits
from tussock.compute.applications.program import Host, Outcome
from tussock.compute.applications.records import Record, RecordKind
from tussock.compute.changelog.borders.flow_borders import FlowBorders
from tussock.compute.changelog.changes.transaction import changes_from
from tussock.compute.changelog.engine.anew.rebuild import REBUILD, RebuildHost, rebuild_streams
from tussock.compute.changelog.engine.journal import read_record
from tussock.compute.changelog.engine.kept_state import KeptState
from tussock.compute.changelog.engine.loop_work import LoopWork, Readers
from tussock.compute.changelog.engine.requests import Applied, FlowAct, FlowHalt, FlowLook, Pump, Push, Tick
from tussock.compute.changelog.engine.retries import Retries
from tussock.compute.changelog.engine.running_stream import RunningStream
from tussock.compute.changelog.loop.debugger import Debugger, Step
from tussock.compute.changelog.loop.location import Location, LoopProgress, PausedAt
from tussock.compute.changelog.loop.stream_loop import EXPIRY, StreamLoop
from tussock.compute.changelog.plan import FlowPlan
from tussock.statestore import TussockError
from tussock.statestore.base.logs import get_logger
from tussock.statestore.errors import CorruptLog, InvalidOption, MetaUnavailable, ObjectStoreUnavailable
from tussock.statestore.transactions.delta import Delta

__all__ = ["EngineHost", "FlowEngine"]

log = get_logger("tussock.compute.changelog")

RETRY_SECONDS = 0.5
PUMP_STEPS_MAX = 256
PUMP_SECONDS = 0.02
"""After that many transactions, or seconds, other requests have their turn."""


class EngineHost(Readers, Protocol):
    """What the engine needs of the flow that runs it."""

    def again(self) -> None:
        """Ask for a `Pump` soon."""

    def pump_began(self) -> None:
        """The one that was asked for has its turn."""

    def arrived(self, stream: str, nbytes: int) -> None:
        """A pushed transaction is in its queue."""

    def moved(self) -> None:
        """Streams have taken transactions: their queues have room."""


class FlowEngine:
    """The streams of one flow."""

    def __init__(
        self, plan: FlowPlan, flow: EngineHost, timeout: float, borders: FlowBorders, limits: ApplicationLimits
    ) -> None:
        """`timeout`: seconds that a user's function may take for a batch, or a few hundred records."""
        self._plan = plan
        self.touched: Mapping[str, int] = {}
        """Tables that others have written to, with their epochs."""
        self._timeout, self._limits = timeout, limits
        self._flow = flow
        self._borders = borders
        self._replays = borders.replays()
        self.arrived = flow.arrived
        self._deadline: Deadline | None = None
        self.stops: BadRow | StreamChanged | None = None
        """What has stopped the flow: a handler of bad rows, or a table that was altered."""
        self.debugger = Debugger()
        self.streams: dict[str, RunningStream] = {}
        self.work = LoopWork(self.streams, flow, borders)
        for one in plan.streams:
            chunk, is_whole = one.computation.chunk, one.computation.is_whole
            loop = StreamLoop(one.name, one.shape, self.work, self.debugger, chunk, is_whole=is_whole)
            self.streams[one.name] = RunningStream(one, loop)
        for stream in self.streams.values():
            for source in stream.plan.inputs:
                self.streams[source].behind.append(stream)
        # Those without inputs at the end, so that all that is on its way comes first.
        self._order = sorted((self.streams[name] for name in plan.from_the_end()), key=lambda one: not one.plan.inputs)

    # --- As a program ------------------------------------------------------------------------------------------------

    def load(self, delta: Delta, state: bytes, host: Host) -> None:
        """Begin on these tables."""
        self._host, self._delta = host, delta
        self.system = delta.system
        self._deadline = Deadline(delta.system, self._timeout, self._give_up)
        self.kept = KeptState(self._plan, self.streams, delta, state, self._borders, self.work.journal)
        self.retries = Retries(self._plan.name, self.streams, self.kept.tables, self.kept.bad_rows, self.work.journal)
        self.work.start(delta, self.kept, self._deadline)

    def resume(self, seq: int) -> Sequence[Outcome]:
        """What waits goes on with the first request; where new feeds begin is recorded."""
        if self.touched:
            told = self.kept.rebuild_touched(self.touched)
            self._host.commit_now()
            raise told
        run = RebuildHost(
            self._plan, self.streams, self.work, self.kept, self._delta, self._host, self._limits, self._go_on
        )
        seq = rebuild_streams(run, seq)
        for one in self.streams.values():
            for source in [*one.begins]:
                one.begin(self.streams[source])
            if one.plan.ages is not None and one.plan.ages.keep.rows and one.plan.ages.has_due(0):
                one.loop.expire(self.system.now_ms())
        self._borders.fed.resume()
        return [self._outcome(None, seq)]

    def unload(self) -> None:
        """Nothing runs any more."""
        self._borders.fed.unload()
        if self._deadline is not None:
            self._deadline.stop()

    @property
    def nbytes(self) -> int:
        """What the next commit writes of histories."""
        return self.kept.nbytes

    def persist(self) -> bytes:
        """For a commit."""
        self.work.set_aside()
        now_ms = self.system.now_ms()
        for stream in self.streams.values():
            self.work.trim(stream, now_ms)
        if self.stops is None and (altered := self.kept.altered()) is not None:
            # With the next turn: what was written to the table until then is right, and is committed.
            self.stops = altered
            self._flow.again()
        return self.kept.persist()

    def run(self, what: Any, seq: int) -> Outcome:
        """Something that comes in, or a look."""
        value: Any = None
        if self.stops is not None:
            # What has come in is durable, and answered, before the end.
            self._host.commit_now()
            raise self.stops
        if type(what) is FlowHalt:
            raise what.error
        try:
            if type(what) is Push:
                try:
                    value = self._push(what)
                finally:
                    # In the queue now, or refused, or there before: it keeps no place for itself any more.
                    self._flow.arrived(what.stream, what.changes.nbytes)
            elif type(what) is Pump:
                self._flow.pump_began()
            elif type(what) is Tick:
                self._tick()
            elif type(what) is FlowLook:
                return Outcome(value=Applied(what.look(), {}))
            elif type(what) is FlowAct:
                value = what.act()
        except TussockError as error:
            return Outcome(error=error)
        self._pump()
        return self._outcome(value, seq)

    def replay(self, record: Record) -> None:
        """What was recorded, once more."""
        if record.kind != RecordKind.CHANGES:
            raise NotDeterministic(
                f"record {record.seq} of the input log is of kind {record.kind}, which flows do not write: another "
                f"application has been called {self._plan.name!r}"
            )
        what = f"record {record.seq} of the input log"
        events, steps = read_record(record, what)
        self.work.begin_replay(record.drawn)
        for event in events:
            self._replay_event(event, what)
        for name, source, count in steps:
            if source == EXPIRY:
                self._replay_expiry(name, count, what)
                continue
            for _ in range(count):
                self._replay_step(name, source, what)
        digest = self.work.end_replay()
        if digest != record.digest:
            raise NotDeterministic(
                f"{what}: the replay has another result than the run that was recorded (writes of digest {digest}; it "
                f"had {record.digest}). Does a compute function read a clock, draw a random number, or use what is "
                "outside of its record? row.time is the time of the transaction"
            )

    def _replay_event(self, event: list[Any], what: str) -> None:
        kind, name, *rest = event
        if kind == "again":
            self.retries.again(name, rest[0], what)
            return
        if kind == REBUILD:
            # Its commit is lacking, and so its beginning as well: the end of the start makes it anew.
            return
        if kind in self._replays:
            self._replays[kind](name, rest, what)
            return
        if name not in self.streams:
            raise NotDeterministic(f"{what}: it has a transaction of stream {name!r}, which the flow no longer has")
        stream = self.streams[name]
        if kind == "push":
            self._push(Push(name, changes_from(rest[0], stream.plan.shape, what), rest[0], *rest[1:]))
        else:
            raise CorruptLog(f"{what}: it has an event {kind!r:.100}, which is not known here")

    def _replay_step(self, name: str, source: str, what: str) -> None:
        stream = self.streams.get(name)
        loop = None if stream is None else stream.loop
        if stream is not None and source in stream.begins:
            stream.begin(self.streams[source])
        at = None if loop is None else next((i for i, one in enumerate(loop.queue) if one.source == source), None)
        if loop is None or at is None:
            raise NotDeterministic(
                f"{what}: stream {name!r} took a transaction of {source or 'a push'!r} there, and none is in its queue "
                "now: has the flow changed? Stop it in order before you change it"
            )
        first = loop.queue[at]
        del loop.queue[at]
        loop.queue.appendleft(first)
        while loop.location is not Location.INPUT or (loop.queue and loop.queue[0] is first):
            self._advance(loop)

    def _replay_expiry(self, name: str, now_ms: int, what: str) -> None:
        stream = self.streams.get(name)
        if stream is None or stream.plan.ages is None:
            raise NotDeterministic(f"{what}: rows of stream {name!r} expired there, and it keeps all of them now")
        loop = stream.loop
        loop.expire(now_ms)
        while loop.location is not Location.INPUT or (loop.queue and loop.queue[0].source == EXPIRY):
            self._advance(loop)

    # --- Going on ----------------------------------------------------------------------------------------------------

    def _push(self, what: Push) -> int:
        ids, request_id = self.kept.push_ids, what.request_id
        known = ids.find(request_id, what.stream) if request_id else None
        if known is not None:
            return known
        self.work.journal.note_event("push", what.stream, what.given, *([request_id] if request_id else []))
        number = self.streams[what.stream].take_in(what.changes)
        if request_id:
            ids.add(request_id, what.stream, number)
        return number

    def _tick(self) -> None:
        now_ms = self.system.now_ms()
        for one in self.streams.values():
            ages = one.plan.ages
            if ages is not None and ages.keep.ms and ages.has_due(now_ms):
                one.loop.expire(now_ms)

    def _pump(self) -> None:
        """Let streams go on until all stand still, or others have to have their turn.

        A turn ends before a stream without inputs takes one more transaction. So those behind it have had all that came
        before: what a commit holds of the streams belongs together, unless one of them is held back. It also ends
        between two parts of the rows with which an added stream begins: its inputs stand still until it has them all.
        """
        until = self.system.monotonic() + PUMP_SECONDS
        begun = self.work.transactions
        is_over = False
        while self._advance_one(is_over=is_over):
            is_over = self.work.transactions - begun >= PUMP_STEPS_MAX or self.system.monotonic() > until
        if self.work.transactions > begun:
            self._flow.moved()

    def _go_on(self, names: Collection[str]) -> None:
        """Let these streams take what they have in their queues."""
        while any(
            one.plan.name in names and one.loop.has_work and self._advance(one.loop) is LoopProgress.MOVED
            for one in self._order
        ):
            continue

    def _advance_one(self, *, is_over: bool) -> bool:
        """Let the hindmost stream that can go on by one step; whether there was one."""
        for one in self._order:
            loop = one.loop
            is_next = is_over and loop.location is Location.INPUT and bool(loop.queue)
            if is_next and (not one.plan.inputs or loop.queue[0].is_apart):
                self._flow.again()
            elif loop.has_work and self._advance(loop) is LoopProgress.MOVED:
                return True
        return False

    def _advance(self, loop: StreamLoop) -> LoopProgress:
        """By one step. An outage of the store is no fault of a transaction: all wait, and it is computed again.

        A bad transaction that stops the flow does so with the next turn: what has come in is recorded first.
        """
        while True:
            try:
                return loop.advance()
            except (BadRow, StreamChanged) as error:
                self.stops = error
                self._flow.again()
                return LoopProgress.PAUSED
            except (ObjectStoreUnavailable, MetaUnavailable) as error:
                self.work.set_aside()
                self._host.troubles.note(STATE, error)
                log.warning("a flow waits for the store", flow=self._plan.name, error=str(error))
                self.system.sleep(RETRY_SECONDS)

    def _outcome(self, value: Any, seq: int) -> Outcome:
        marks = {name: one.history.seq for name, one in self.streams.items()}
        applied = Applied(value, marks)
        if self.work.journal.is_empty:
            return Outcome(value=applied)
        return Outcome((self.work.journal.record(seq, self.work.transactions),), applied)

    # --- For users ---------------------------------------------------------------------------------------------------

    @property
    def is_idle(self) -> bool:
        """Whether nothing is queued or worked on."""
        return not any(one.loop.has_work for one in self._order)

    def row(self, stream: str, key: Any) -> dict[str, Any] | None:
        """A row of a stream as it is now."""
        found: dict[str, Any] | None = self.kept.tables[stream].get(key)
        return found

    def rows(self, stream: str) -> list[dict[str, Any]]:
        """All rows of a stream as they are now."""
        return [row for batch in self.kept.tables[stream].read() for row in batch.to_pylist()]

    def commit(self) -> None:
        """Commit all there is; between two transactions."""
        self._host.commit_now()

    def paused_at(self) -> PausedAt | None:
        """Where the flow stands; in any thread."""
        return self.debugger.at(self._next())

    def step(self, what: Step, stream: str | None, *, asks_breakpoints: bool = True) -> PausedAt:
        """Let one stream make a step."""
        at = self.check_paused("step()")
        name = stream if stream is not None else at.stream
        if name:
            loop = self.streams[name].loop
            self.debugger.asks_breakpoints = asks_breakpoints
            self.debugger.begin_step(loop, what)
            while loop.has_work and self._advance(loop) is LoopProgress.MOVED:
                continue
            self.debugger.end_step()
            self.debugger.asks_breakpoints = True
        return self.check_paused("step()")

    def quiesce(self, names: Collection[str]) -> bool:
        """Let these streams go on, for as long as others can wait; whether they have nothing left that they can do."""
        self.check_paused("quiesce()")
        self.debugger.begin_quiesce(names)
        until = self.system.monotonic() + PUMP_SECONDS
        has_moved = True
        while has_moved and self.system.monotonic() <= until:
            has_moved = any(
                # One that has stored its transaction delivers it in a pause, too.
                (one.plan.name in names or one.loop.location is Location.OUTPUT)
                and one.loop.has_work
                and self._advance(one.loop) is LoopProgress.MOVED
                for one in self._order
            )
        self.debugger.end_step()
        return not has_moved

    def check_paused(self, what: str) -> PausedAt:
        """Where the flow stands; `InvalidOption` while it runs."""
        at = self.paused_at()
        if at is None:
            raise InvalidOption(f"flow {self._plan.name!r} is not paused: pause() it before {what}")
        return at

    def _next(self) -> StreamLoop | None:
        """The stream that would go on."""
        return next((one.loop for one in self._order if one.loop.has_work and not one.loop.is_held), None)

    def _give_up(self) -> None:
        self._host.give_up(
            f"flow {self._plan.name!r}: a compute function has not returned for {2 * self._timeout:g} s, nor heard "
            "that its time was up: the flow ends; find out what it waits for, and start it again"
        )
