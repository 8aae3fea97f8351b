"""Runs one transaction: the function that the request names, and all that it calls, on one state.

Of one transaction one function runs at a time. A function that awaits another one is put aside until that one has
returned. Calls that nobody awaits run when their caller has returned, in the order in which they were made. So a run
depends on the request, the state and what was drawn, and on nothing else: neither on other transactions, nor on how
many processes share the entities. Where they do, a transaction moves to the process that has the entity.
"""

from collections import deque
from collections.abc import Callable
from contextlib import suppress
from types import CoroutineType
from typing import Any

from tussock.compute.applications.arguments import class_of, text_of
from tussock.compute.applications.deadline import Overdue
from tussock.compute.functions.epochs.acks import ROOT, Acks
from tussock.compute.functions.errors import FunctionFault, Interrupt, TransactionAborted
from tussock.compute.functions.program.context import (
    Awaited,
    Draw,
    Entity,
    EntityAccess,
    FunctionContext,
    FunctionTurn,
    GraphRun,
    Invocation,
    Target,
)
from tussock.compute.functions.program.places import place_of
from tussock.compute.functions.program.values import are_free, size_of, sized_copy

__all__ = ["CALLS_MAX", "CallGraph", "Guard", "run_graph"]

CALLS_MAX = 10_000
"""Of one transaction."""
Guard = Callable[..., Any]
"""Runs what it is given, on the arguments behind it, and may raise `Overdue` in it."""
KEPT_BYTES_MAX = 1024
"""Of the arguments of a call that has returned, until its epoch ends."""
_AWAITS = "can await what ctx.call() gives, and nothing else, as the same has to happen when the transaction runs again"


def run_graph(access: EntityAccess, draw: Draw, root: Target, guard: Guard) -> GraphRun:
    """Run a transaction to its end; nothing of it is stored. What its functions raise is in the run's `aborted`.

    Raises `StateUnread`, in a lock phase `Diverged`, and in a replay `ReplayDiffers`.
    """
    graph = CallGraph(access, draw)
    try:
        guard(graph.run_all, Invocation(root, ROOT, -1, False))
    except BaseException as error:  # noqa: BLE001 - of the user's code, which may raise anything
        interrupt = graph.interrupt_of(error)
        if interrupt is None:
            graph.last = root
            graph.abort(error, guard)
        elif not graph.end(guard):
            raise interrupt from None
    return graph.run


class _Frame:
    """An invocation that has begun and not returned."""

    __slots__ = ("at", "context", "coroutine", "place", "share", "target", "turn")

    def __init__(
        self, target: Target, turn: FunctionTurn, context: FunctionContext, share: int, at: int, place: int
    ) -> None:
        self.target = target
        self.turn = turn
        self.context = context
        self.share = share
        self.at = at
        """Its number in the transaction."""
        self.place = place
        """Among the invocations of the run that are here."""
        self.coroutine: CoroutineType[Any, Any, Any] | None = None


