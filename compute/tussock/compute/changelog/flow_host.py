"""`FlowHost`: the machinery of a `Flow`: its runs, and what the streams, the engine and a node ask of them."""

import itertools
import threading
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from typing import Any, TypeVar

from tussock.compute.applications.errors import ApplicationStopped, Full
from tussock.compute.applications.limits import ApplicationLimits
from tussock.compute.applications.program import Outcome
from tussock.compute.applications.replies import give, result_within
from tussock.compute.applications.request_queue import AskedWithin, Nesting
from tussock.compute.applications.runner import Runner
from tussock.compute.applications.startable import TimedEnd
from tussock.compute.changelog.changes.changes import Changes
from tussock.compute.changelog.changes.transaction import changes_bytes
from tussock.compute.changelog.debugging.host_looks import HostLooks
from tussock.compute.changelog.engine.flow_engine import FlowEngine
from tussock.compute.changelog.engine.queue_room import QueueRoom
from tussock.compute.changelog.engine.requests import FlowAct, FlowLook, Pump, Push, Tick
from tussock.compute.changelog.partitions.flow_program import FlowProgram, flow_program
from tussock.compute.changelog.plan import FlowPlan
from tussock.compute.changelog.push_ids import check_push_id
from tussock.compute.changelog.stream import Stream, plan_of
from tussock.compute.changelog.subscriptions import Subscribers, Subscription
from tussock.statestore import InvalidOption, StateStore, WaitTimeout

__all__ = ["FlowHost"]

T = TypeVar("T")

TICK_SECONDS = 1.0
OUTPUT_SECONDS = 0.05
"""Between two looks whether an output has sent what it had."""


_ASKED_WITHIN = AskedWithin(
    InvalidOption,
    "flow",
    "a function that it runs, which has its record and nothing else, and would wait for itself: let a stream behind do "
    "the rest, or another thread",
    "push()",
)


