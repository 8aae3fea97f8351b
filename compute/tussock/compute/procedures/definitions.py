"""What a program declares: streams, windows, procedures, triggers and calls; checked as they are declared."""

import re
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Any, TypeVar

import pyarrow as pa

from tussock.compute.applications.arguments import is_name
from tussock.compute.applications.borders.output import Output
from tussock.compute.applications.durability.progress import is_own_table
from tussock.compute.applications.feeds.feed import InputFeed
from tussock.compute.applications.limits import DEFAULT_APPLICATION_LIMITS, ApplicationLimits
from tussock.statestore.base.arguments import check_function
from tussock.statestore.errors import InvalidOption

__all__ = ["CallProcedure", "DeclaredFeed", "Definitions", "Procedure", "Trigger", "TupleStream", "Window"]

T = TypeVar("T")

_LETTERS = re.compile(r"[A-Za-z0-9_]+")
"""Of each application, behind its name and a dot; `state.py` creates them."""
WINDOW_ROWS_MAX = 1_000_000
DEFINITIONS_MAX = 1000
"""Of each kind in one application."""


@dataclass(frozen=True, eq=False)
class TupleStream:
    """Tuples that one procedure emits and others consume, batch by batch."""

    name: str
    schema: pa.Schema


@dataclass(frozen=True, eq=False)
class Window:
    """The newest tuples, or batches, of a stream; new ones become visible by slides."""

    name: str
    on: TupleStream
    size: int
    """Tuples, or batches, that are visible."""
    slide: int
    """Of how many a slide is."""
    by_batches: bool
    waits_until_full: bool
    """Whether the first slide waits for `size` instead of `slide`."""


@dataclass(frozen=True, eq=False)
class Procedure:
    """A procedure of the graph."""

    name: str
    run: Callable[..., Any]
    border: bool
    """Whether clients give it its batches."""
    consumes: tuple[TupleStream, ...]
    emits: tuple[TupleStream, ...]
    writes: frozenset[str] | None
    """Tables that it may write to; `None`: all of the application."""
    schema: pa.Schema | None
    """Of a border's batches; `None`: as they come."""


@dataclass(frozen=True, eq=False)
class Trigger:
    """Runs within the transaction that inserts, or that lets a window slide."""

    name: str
    run: Callable[..., Any]
    on: "TupleStream | Window | str"
    """A table by its name."""


@dataclass(frozen=True, eq=False)
class CallProcedure:
    """A transaction between the batches."""

    name: str
    run: Callable[..., Any]
    writes: frozenset[str] | None


@dataclass(frozen=True, eq=False)
class DeclaredFeed:
    """What gives a border procedure its batches in place of clients."""

    name: str
    """Under which the position is kept."""
    feed: InputFeed