class CallGraph:
    """The call graph of one run, while it grows: the part of it that is in this process."""

    __slots__ = ("_access", "_draw", "_frames", "_is_here", "acks", "begun", "last", "run", "waiting")

    def __init__(self, access: EntityAccess, draw: Draw, is_here: Callable[[Entity], bool] | None = None) -> None:
        """`is_here` says which entities this process has; `None`: all."""
        self._access = access
        self._draw = draw
        self._is_here = is_here
        self._frames: list[_Frame] = []
        """Of what runs the last, before it what awaits it."""
        self.acks = Acks()
        self.begun = 0
        """Functions of the transaction that have begun, in all processes."""
        self.last: Target | None = None
        """What an abort names, where none has begun here since the process was asked."""
        self.run = GraphRun()
        self.waiting: deque[Invocation] = deque()
        """Calls that nobody awaits."""

    def run_all(self, root: Invocation) -> None:
        """Run a function, and all that is called, where all entities are here."""
        self.run_through(root, None, 0)
        while self.waiting:
            self.run_through(self.waiting.popleft(), None, 0)
        assert self.acks.is_complete, "no share of a transaction is lost"

    @property
    def depth(self) -> int:
        """Functions that are here, and await others."""
        return len(self._frames)

    def run_through(self, begun: Invocation | None, value: Any, base: int) -> tuple[Invocation | None, Any]:
        """Begin a function, or give the last one here the `value` that it awaits; then go on until it has returned.

        Returns the call that is to go on elsewhere, or no call and what was returned, as soon as only `base` functions
        are left here.
        """
        frames, is_here = self._frames, self._is_here
        while True:
            if begun is not None:
                if is_here is not None and not is_here(begun.target.entity):
                    return begun, None
                frame = self._open(begun)
                value = frame.target.function.code(frame.context, *frame.target.arguments)
                if type(value) is not CoroutineType:
                    value, begun = self._close(value), None
                    if len(frames) == base:
                        return None, value
                    continue
                frame.coroutine, value, begun = value, None, None
            frame = frames[-1]
            assert frame.coroutine is not None
            try:
                asked = frame.coroutine.send(value)
            except StopIteration as stop:
                value = self._close(stop.value)
                if len(frames) == base:
                    return None, value
                continue
            begun = self._awaited(frame, asked)

    def interrupt_of(self, error: BaseException) -> Interrupt | None:
        """By what the run has ended that has come to this error, whatever a function made of it.

        `None`: the error is a function's own, or time is up.
        """
        if not self._frames or issubclass(type(error), Overdue):
            return None
        return self._frames[-1].turn.interrupt

    def abort(self, error: BaseException, guard: Guard) -> None:
        """What a function raised, or that time is up, ends the transaction."""
        last = self.last
        if self._frames:
            last = self._frames[-1].target
        elif not issubclass(type(error), Overdue):
            # It came between two functions: the machine's end, not a user's error.
            raise error
        elif self.run.invocations:
            last = self.run.invocations[-1].target
        assert last is not None
        try:
            # The text is the user's code, too.
            text = guard(text_of, error)
        except Overdue:
            text = class_of(error)
        if not self.end(guard):
            self._note(error, last, text)

    def end(self, guard: Guard) -> bool:
        """No function goes on. One whose clean-up has to be stopped ends the transaction: whether there was one."""
        stopped: list[Target] = []
        while self._frames:
            # It can come between two functions, too.
            with suppress(Overdue):
                guard(self._clean_up, stopped)
        if stopped:
            self._note(Overdue(), stopped[0], "")
        return bool(stopped)

    def _clean_up(self, stopped: list[Target]) -> None:
        """All in one time limit, as ten thousand of them could last for ever."""
        while self._frames:
            frame = self._frames[-1]
            frame.turn.run = None
            try:
                if frame.coroutine is not None:
                    frame.coroutine.close()
            except Overdue:
                stopped.append(frame.target)
            except BaseException:  # noqa: BLE001, S110 - of the user's code, and the transaction has its end already
                pass
            self._frames.pop()

    def _note(self, error: BaseException, target: Target, text: str) -> None:
        function, entity, _ = target
        # Not by `isinstance`, which asks the error for its `__class__`: that may be the user's code, and raise.
        kind = type(error)
        if issubclass(kind, Overdue):
            text = f"{function.title} did not return in time, and was stopped"
        elif issubclass(kind, RuntimeError) and text == "no running event loop":
            # Of `asyncio.sleep(1)`, for example, which asks for the loop before anything is awaited.
            text = f"{text}: {function.title} {_AWAITS}"
        at = place_of(error)
        aborted = TransactionAborted(text, class_of(error), function.operator, entity[1], function.name, at)
        aborted.__cause__ = error
        self.run.aborted, self.run.value, self.run.value_bytes = aborted, None, len(text)
        self.run.writes = {}

    def _open(self, invocation: Invocation) -> _Frame:
        run, target = self.run, invocation.target
        turn = FunctionTurn(run)
        frame = _Frame(
            target,
            turn,
            FunctionContext(self._access, self._draw, turn, target.entity),
            invocation.share,
            self.begun,
            len(run.invocations),
        )
        self._frames.append(frame)
        run.invocations.append(invocation)
        self.begun += 1
        if self.begun > CALLS_MAX:
            raise FunctionFault(f"a transaction makes at most {CALLS_MAX:,} calls")
        return frame

    def _close(self, value: Any) -> Any:
        """A function has returned: its share goes to those that it has called, or comes back."""
        frame = self._frames[-1]
        if frame.turn.interrupt is not None:
            raise frame.turn.interrupt
        if frame.turn.unawaited:
            raise FunctionFault("what ctx.call() returns has to be awaited; without a wait there is ctx.call_async()")
        size = 0
        if value is not None and not are_free((value,)):
            value, size = sized_copy(value, f"what {frame.target.function.title} returned")
        frame.turn.run = None
        calls = frame.turn.calls
        if calls:
            share = frame.share * len(calls)
            self.waiting.extend([Invocation(target, share, frame.at, False) for target in calls])
        else:
            self.acks.add(frame.share)
        if frame.at == 0:
            self.run.value, self.run.value_bytes = value, size
        elif frame.target.arguments:
            size = size_of(frame.target.arguments)
            self.run.held -= size
            if size > KEPT_BYTES_MAX:
                self._forget_arguments(frame)
        self._frames.pop()
        return value

    def _forget_arguments(self, frame: _Frame) -> None:
        """What has returned holds little: ten thousand calls may have had 1 MiB each."""
        invocations, target = self.run.invocations, frame.target
        # In a worker those of an earlier stay are told, and gone.
        if frame.place < len(invocations) and (one := invocations[frame.place]).target is target:
            invocations[frame.place] = one._replace(target=Target(target.function, target.entity, ()))

    def _awaited(self, frame: _Frame, asked: Any) -> Invocation:
        if frame.turn.interrupt is not None:
            raise frame.turn.interrupt
        if type(asked) is not Awaited:
            raise FunctionFault(f"{frame.target.function.title} awaited {type(asked).__name__}; it {_AWAITS}")
        frame.turn.unawaited -= 1
        frame.share *= 2
        return Invocation(asked.target, frame.share, frame.at, True)