class FlowHost(HostLooks):
    """Of one flow; what is not said otherwise may be called in any thread."""

    def __init__(
        self,
        name: str,
        store: StateStore,
        streams: Sequence[Stream],
        *,
        group_commit: float | None,
        checkpoint: float,
        timeout: float,
        place: str | None,
        limits: ApplicationLimits,
    ) -> None:
        """As `Flow` has checked them."""
        super().__init__(name, store, streams)
        self._timeout = timeout
        self._group_commit, self._checkpoint, self.place, self._limits = group_commit, checkpoint, place, limits
        self._runner: Runner | None = None
        self._engine: FlowEngine | None = None
        self._subscribers: Subscribers | None = None
        self._numbers = itertools.count(1)
        self._room: QueueRoom | None = None
        self._turn = threading.Lock()
        self._is_pumping = False
        self._ending = TimedEnd(f"flow {name!r}")
        self._nesting: Nesting | None = None
        """Of the newest run, which may be ending."""

    # --- Running -----------------------------------------------------------------------------------------------------

    def start(self) -> None:
        """Recover, and begin to take transactions. A second runner of the same flow shuts the first one out.

        Raises `NotDeterministic`, `CorruptLog`, `InvalidOption`, and what opening tables raises.
        """
        self.check_asked()
        if self._runner is not None:
            raise InvalidOption(f"flow {self.name!r} runs already")
        self._ending.check_over()
        plan = FlowPlan(self.name, [plan_of(one) for one in self.streams.values()])
        touched = self._make_tables(plan)
        self._is_pumping = False
        subscribers = Subscribers(self.again)
        engine = FlowEngine(plan, self, self._timeout, self._borders, self._limits)
        engine.touched = touched
        self._room = QueueRoom(engine.streams, lambda: self._runner is None or self._runner.failure is not None)
        runner = Runner(
            self.store,
            self.name,
            engine,
            group_commit=self._group_commit,
            checkpoint=self._checkpoint,
            place=self.place,
            limits=self._limits,
            asked_within=_ASKED_WITHIN,
        )
        self._engine, self._runner, self._subscribers, self._nesting = engine, runner, subscribers, runner.nesting
        for name, one in self.streams.items():
            engine.streams[name].loop.breakpoints = one.breakpoints
        try:
            runner.start()
            self.answer(FlowAct(lambda: None))
            self._start_pumps(engine, runner, self._room, self._ended)
        except BaseException:
            self._runner = None
            raise
        if any(one.ages is not None and one.ages.keep.ms for one in plan.streams):
            engine.system.spawn(f"tussock flow {self.name} ticks", lambda: self._tick_each_second(runner))

    def stop(self, timeout: float | None, first: Callable[[], None], *, in_trouble: bool = False) -> None:
        """See `Flow.stop`; `first` is called once the flow takes nothing any more.

        `in_trouble`: only seconds count in which the flow waits for its bucket.
        """
        self.check_asked(waits=True)
        runner = self._runner
        if runner is not None:
            # First, as a feed that meets a flow which runs no more takes that for a fault.
            self._end_feeds()
            engine, self._runner = self.started(), None
            self._ending.begin(engine.system, lambda: self._end(runner, engine, first), runner, timeout)
        self._ending.wait(timeout, in_trouble=in_trouble)

    def leave(self, first: Callable[[], None]) -> None:
        """At the end of a `with` block, which waits for as long as the flow ends as it should."""
        self.stop(self._limits.exit_ms / 1000, first, in_trouble=True)

    def _end(self, runner: Runner, engine: FlowEngine, first: Callable[[], None]) -> None:
        first()
        assert self._subscribers is not None
        self.moved()
        try:
            self._stop_pumps(runner)
            if engine.stops is not None:
                raise engine.stops  # which the last commit has come to know of
        finally:
            self._subscribers.end(runner.failure)
            self.moved()

    def drain(self, timeout: float | None = None) -> None:
        """Wait until all that feeds have now is there, and nothing is queued or worked on, and commit.

        Then the tables of the store have it all, and outputs what was published. Raises `WaitTimeout` after `timeout`
        seconds, such as in a pause, and what the flow has failed with.
        """
        self.check_asked(waits=True)
        until = self.until(timeout)
        self._drain_feeds(until)
        while not self.look(lambda engine: engine.is_idle):
            self.wait_a_little(until, timeout)
        self.answer(FlowAct(self.started().commit))
        self._drain_outputs(until)

    def partitioned_program(self, procedure: str | None) -> FlowProgram:
        """What Spark's tasks run; `InvalidOption` says why it cannot be. Makes the tables that are not there."""
        self.check_asked()
        if self._runner is not None:
            raise InvalidOption(f"flow {self.name!r} runs; stop it before tasks write its tables")
        if procedure is not None:
            raise InvalidOption(f"flow {self.name!r} has no procedures; leave procedure={procedure!r:.100} out")
        self._borders.check_none()
        plan = FlowPlan(self.name, [plan_of(one) for one in self.streams.values()])
        program = flow_program(plan, self._timeout)
        self._make_tables(plan, for_tasks=True)
        return program

    @property
    def is_running(self) -> bool:
        """Whether it has started, and not stopped."""
        return self._runner is not None

    def check_asked(self, *, waits: bool = False) -> None:
        """`InvalidOption` in a function that the flow runs; if what is asked `waits` for it, in a callback as well."""
        if self._nesting is not None:
            self._nesting.check(waits=waits)

    def next_breakpoint(self) -> int:
        """A number for a breakpoint."""
        return next(self._numbers)

    # --- For the streams ---------------------------------------------------------------------------------------------

    def push(
        self, stream: Stream, records: Any, *, wait: bool, timeout: float | None, request_id: str | None
    ) -> "Future[int]":
        """A transaction for a stream; see `Stream.push`."""
        self.check_asked()
        push = self.prepared(stream, records, request_id)
        # In a callback of a reply, nothing makes room until it has returned.
        wait = wait and not self._running().nesting.is_in_callback
        self._wait_for_outputs()
        try:
            return self.give(push, wait=wait, timeout=timeout)
        except (Full, WaitTimeout):
            number = None if request_id is None else self.ask_for_push(stream.name, request_id).result().value
            if number is None:
                raise
            known: Future[int] = Future()
            known.set_result(number)
            return known

    def ask_for_push(self, stream: str, request_id: str) -> "Future[Any]":
        """`Applied` with the number that a transaction with this id has got; `None`: it was not pushed."""
        engine = self.started()
        return self.ask(FlowLook(lambda: engine.kept.push_ids.find(request_id, stream)))

    def prepared(self, stream: Stream, records: Any, request_id: str | None = None) -> Push:
        """A transaction as `give` takes it; raises `SchemaMismatch` and `InvalidOption` as `Stream.push` does."""
        if request_id is not None:
            check_push_id(request_id, f"stream {stream.name!r}")
        self._running()
        if stream.inputs:
            raise InvalidOption(f"stream {stream.name!r} reads other streams: push to one of those")
        self._check_pushed(stream)
        time = self.started().system.now_ms()
        shape = self.started().streams[stream.name].plan.shape
        changes = Changes.of_pushed(shape, records, time)
        return Push(stream.name, changes, changes_bytes(changes), request_id or "")

    def has_place(self, stream: str) -> bool:
        """Whether `give` need not wait, for the queue of the stream, an output, nor for the thread of the flow."""
        return 2 * self._running().waiting < self._limits.queue_requests and self.wait_place(stream, 0)

    def wait_place(self, stream: str, seconds: float) -> bool:
        """Whether there is room for a transaction within these seconds, or the flow has ended."""
        self._running()
        assert self._room is not None, "what runs has room, or none"
        if not self._outputs_have_room():
            self.started().system.sleep(min(seconds, OUTPUT_SECONDS))
            return False
        return self._room.wait_place(stream, seconds)

    def give(self, push: Push, *, wait: bool, timeout: float | None) -> "Future[int]":
        """Put a transaction into the queue of its stream; see `Stream.push`."""
        room = self._room
        self._running()
        assert room is not None, "what runs has room, or none"
        nbytes = push.changes.nbytes
        room.reserve(push.stream, nbytes, wait=wait, timeout=timeout)
        runner = self._running()
        number: Future[int] = Future()
        try:
            asked = runner.submit(push, len(push.given))
        except BaseException:
            room.arrived(push.stream, nbytes)
            raise
        # It has begun: nothing withdraws it any more.
        number.set_running_or_notify_cancel()
        asked.add_done_callback(lambda found: self._pushed(found, number))
        return number

    def subscribe(
        self, stream: str, from_seq: int | None, *, blocks: bool, buffer: int, timeout: float | None
    ) -> Subscription:
        """See `Stream.subscribe`."""
        subscribers = self.subscribers
        return self.look(
            lambda engine: Subscription(
                stream,
                engine.streams[stream].history,
                subscribers,
                from_seq=from_seq,
                blocks=blocks,
                buffer=buffer,
                timeout=timeout,
            )
        )

    @property
    def subscribers(self) -> Subscribers:
        """Of the run; `ApplicationStopped` if there is none."""
        self._running()
        assert self._subscribers is not None, "what runs has subscribers"
        return self._subscribers

    def readers(self, stream: str) -> list[int]:
        """Of each subscriber of a stream the number that it reads next."""
        return [] if self._subscribers is None else self._subscribers.readers(stream)

    def look(self, look: Callable[[FlowEngine], T], timeout: float | None = None) -> T:
        """Look at something between two transactions; raises what that raises, and `WaitTimeout`."""
        engine = self.started()
        self._running().nesting.check(waits=True)
        asked = self.ask(FlowLook(lambda: look(engine)))
        if timeout is not None:
            found: T = result_within(asked, timeout, f"flow {self.name!r}").value
        else:
            found = self._running().troubles.answer(asked, self._timeout).value
        return found

    def loop_of(self, stream: str) -> Any:
        """The loop of a stream of the run; `None` if there is none."""
        engine = self._engine
        return None if engine is None or self._runner is None else engine.streams[stream].loop

    # --- Within ------------------------------------------------------------------------------------------------------

    def answer(self, what: Any) -> Any:
        """What a request comes to, once it is durable. A callback of a reply would wait for itself."""
        self._running().nesting.check(waits=True)
        return self.ask(what).result().value

    def ask(self, what: Any) -> "Future[Any]":
        """Something for the engine, also in a pause; the future has its `Applied`."""
        asked = self._running().submit(what, is_look=True)
        asked.add_done_callback(self._ended)
        return asked

    def _ended(self, asked: "Future[Any]") -> None:
        """A request is durable, or has failed; in any thread."""
        subscribers = self._subscribers
        if subscribers is None:
            return
        if asked.cancelled() or asked.exception() is not None:
            runner = self._runner
            if runner is not None and runner.failure is not None:
                subscribers.end(runner.failure)
                self.moved()
            return
        subscribers.durable(asked.result().marks)

    def _pushed(self, asked: "Future[Any]", number: "Future[int]") -> None:
        self._ended(asked)
        try:
            found = Outcome(value=asked.result().value)
        except Exception as error:  # noqa: BLE001 - it is the caller's
            found = Outcome(error=error)
        give(number, found)

    # --- For the engine ----------------------------------------------------------------------------------------------

    def has_room(self, stream: str, seq: int) -> bool:
        """Whether all subscribers of a stream can take the transaction of this number."""
        assert self._subscribers is not None, "a run has subscribers"
        return self._subscribers.has_room(stream, seq)

    def needed(self, stream: str, seq: int) -> int:
        """The number of the oldest transaction that one of them has not read; else `seq`."""
        assert self._subscribers is not None, "a run has subscribers"
        return self._subscribers.needed(stream, seq)

    def arrived(self, stream: str, nbytes: int) -> None:
        """A pushed transaction is in its queue."""
        assert self._room is not None, "a run has room"
        self._room.arrived(stream, nbytes)

    def moved(self) -> None:
        """Streams have taken transactions: their queues have room."""
        assert self._room is not None, "a run has room"
        self._room.look_again()

    def again(self) -> None:
        """Ask for another turn, unless one is on its way."""
        runner = self._runner
        with self._turn:
            if self._is_pumping or runner is None:
                return
            self._is_pumping = True
        turn: Future[Any] = Future()
        turn.add_done_callback(self._ended)
        runner.submit_next(Pump(), turn)

    def pump_began(self) -> None:
        """The turn that was asked for begins."""
        self._is_pumping = False

    def tick(self) -> None:
        """Let rows go that are too old now, without waiting for the second to pass."""
        self.answer(Tick())

    def _tick_each_second(self, runner: Runner) -> None:
        """Each second, for as long as this run lasts."""
        assert self._engine is not None, "a run has an engine"
        system = self._engine.system
        ticked: Future[Any] | None = None
        while self._runner is runner and runner.failure is None:
            if ticked is None or ticked.done():
                ticked = Future()
                ticked.add_done_callback(self._ended)
                runner.submit_next(Tick(), ticked)
            system.sleep(TICK_SECONDS)

    def started(self) -> FlowEngine:
        """The engine of the run; `ApplicationStopped` if there is none."""
        self._running()
        assert self._engine is not None
        return self._engine

    def _running(self) -> Runner:
        if self._runner is None:
            raise ApplicationStopped(f"flow {self.name!r} is not running; start it, or use it in a `with` block")
        return self._runner
