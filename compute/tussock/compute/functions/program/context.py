"""What a function sees: its entity, and the ways to call others and to ask outside."""

import datetime as dt
from collections.abc import Callable, Generator
from typing import Any, NamedTuple, Protocol, TypeVar
from uuid import UUID

from tussock.compute.functions.errors import FunctionFault, Interrupt, TransactionAborted
from tussock.compute.functions.program.draws import TransactionDraws
from tussock.compute.functions.program.operators import Function
from tussock.compute.functions.program.values import Key, size_of

__all__ = [
    "Awaited",
    "Draw",
    "Entity",
    "EntityAccess",
    "FunctionContext",
    "FunctionTurn",
    "GraphRun",
    "Invocation",
    "Target",
]

T = TypeVar("T")

HELD_BYTES_MAX = 16 << 20
"""Of one transaction."""
Entity = tuple[int, Key]
"""Operator, by its number in the program, and key."""
Draw = Callable[[], TransactionDraws]


class EntityAccess(Protocol):
    """The entities as the transactions of this moment find them."""

    def read(self, entity: Entity) -> Any:
        """The stored form of an entity's state, or `None`."""

    def encode(self, entity: Entity, state: Any) -> Any:
        """The stored form of a state; `FunctionFault` if the operator cannot keep it."""

    def decode(self, entity: Entity, stored: Any) -> dict[str, Any]:
        """A copy of a state, for the caller to change."""

    def target(self, operator: str, key: Key, function: str, arguments: tuple[Any, ...]) -> "Target":
        """What is to run; `FunctionFault` if there is no such function, or it does not take these."""


class Target(NamedTuple):
    """A function, the entity that it runs on, and what it is given."""

    function: Function
    entity: Entity
    arguments: tuple[Any, ...]


class Invocation(NamedTuple):
    """One function on one entity, in a call graph."""

    target: Target
    share: int
    """One part of that many of the root's share, as it began."""
    caller: int
    """Its place among the invocations of the run; of the root -1."""
    is_awaited: bool


class GraphRun:
    """What one run of a transaction read, wrote, called and answered."""

    __slots__ = ("aborted", "held", "invocations", "reads", "value", "value_bytes", "writes")

    def __init__(self) -> None:
        self.reads: set[Entity] = set()
        """Entities whose state was looked at, those too that were not there."""
        self.writes: dict[Entity, Any] = {}
        """Stored forms; `None` deletes."""
        self.invocations: list[Invocation] = []
        """Without large arguments of those that have returned."""
        self.held = 0
        """Bytes of arguments of calls that have not returned, about."""
        self.value: Any = None
        self.value_bytes = 0
        """Of the value; 0 of one that is small."""
        self.aborted: TransactionAborted | None = None

    def hold(self, arguments: tuple[Any, ...]) -> None:
        """A call is made; `FunctionFault` if there is no room for it."""
        size = size_of(arguments)
        if self.held + size > HELD_BYTES_MAX:
            raise FunctionFault(
                f"calls that have not returned hold {self.held:,} bytes of arguments, and this one has {size:,}; "
                "at most 16 MiB fit: keep what is large in entities"
            )
        self.held += size


class FunctionTurn:
    """What one function does in a run, for who runs it."""

    __slots__ = ("calls", "interrupt", "run", "unawaited")

    def __init__(self, run: GraphRun) -> None:
        self.run: GraphRun | None = run
        """`None` once it has returned."""
        self.calls: list[Target] = []
        """What runs when this one has returned."""
        self.unawaited = 0
        """Calls that were made by `call` and are not awaited yet."""
        self.interrupt: Interrupt | None = None
        """What has ended the run, which the function may have caught."""

    def end_by(self, interrupt: Interrupt) -> None:
        """The run is over, whatever the function makes of that."""
        self.run, self.interrupt = None, interrupt