@dataclass
class Definitions:
    """All that one application has declared, by name."""

    application: str
    partition_by: tuple[str, ...] = ()
    """The columns by which batches are divided; none: each runs as a whole."""
    limits: ApplicationLimits = DEFAULT_APPLICATION_LIMITS
    tables: set[str] = field(default_factory=set)
    grown: dict[str, pa.Schema] = field(default_factory=dict)
    """Of tables that lack columns when they are declared, what they are to have."""
    streams: dict[str, TupleStream] = field(default_factory=dict)
    windows: dict[str, Window] = field(default_factory=dict)
    procedures: dict[str, Procedure] = field(default_factory=dict)
    triggers: dict[str, Trigger] = field(default_factory=dict)
    calls: dict[str, CallProcedure] = field(default_factory=dict)
    feeds: dict[str, DeclaredFeed] = field(default_factory=dict)
    """By procedure."""
    outputs: dict[str, Output] = field(default_factory=dict)
    """By stream."""

    def add_stream(self, name: str, schema: object) -> TupleStream:
        """A stream; `InvalidOption` for a name that is taken or a schema that is none."""
        self._check_new(name, "stream")
        if not isinstance(schema, pa.Schema):
            raise InvalidOption(f"stream {name!r}: the schema is {schema!r:.100}; expected a pyarrow.Schema")
        stream = self.streams[name] = TupleStream(name, schema)
        return stream

    def add_window(
        self, name: str, on: object, rows: int | None, batches: int | None, slide: int, first: str
    ) -> Window:
        """A window; `InvalidOption` for sizes that cannot be."""
        self._check_new(name, "window")
        self.check_not_ours(f"{self.application}.{name}", f"window {name!r}")
        if f"{self.application}.{name}" in {*self.tables, *(one.table for one in self.outputs.values())}:
            raise InvalidOption(
                f"window {name!r} is kept in table {self.application + '.' + name!r}, which the application has "
                "declared for itself: give the window another name"
            )
        stream = self.find_stream(on)
        if stream is None:
            raise InvalidOption(f"window {name!r}: on={on!r:.100}; {self._expected_streams()}")
        if (rows is None) == (batches is None):
            raise InvalidOption(f"window {name!r}: give either rows= or batches=, found {rows!r} and {batches!r}")
        size = rows if rows is not None else batches
        unit = "rows" if rows is not None else "batches"
        for value, what in ((size, unit), (slide, "slide")):
            if type(value) is not int or not 1 <= value <= WINDOW_ROWS_MAX:
                raise InvalidOption(f"window {name!r}: {what}={value!r:.100}; expected 1 to {WINDOW_ROWS_MAX:,}")
        assert size is not None
        if slide > size:
            raise InvalidOption(
                f"window {name!r}: slide={slide} is more than {unit}={size}, so some tuples would never be visible; "
                f"expected a slide of at most {size}"
            )
        if first not in ("slide", "full"):
            raise InvalidOption(f"window {name!r}: first={first!r:.100}; expected 'slide' or 'full'")
        window = self.windows[name] = Window(name, stream, size, slide, batches is not None, first == "full")
        return window

    def add_procedure(
        self,
        name: str,
        run: Callable[..., Any],
        *,
        border: bool,
        consumes: object,
        emits: object,
        writes: object,
        schema: pa.Schema | None,
    ) -> None:
        """A procedure; `InvalidOption` unless it is either a border or consumes something."""
        self._check_new(name, "procedure")
        check_function(run, f"procedure {name!r}")
        taken = self._streams(consumes, f"procedure {name!r}: consumes")
        given = self._streams(emits, f"procedure {name!r}: emits")
        if border and taken:
            raise InvalidOption(
                f"procedure {name!r} is a border, whose batches come from clients, and consumes stream "
                f"{taken[0].name!r} of another procedure: graphs do not nest; make it either"
            )
        if not border and not taken:
            raise InvalidOption(f"procedure {name!r} would never run: give it border=True, or the streams it consumes")
        if schema is not None and not isinstance(schema, pa.Schema):
            raise InvalidOption(f"procedure {name!r}: schema={schema!r:.100}; expected a pyarrow.Schema")
        for stream in given:
            other = next((one for one in self.procedures.values() if stream in one.emits), None)
            if other is not None:
                raise InvalidOption(
                    f"procedure {name!r}: stream {stream.name!r} is emitted by {other.name!r} already; a stream has "
                    "one source"
                )
        self.procedures[name] = Procedure(
            name, run, border, taken, given, self._tables(writes, f"procedure {name!r}"), schema
        )

    def add_trigger(self, run: Callable[..., Any], on: object) -> None:
        """A trigger on something that was declared, or on what has that name; it has its function's name, and a number.

        Of the name of a table and a stream the table is meant.
        """
        check_function(run, "a trigger")
        of = getattr(run, "__name__", type(run).__name__)
        letters = "".join(_LETTERS.findall(getattr(run, "__name__", "")))[:80]
        name = f"trigger_{letters}_{len(self.triggers)}"
        self._check_new(name, "trigger")
        if isinstance(on, str) and on in self.tables:
            at: TupleStream | Window | str | None = on
        else:
            at = self.find_stream(on) or self.find_window(on)
        if at is None:
            raise InvalidOption(
                f"application {self.application!r}: trigger {of!r}: on={on!r:.100}; expected a stream, window or table "
                f"of this application, or its name; there are streams {sorted(self.streams)}, windows "
                f"{sorted(self.windows)} and tables {sorted(self.tables)}"
            )
        self.triggers[name] = Trigger(name, run, at)

    def find_stream(self, given: object) -> TupleStream | None:
        """The stream of this application that is given, or has that name."""
        return _named(self.streams, given)

    def find_window(self, given: object) -> Window | None:
        """The same of a window."""
        return _named(self.windows, given)

    def add_call(self, name: str, run: Callable[..., Any], writes: object) -> None:
        """A call procedure."""
        self._check_new(name, "call procedure")
        check_function(run, f"call procedure {name!r}")
        self.calls[name] = CallProcedure(name, run, self._tables(writes, f"call procedure {name!r}"))

    def add_feed(self, procedure: str, feed: Any, name: object) -> None:
        """A feed of a procedure, which may be declared later: `check_feeds` looks at the start."""
        what = f"application {self.application!r}: the feed of {procedure!r:.100}"
        if not hasattr(feed, "open") or not hasattr(feed, "on_bad"):
            raise InvalidOption(f"{what} is {feed!r:.100}; expected a TableFeed or a KafkaFeed")
        if procedure in self.feeds:
            raise InvalidOption(f"{what}: it has a feed already; a procedure has one, so give each another border")
        name = procedure if name is None else name
        if not is_name(name):
            raise InvalidOption(f"{what}: name={name!r:.100}; expected letters, digits, '_' and '-'")
        if any(one.name == name for one in self.feeds.values()):
            raise InvalidOption(f"{what}: there is a feed {name!r} already; give this one another name=")
        self.feeds[procedure] = DeclaredFeed(name, feed)
        if procedure in self.procedures:
            self.check_feeds()

    def check_feeds(self) -> None:
        """`InvalidOption` for a feed of what is no border procedure."""
        for name in self.feeds:
            procedure = self.procedures.get(name)
            if procedure is None or not procedure.border:
                what = "there is none of that name" if procedure is None else "it consumes streams"
                raise InvalidOption(
                    f"application {self.application!r}: a feed gives batches to a border procedure, and of "
                    f"{name!r:.100} {what}: declare it with border=True"
                )

    def add_output(self, stream: object, output: Output) -> None:
        """An output of a stream; `InvalidOption` if it has one."""
        found = self.find_stream(stream)
        if found is None:
            raise InvalidOption(
                f"application {self.application!r}: output of {stream!r:.100}; {self._expected_streams()}"
            )
        stream = found
        if stream.name in self.outputs:
            raise InvalidOption(f"stream {stream.name!r} has an output already")
        if output.table in self.tables or any(one.table == output.table for one in self.outputs.values()):
            raise InvalidOption(
                f"stream {stream.name!r}: table {output.table!r} is used by the application already; an output has a "
                "table that nothing else writes"
            )
        if output.topic is None:
            self.check_table(output.table)
        output.check(stream.name, stream.schema)
        self.outputs[stream.name] = output

    def check_table(self, name: str) -> None:
        """`InvalidOption` for a table of the engine: what it keeps there, nobody else may write."""
        self.check_not_ours(name, f"table {name!r:.120}")
        windows = {f"{self.application}.{window}" for window in self.windows}
        if name in windows | {one.table for one in self.outputs.values()}:
            raise InvalidOption(
                f"application {self.application!r}: table {name!r} is that of a window or an output of it; read it "
                "from the store, and give what procedures write another name"
            )

    def check_not_ours(self, table: str, what: str) -> None:
        """`InvalidOption` if all applications keep something in a table of that name."""
        if is_own_table(self.application, table):
            raise InvalidOption(
                f"application {self.application!r}: {what}: in table {table!r} the engine keeps what it has to know; "
                "expected another name"
            )

    def _check_new(self, name: object, kind: str) -> None:
        if not is_name(name):
            raise InvalidOption(
                f"application {self.application!r}: {kind} {name!r:.100}: expected a name of letters, digits, '_' and "
                "'-' that begins with a letter"
            )
        kinds: dict[str, Iterable[str]] = {
            "stream": self.streams,
            "window": self.windows,
            "procedure": self.procedures,
            "trigger": self.triggers,
            "call procedure": self.calls,
        }
        for other, names in kinds.items():
            if name in names and (
                other == kind
                or {other, kind} <= {"stream", "window"}
                or {other, kind} <= {"procedure", "call procedure", "trigger"}
            ):
                raise InvalidOption(f"application {self.application!r} has a {other} {name!r} already")
        if len(list(kinds[kind])) >= DEFINITIONS_MAX:
            raise InvalidOption(f"application {self.application!r} has {DEFINITIONS_MAX} of the kind {kind} already")

    def _streams(self, given: object, what: str) -> tuple[TupleStream, ...]:
        if given is None:
            return ()
        streams = []
        for one in given if isinstance(given, list | tuple) else (given,):
            stream = self.find_stream(one)
            if stream is None:
                raise InvalidOption(f"{what}={one!r:.100}; {self._expected_streams()}, or a list of them")
            streams.append(stream)
        if len(set(streams)) < len(streams):
            raise InvalidOption(f"{what} has a stream twice")
        return tuple(streams)

    def _expected_streams(self) -> str:
        return f"expected a stream of this application, or its name, of {sorted(self.streams)}"

    def _tables(self, writes: object, what: str) -> frozenset[str] | None:
        if writes is None:
            return None
        names = [writes] if isinstance(writes, str) or hasattr(writes, "name") else writes
        if not isinstance(names, list | tuple | set | frozenset):
            raise InvalidOption(f"{what}: writes={writes!r:.100}; expected names of tables")
        named = frozenset(str(getattr(one, "name", one)) for one in names)
        unknown = sorted(named - self.tables)
        if unknown:
            raise InvalidOption(
                f"{what}: writes={unknown}: not tables of this application; declare them by app.table()"
            )
        return named


def _named(known: dict[str, T], given: object) -> T | None:
    """What is given, if it is one of these, or has the name that is given."""
    name = given if isinstance(given, str) else getattr(given, "name", None)
    found = known.get(name) if isinstance(name, str) else None
    return found if found is given or isinstance(given, str) else None
