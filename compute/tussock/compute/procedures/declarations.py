"""What an application has: tables, streams, windows, procedures, feeds, outputs and triggers, as they are declared."""

from collections.abc import Callable, Sequence
from typing import Any, Literal, TypeVar

import pyarrow as pa

from tussock.compute.applications.borders.output import Output
from tussock.compute.applications.durability.table_growth import difference, growth_of
from tussock.compute.applications.feeds.feed import InputFeed
from tussock.compute.applications.kafka.kafka_topic import KafkaTopic
from tussock.compute.applications.limits import ApplicationLimits
from tussock.compute.procedures.definitions import Definitions, TupleStream, Window
from tussock.statestore import InvalidOption, StateStore, TableNotFound
from tussock.statestore.contract.records import TableSpec

__all__ = ["AppTable", "Declarations"]

F = TypeVar("F", bound=Callable[..., Any])


class AppTable:
    """A table of an application, as `App.table` returns it: for `tx.table` and triggers."""

    def __init__(self, name: str) -> None:
        self.name = name

    def __repr__(self) -> str:
        return f"AppTable({self.name!r})"


class Declarations:
    """The declaring half of `App`; it can be added to while the application does not run."""

    def __init__(self, store: StateStore, name: str, partition_by: tuple[str, ...], limits: ApplicationLimits) -> None:
        self.name = name
        self._store = store
        self._definitions = Definitions(name, partition_by, limits)

    @property
    def is_running(self) -> bool:
        """Whether it has started, and not stopped."""
        raise NotImplementedError

    def table(self, name: str, schema: pa.Schema | None = None, primary_key: Sequence[str] | None = None) -> AppTable:
        """A table for the procedures: created if there is none of that name; without a schema it has to be there.

        While the application runs, only it may write to the table. One that lacks nullable columns of the schema, or
        has narrower types, follows at the start. Raises `TableNotFound`, and `InvalidOption` if the table that is there
        has another schema or key, or the key is no list of columns.
        """
        self._check_declaring()
        if primary_key is not None and (isinstance(primary_key, str) or not isinstance(primary_key, Sequence)):
            raise InvalidOption(
                f"application {self.name!r}: table {name!r}: primary_key is {primary_key!r:.100}; expected a list of "
                "column names"
            )
        self._definitions.check_table(name)
        if name in self._store.tables():
            self._check_same(name, schema, primary_key)
        elif schema is None:
            raise TableNotFound(f"application {self.name!r}: no table {name!r} in the store; give its schema", name)
        else:
            keys = list(self._definitions.partition_by)
            # Then the rows of a key are in one virtual node, and a task reads and writes its own nodes.
            aligned = keys and list(primary_key or ())[: len(keys)] == keys
            self._store.create_table(name, schema, primary_key=primary_key, distribution_key=keys if aligned else None)
        self._definitions.tables.add(name)
        return AppTable(name)

    def stream(self, name: str, schema: pa.Schema) -> TupleStream:
        """A stream of tuples between procedures."""
        self._check_declaring()
        return self._definitions.add_stream(name, schema)

    def window(
        self,
        name: str,
        on: TupleStream | str,
        *,
        rows: int | None = None,
        batches: int | None = None,
        slide: int = 1,
        first: Literal["slide", "full"] = "slide",
    ) -> Window:
        """The newest `rows` tuples, or `batches`, of the stream `on`, which become visible `slide` at a time.

        `first="full"`: the first slide waits until the window is full.
        """
        self._check_declaring()
        return self._definitions.add_window(name, on, rows, batches, slide, first)

    def procedure(
        self,
        name: str,
        *,
        border: bool = False,
        consumes: TupleStream | str | Sequence[TupleStream | str] | None = None,
        emits: TupleStream | str | Sequence[TupleStream | str] | None = None,
        writes: str | AppTable | Sequence[str | AppTable] | None = None,
        schema: pa.Schema | None = None,
    ) -> Callable[[F], F]:
        """Declares `fn(tx, batch)`, or with several streams `fn(tx, first, second)`, as a procedure of the graph.

        A `border` is given batches by clients, of `schema` if there is one; others run once each stream that they
        consume has the batch. What `fn` returns is emitted. `writes`: the only tables that it may write to. Streams and
        tables are given as they were declared, or by their names.
        """
        self._check_declaring()

        def declare(fn: F) -> F:
            self._definitions.add_procedure(
                name, fn, border=border, consumes=consumes, emits=emits, writes=writes, schema=schema
            )
            return fn

        return declare

    def feed(self, procedure: str, feed: InputFeed, *, name: str | None = None) -> None:
        """Let a border procedure get its batches from a `TableFeed` or a `KafkaFeed`, and from nobody else.

        Its position is kept under `name`, the procedure's by default: under another name it begins anew.
        """
        self._check_declaring()
        self._definitions.add_feed(procedure, feed, name)

    def output(
        self, stream: TupleStream | str, to: str | AppTable | KafkaTopic, *, keep_rows: int | None = None
    ) -> None:
        """Put the tuples of a stream into a table, of which nothing else is written, or into a topic of Kafka.

        A table has them with `_sequence` and `_position`, its key, in the order of the emission, and is created if it
        is not there; of its newest rows at least `keep_rows` stay, by default all. A topic has each tuple once.
        """
        self._check_declaring()
        if isinstance(to, KafkaTopic):
            if keep_rows is not None:
                raise InvalidOption(f"output to topic {to.topic!r}: keep_rows= is for tables; the topic has its own")
            table = f"{self.name}.{stream if isinstance(stream, str) else getattr(stream, 'name', '')}.outbox"
            self._definitions.add_output(stream, Output(table, None, to))
            return
        table = to.name if isinstance(to, AppTable) else to
        if not isinstance(table, str) or not table:
            raise InvalidOption(f"application {self.name!r}: output to {to!r:.100}; expected a table or a KafkaTopic")
        self._definitions.add_output(stream, Output(table, keep_rows))

    def trigger(self, on: TupleStream | Window | AppTable | str) -> Callable[[F], F]:
        """Declares `fn(tx, rows)` to run for each tuple of a stream or table, or with a window's tuples as it slides.

        Within the transaction that inserts: what the trigger raises undoes it, too. `on` is what was declared, or its
        name: of a table, if there is one of that name, else of a stream or window.
        """
        self._check_declaring()

        def declare(fn: F) -> F:
            at = on.name if isinstance(on, AppTable) else on
            self._definitions.add_trigger(fn, at)
            return fn

        return declare

    def call_procedure(
        self, name: str, *, writes: str | AppTable | Sequence[str | AppTable] | None = None
    ) -> Callable[[F], F]:
        """Declares `fn(tx, *arguments)`, which clients call; it never runs between the procedures of a batch."""
        self._check_declaring()

        def declare(fn: F) -> F:
            self._definitions.add_call(name, fn, writes)
            return fn

        return declare

    def _specs(self) -> dict[str, TableSpec]:
        return {name: self._store.table(name).spec for name in self._definitions.tables}

    def _check_tables(self) -> None:
        """`TableNotFound` for a table that was dropped since it was declared: a replay would run without it."""
        there = set(self._store.tables())
        for name in sorted(self._definitions.tables - there):
            raise TableNotFound(
                f"application {self.name!r}: table {name!r} was dropped since it was declared. Bring it back from a "
                "backup: the input log may have batches that need its rows",
                name,
            )

    def _check_declaring(self) -> None:
        if self.is_running:
            raise InvalidOption(f"application {self.name!r} is running; declare what it has before it starts")

    def _check_same(self, name: str, schema: pa.Schema | None, primary_key: Sequence[str] | None) -> None:
        table = self._store.table(name)
        key = tuple(getattr(table, "primary_key", ()))
        if schema is not None and difference(table.schema, schema):
            if not key or isinstance(growth_of(table.schema, schema, key), str):
                raise InvalidOption(
                    f"application {self.name!r}: table {name!r} is there with another schema: "
                    f"{_difference(table.schema, schema)}; leave the schema out to take the table as it is"
                )
            self._definitions.grown[name] = schema
        if primary_key is not None and tuple(primary_key) != key:
            raise InvalidOption(
                f"application {self.name!r}: table {name!r} is there with the key {list(key)}, and "
                f"{list(primary_key)} is declared"
            )


def _difference(there: pa.Schema, declared: pa.Schema) -> str:
    """The first column in which two schemas differ, in whatever order they have them."""
    places = {name: at for at, name in enumerate(there.names)}
    declared = pa.schema(sorted(declared, key=lambda field: places.get(field.name, len(places))))
    for at, (old, new) in enumerate(zip(there, declared, strict=False), start=1):
        if old.name != new.name:
            return f"column {at} is {old.name!r} in the store, and {new.name!r} is declared"
        if old.type != new.type:
            return f"column {old.name!r} is {old.type} in the store, and {new.type} is declared"
        if old.nullable != new.nullable:
            may, may_not = ("the store", "the declaration") if old.nullable else ("the declaration", "the store")
            return f"column {old.name!r} may be null in {may}, and not in {may_not}"
    only = (there if len(there) > len(declared) else declared).field(min(len(there), len(declared)))
    return f"column {only.name!r} is {'in the store' if len(there) > len(declared) else 'declared'} only"