class FunctionContext:
    """What a function gets first: its entity, and the calls of others. Valid until the function returns."""

    __slots__ = ("_access", "_draw", "_entity", "_is_asking", "_turn")

    def __init__(self, access: EntityAccess, draw: Draw, turn: FunctionTurn, entity: Entity) -> None:
        self._access = access
        self._draw = draw
        self._turn = turn
        self._entity = entity
        self._is_asking = False
        """Whether the function of a call outside runs."""

    @property
    def key(self) -> Key:
        """The key of the entity."""
        return self._entity[1]

    def get(self) -> dict[str, Any] | None:
        """The entity's state, with what this transaction has put; `None` where there is none. Yours to change."""
        run, entity = self._turn.run, self._entity
        if run is None:
            raise self._ended()
        if entity in run.writes:
            stored = run.writes[entity]
        else:
            run.reads.add(entity)
            try:
                stored = self._access.read(entity)
            except Interrupt as error:
                self._turn.end_by(error)
                raise
        return None if stored is None else self._access.decode(entity, stored)

    def put(self, state: dict[str, Any]) -> None:
        """Replace the entity's state; `FunctionFault` if it is no dict that the operator can keep."""
        run = self._turn.run
        if run is None:
            raise self._ended()
        run.writes[self._entity] = self._access.encode(self._entity, state)

    def delete(self) -> None:
        """Let the entity be gone; if it is not there, nothing happens."""
        self._live().writes[self._entity] = None

    def call_async(self, operator: str, key: Key, function: str, *arguments: Any) -> None:
        """Let another function run, too, when this one has returned; the transaction ends when all have.

        Raises `FunctionFault` if there is no such function, it does not take these arguments, or calls that wait hold
        more than 16 MiB.
        """
        run = self._live()
        target = self._access.target(operator, key, function, arguments)
        if arguments:
            run.hold(target.arguments)
        self._turn.calls.append(target)

    def call(self, operator: str, key: Key, function: str, *arguments: Any) -> "Awaited":
        """`await` it: runs another function now, and returns what that one returned. Raises as `call_async`."""
        run = self._live()
        target = self._access.target(operator, key, function, arguments)
        if arguments:
            run.hold(target.arguments)
        self._turn.unawaited += 1
        return Awaited(target)

    def now(self) -> dt.datetime:
        """The time in UTC, in milliseconds: the same again if this transaction runs again."""
        return self._drawn(TransactionDraws.now)

    def random(self) -> float:
        """A number from 0 to below 1: the same again if this transaction runs again."""
        return self._drawn(TransactionDraws.random)

    def uuid(self) -> UUID:
        """A random UUID (version 4): the same again if this transaction runs again."""
        return self._drawn(TransactionDraws.uuid)

    def call_external(self, key: str, fn: Callable[[str], Any]) -> Any:
        """What `fn(key)` answered, a plain value; a transaction asks once for each key.

        The request and the key are durable before `fn` is called, and its answer is before the transaction's reply.
        After a crash between the two it is called once more, with the same key, by which the other side can tell.
        All transactions wait meanwhile. What `fn` raises, and an answer that cannot be recorded, is recorded, and comes
        as `OutsideCallFailed`, each time that the transaction runs. `fn` does not run again with it, so it cannot use
        this context: `FunctionFault`.
        """
        turn, run = self._turn, self._live()

        def ask(draws: TransactionDraws) -> Any:
            turn.run, self._is_asking = None, True
            try:
                return draws.call_external(fn, key)
            finally:
                turn.run, self._is_asking = run, False

        return self._drawn(ask)

    def _live(self) -> GraphRun:
        run = self._turn.run
        if run is None:
            raise self._ended()
        return run

    def _ended(self) -> BaseException:
        if self._turn.interrupt is not None:
            return self._turn.interrupt
        if self._is_asking:
            return FunctionFault(
                "what call_external calls cannot use ctx, as it does not run again with the transaction: let it return "
                "what the function needs, and use ctx behind it"
            )
        return FunctionFault("the function has returned, and its context with it")

    def _drawn(self, draw: Callable[[TransactionDraws], T]) -> T:
        self._live()
        try:
            return draw(self._draw())
        except Interrupt as error:
            self._turn.end_by(error)
            raise


class Awaited:
    """A call, for `await`."""

    __slots__ = ("target",)

    def __init__(self, target: Target) -> None:
        self.target = target

    def __await__(self) -> Generator["Awaited", Any, Any]:
        return (yield self)
