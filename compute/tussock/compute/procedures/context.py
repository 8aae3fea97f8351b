"""What a procedure is given: tables, emission, the reply, and what it may draw from outside."""

import datetime as dt
from collections.abc import Callable
from typing import Any, Protocol
from uuid import UUID

from tussock.compute.applications.draws import Draws
from tussock.compute.procedures.definitions import TupleStream
from tussock.compute.procedures.partitions.group_draws import GroupDraws
from tussock.statestore.errors import InvalidOption, StoreClosed

__all__ = ["Effects", "ProcedureContext"]


class Effects(Protocol):
    """What a procedure does to the world around it; the engine's."""

    def open_table(self, name: str) -> Any:
        """A table of the application."""

    def insert(self, tx: "ProcedureContext", stream: TupleStream, rows: Any) -> None:
        """Tuples go into a stream: windows, triggers, and the procedures to come."""

    def wrote(self, tx: "ProcedureContext", table: str, rows: Any) -> None:
        """Rows were written to a table that has triggers."""

    def has_triggers(self, table: str) -> bool:
        """Whether somebody wants to know of writes to the table."""


Wrote = Callable[["ProcedureContext", str, Any], None]


class ProcedureContext:
    """One transaction of one procedure, `tx` by convention; not to be kept beyond it."""

    def __init__(
        self,
        name: str,
        batch_id: int | None,
        effects: Effects,
        draws: Draws | GroupDraws,
        writes: frozenset[str] | None,
        emits: tuple[TupleStream, ...],
    ) -> None:
        self.batch_id = batch_id
        """Of a call `None`."""
        self._name = name
        self._effects = effects
        self._draws = draws
        self._writes = writes
        self._emits = emits
        self._reply: Any = None
        self._has_replied = False
        self._is_over = False
        self.depth = 0
        """Of triggers within triggers."""

    def table(self, name: Any) -> Any:
        """A table of the application, by its name or as `App.table` returned it, as in `StateStore.transaction`."""
        self.check_open()
        name = getattr(name, "name", name)
        table = self._effects.open_table(name)
        is_closed = self._writes is not None and name not in self._writes
        wrote = self._effects.wrote if self._effects.has_triggers(name) else None
        return _OpenTable(self, name, table, is_closed=is_closed, wrote=wrote)

    def emit(self, stream: TupleStream | str, rows: Any) -> None:
        """Put tuples into a stream that the procedure is declared to emit; in the order of the calls."""
        self.check_open()
        name = getattr(stream, "name", stream)
        declared = next((one for one in self._emits if one.name == name), None)
        if declared is None:
            raise InvalidOption(
                f"procedure {self._name!r} emits to {getattr(stream, 'name', stream)!r:.100}, and is declared for "
                f"{[one.name for one in self._emits]}: add it to emits="
            )
        # By its name: in another process a program has other objects.
        self._effects.insert(self, declared, rows)

    def reply(self, value: Any) -> None:
        """What the caller gets; of several replies to one batch the last."""
        self.check_open()
        self._reply, self._has_replied = value, True

    def now(self) -> dt.datetime:
        """The time, in UTC; a replay sees the same."""
        self.check_open()
        return self._draws.now()

    def random(self) -> float:
        """A random number from 0 to below 1; a replay sees the same."""
        self.check_open()
        return self._draws.random()

    def uuid(self) -> UUID:
        """A random UUID; a replay sees the same."""
        self.check_open()
        return self._draws.uuid()

    def call_external(self, fn: Callable[[str], Any], key: str) -> Any:
        """The answer of `fn(key)`, recorded before the transaction replies; a replay sees the same.

        `key` goes to the other side, which has to tell a repeated call by it: after a crash the call is made again.
        """
        self.check_open()
        return self._draws.call_external(fn, key)

    def end(self) -> None:
        """The procedure has returned, or raised: nothing more can be done by this."""
        self._is_over = True

    def check_open(self) -> None:
        """`StoreClosed` after the end; `InvalidOption` from what a call outside calls, which a replay does not call."""
        if self._draws.is_asking:
            raise InvalidOption(
                f"procedure {self._name!r}: what call_external calls cannot use tx, as a replay does not call it: let "
                "it return what the procedure needs, and use tx behind it"
            )
        if self._is_over:
            raise StoreClosed(
                f"procedure {self._name!r} has ended, and so has its transaction: tx, and tables of it, are not to be "
                "kept; nothing was written"
            )

    def check_returned(self) -> None:
        """`InvalidOption` if the procedure went on from a call outside that raised."""
        if self._draws.lost:
            raise InvalidOption(
                f"the outside call {self._draws.lost!r:.100} gave no answer, and procedure {self._name!r} went on from "
                "that, which a replay could not: let it raise, or let the function return what tells of the failure"
            )

    @property
    def replied(self) -> tuple[Any, bool]:
        """The reply, and whether there was one."""
        return self._reply, self._has_replied

    @property
    def name(self) -> str:
        """Of the procedure."""
        return self._name


class _OpenTable:
    """A table for as long as its transaction runs: later writes would be in no record, and gone with the process.

    Writes may be refused, or told to triggers; all else is the table's.
    """

    def __init__(self, tx: ProcedureContext, name: str, table: Any, *, is_closed: bool, wrote: Wrote | None) -> None:
        """`is_closed`: the procedure may not write to it; `wrote`: where rows are told of."""
        self._tx = tx
        self._name = name
        self._table = table
        self._is_closed = is_closed
        self._wrote = wrote

    def __getattr__(self, name: str) -> Any:
        self._tx.check_open()
        return getattr(self._table, name)

    def get(self, *arguments: Any, **named: Any) -> Any:
        """As the table's."""
        self._tx.check_open()
        return self._table.get(*arguments, **named)

    def upsert(self, rows: Any, *arguments: Any, **named: Any) -> None:
        """As the table's."""
        self._check()
        self._table.upsert(rows, *arguments, **named)
        if self._wrote is not None:
            self._wrote(self._tx, self._name, rows)

    def ingest_batch(self, rows: Any, *arguments: Any, **named: Any) -> None:
        """As the table's."""
        self._check()
        self._table.ingest_batch(rows, *arguments, **named)
        if self._wrote is not None:
            self._wrote(self._tx, self._name, rows)

    def delete(self, *arguments: Any, **named: Any) -> None:
        """As the table's."""
        self._check()
        self._table.delete(*arguments, **named)

    def _check(self) -> None:
        self._tx.check_open()
        if self._is_closed:
            raise InvalidOption(
                f"procedure {self._tx.name!r} writes to table {self._name!r}, which is not among its writes=: add it"
            )
