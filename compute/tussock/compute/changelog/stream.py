"""`Stream`: declares a keyed stream of changes, takes transactions for it, and lets its loop be looked into."""

import threading
from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING, Any, TypeVar

import pyarrow as pa

from tussock.compute.applications.arguments import check_seconds, is_name
from tussock.compute.applications.errors import ApplicationStopped
from tussock.compute.changelog.bad_rows import BadRecord, Handling
from tussock.compute.changelog.changes.record import ChangeRecord
from tussock.compute.changelog.changes.stream_shape import OLD, OP, StreamShape
from tussock.compute.changelog.changes.transaction import StreamTransaction
from tussock.compute.changelog.computations import ByBatch, ByRecord, Computation, Identity
from tussock.compute.changelog.debugging.conditions import TextCondition
from tussock.compute.changelog.definitions import Definition, of_code
from tussock.compute.changelog.expiry.ages import Ages
from tussock.compute.changelog.expiry.keep import parse_keep
from tussock.compute.changelog.loop.breakpoints import BREAKPOINTS_MAX, Breakpoint, Side
from tussock.compute.changelog.loop.location import Location
from tussock.compute.changelog.loop.stream_loop import BadTransaction, Queued
from tussock.compute.changelog.plan import BadHandler, StreamPlan, handler_of, skips_nothing
from tussock.compute.changelog.subscriptions import BUFFER_MAX, Subscription
from tussock.statestore import InvalidOption, StateStore

if TYPE_CHECKING:
    from tussock.compute.changelog.flow import Flow
    from tussock.compute.changelog.flow_host import FlowHost

__all__ = ["Stream", "computed_stream", "join_flow", "plan_of"]

F = TypeVar("F", bound=Callable[..., Any])

QUEUE_MAX = 100_000
HISTORY_MAX = 1_000_000
BAD_ROWS_MAX = 100_000
"""That are shown at once."""


class Stream:
    """A stream is a table of its name, that is always right, and the changes by which it became so."""

    def __init__(
        self,
        store: StateStore,
        name: str,
        schema: pa.Schema,
        key: Sequence[str],
        *,
        inputs: Sequence["Stream"] = (),
        keep: str | None = None,
        queue: int = 1024,
        history: int = 1000,
        history_seconds: float | None = None,
    ) -> None:
        """Without `inputs` it is fed by `push` or a feed; else by the streams that it reads.

        At most `queue` transactions wait for it. Of what it has taken and published it keeps the newest `history`
        transactions, of the last `history_seconds`. `keep` lets rows go by themselves: "5s" each at that age,
        "1000 rows" the oldest of more, "every 5s" and "every 1000 rows" all at once. Raises `InvalidOption`.
        """
        if not is_name(name):
            raise InvalidOption(
                f"a stream is named {name!r:.120}; expected at most 100 letters, digits, '_' and '-', beginning with a "
                "letter or '_'"
            )
        what = f"stream {name!r}"
        if not isinstance(schema, pa.Schema) or not len(schema):
            raise InvalidOption(f"{what}: schema={schema!r:.100}; expected a pyarrow.Schema with columns")
        columns = tuple(key) if isinstance(key, Iterable) and not isinstance(key, str) else (key,)
        unknown = [column for column in columns if column not in schema.names]
        if not columns or unknown or len(set(columns)) < len(columns):
            raise InvalidOption(f"{what}: key={key!r:.100}; expected some of the columns {schema.names}, each once")
        taken = [column for column in (OP, OLD) if column in schema.names]
        if taken:
            raise InvalidOption(f"{what}: its columns {taken} are what batches add")
        for word, value, most in (("queue", queue, QUEUE_MAX), ("history", history, HISTORY_MAX)):
            if type(value) is not int or not 1 <= value <= most:
                raise InvalidOption(f"{what}: {word}={value!r:.100}; expected 1 to {most:,}")
        check_seconds(history_seconds, f"{what}: history_seconds", none=True)
        inputs = tuple(inputs) if isinstance(inputs, Iterable) else (inputs,)
        wrong = [one for one in inputs if not isinstance(one, Stream)]
        if wrong:
            raise InvalidOption(f"{what}: inputs has {wrong[0]!r:.100}; expected streams")
        self.name = name
        self.store = store
        self.inputs = inputs
        self.schema = pa.schema([field.with_nullable(field.nullable and field.name not in columns) for field in schema])
        """The key's columns are not nullable."""
        self.key = columns
        self._shape = StreamShape(name, self.schema, columns)
        self._keep = parse_keep(keep, name)
        self._queue, self._history, self._history_seconds = queue, history, history_seconds
        self._computation: Computation = Identity(self._shape, is_source=not inputs)
        self._is_declared = False
        self._definition = of_code([one.name for one in inputs], columns, self.schema)
        self._handler: Handling | BadHandler = "dead-letter"
        self._breakpoints: list[Breakpoint] = []
        self._changing = threading.Lock()
        """Held while breakpoints change."""
        self._flow: Flow | None = None
        self._host: FlowHost | None = None

    def __repr__(self) -> str:
        return f"Stream({self.name!r})"

    @property
    def flow(self) -> "Flow | None":
        """That it is part of."""
        return self._flow

    # --- Declaring ---------------------------------------------------------------------------------------------------

    def compute(self, function: F) -> F:
        """A decorator: `function(row)` returns records, one record or `None`, for each record that comes in."""
        self._declare(ByRecord(self._shape, _checked(function, self.name)))
        return function

    def compute_batch(self, function: F) -> F:
        """A decorator: `function(batch)` returns Arrow data with `_op`, or `None`, for all records of a transaction.

        A batch has the columns of its input, `_op`, and `_old`: an update block is two rows, of which the second has
        the old values. Each record has to come to the same whatever others are in the batch.
        """
        self._declare(ByBatch(self._shape, _checked(function, self.name)))
        return function

    def on_bad_row(self, handler: Handling | BadHandler) -> None:
        """What becomes of a transaction that cannot be: a word, or a function of a `BadRecord` that returns one.

        "dead-letter", the default: it is kept, for `replay_bad`; "skip": only why it was bad is kept; "stop": the flow
        stops, and meets it again when it starts. An operator leaves nothing out: with "dead-letter" it holds the
        transaction back, and computes it together with what comes; "skip" is `InvalidOption`.
        """
        if handler == "skip" and self._computation.is_view:
            raise InvalidOption(skips_nothing(self.name))
        handler_of(self.name, handler, self._bad_record)
        self._check_asked()
        self._handler = handler

    def _plan(self) -> StreamPlan:
        return StreamPlan(
            self.name,
            self._shape,
            tuple(one.name for one in self.inputs),
            self._computation,
            self._queue,
            self._history,
            self._history_seconds,
            None if self._keep is None else Ages(self._shape, self._keep),
            lambda taken, why: handler_of(self.name, self._handler, self._bad_record)(taken, why),
            self._definition,
        )

    def _declare(self, computation: Computation) -> None:
        self._check_asked()
        if self._is_declared:
            raise InvalidOption(f"stream {self.name!r} has a function already; declare another stream behind it")
        if self._host is not None and self._host.is_running:
            raise InvalidOption(f"stream {self.name!r}: its flow runs; stop it first")
        self._computation, self._is_declared = computation, True

    def _bad_record(self, taken: Queued, why: BadTransaction) -> BadRecord:
        seq = taken.transaction.seq
        return BadRecord(0, self.name, taken.source, seq, why.row, why.at, why.cause, is_kept=True)

    # --- Clients -----------------------------------------------------------------------------------------------------

    def push(
        self, records: Any, wait: bool = True, timeout: float | None = None, *, request_id: str | None = None
    ) -> Any:
        """One transaction: records, one record, or Arrow data with a column `_op`.

        Returns a `concurrent.futures.Future` of its number, once it is durable; of one alone that is when it went
        through all streams. With a full queue it waits for room, at most `timeout` seconds, or with `wait=False` raises
        `Full`. With a `request_id`, 1 to 64 letters, digits, `_` and `-`, it may be pushed again, within an hour: it is
        taken once, and has its first number. Raises `SchemaMismatch`, `WaitTimeout`, `ApplicationStopped`, and
        `InvalidOption` for a stream that has inputs.
        """
        return self._running().push(self, records, wait=wait, timeout=timeout, request_id=request_id)

    def subscribe(
        self, from_seq: int | None = 0, *, blocks: bool = False, buffer: int = 1024, timeout: float | None = None
    ) -> Subscription:
        """What the stream publishes from a number on, each transaction once it is durable; `None`: what comes now.

        0 and 1: from the first one. A record is an INSERT, UPDATE or DELETE; with `blocks` an update is two, the block
        and the row as it was. The stream waits for a subscriber that is `buffer` transactions behind. `timeout`:
        seconds after which the iterator raises `WaitTimeout` if nothing comes. Raises `HistoryGone`.
        """
        if from_seq is not None and (type(from_seq) is not int or from_seq < 0):
            raise InvalidOption(f"stream {self.name!r}: from_seq={from_seq!r:.100}; expected 0 and up, or None")
        if type(buffer) is not int or not 1 <= buffer <= BUFFER_MAX:
            raise InvalidOption(f"stream {self.name!r}: buffer={buffer!r:.100}; expected 1 to {BUFFER_MAX:,}")
        return self._running().subscribe(self.name, from_seq, blocks=blocks, buffer=buffer, timeout=timeout)

    def in_history(self) -> list[StreamTransaction]:
        """The newest transactions that it has taken, and that were good; the newest last."""
        return self._running().look(lambda engine: engine.streams[self.name].taken_history.all())

    def out_history(self) -> list[StreamTransaction]:
        """The newest transactions that it has published, with update blocks; the newest last."""
        return self._running().look(lambda engine: engine.streams[self.name].history.all())

    def get(self, key: Any, *, timeout: float | None = None) -> dict[str, Any] | None:
        """The row of a key as it is now, be it committed or not; `WaitTimeout` after `timeout` seconds."""
        check_seconds(timeout, f"stream {self.name!r}: timeout", none=True)
        return self._running().look(lambda engine: engine.row(self.name, key), timeout)

    def snapshot(self, *, timeout: float | None = None) -> tuple[list[dict[str, Any]], int]:
        """All rows as they are now, and the number of the newest transaction in them: subscribe from the next one.

        Raises `WaitTimeout` after `timeout` seconds.
        """
        check_seconds(timeout, f"stream {self.name!r}: timeout", none=True)
        return self._running().look(
            lambda engine: (engine.rows(self.name), engine.streams[self.name].history.seq), timeout
        )

    def bad_rows(self, last: int = 1000, before: int | None = None) -> list[BadRecord]:
        """The newest transactions that were bad, with the number of the record and why; the newest last.

        `before`: only those with lower numbers, such as that of the first one of the newer page.
        """
        if type(last) is not int or not 1 <= last <= BAD_ROWS_MAX:
            raise InvalidOption(f"stream {self.name!r}: last={last!r:.100}; expected 1 to {BAD_ROWS_MAX:,}")
        if before is not None and (type(before) is not int or not 1 <= before < 1 << 63):
            raise InvalidOption(f"stream {self.name!r}: before={before!r:.100}; expected the number of a bad one")
        return self._running().look(lambda engine: engine.kept.bad_rows.list(self.name, last, before))

    # --- Looking into the loop ---------------------------------------------------------------------------------------

    @property
    def location(self) -> Location | None:
        """Where the stream is in its loop; `None` if its flow does not run."""
        loop = self._loop()
        return None if loop is None else loop.location

    @property
    def in_trans(self) -> StreamTransaction | None:
        """The transaction that is worked on; `None` where there is none."""
        loop = self._loop()
        return None if loop is None else loop.in_trans

    @property
    def in_row(self) -> ChangeRecord | None:
        """The record that is computed, or is next."""
        loop = self._loop()
        return None if loop is None else loop.in_row

    @property
    def out_row(self) -> list[ChangeRecord] | None:
        """What the newest record was computed to; until then, of the record before it."""
        loop = self._loop()
        return None if loop is None else loop.out_row

    @property
    def out_trans(self) -> list[ChangeRecord] | None:
        """What was computed so far of the transaction; `None` from PUT on."""
        loop = self._loop()
        return None if loop is None else loop.out_trans

    @property
    def queued(self) -> int:
        """Transactions that wait for the stream."""
        loop = self._loop()
        return 0 if loop is None else len(loop.queue)

    def hold(self) -> None:
        """Take nothing from the queue until `release`; what is worked on comes to its end."""
        self._running().hold(self.name, is_held=True)

    def release(self) -> None:
        """Take transactions again."""
        self._running().hold(self.name, is_held=False)

    def break_on(self, side: Side, condition: Callable[..., Any] | str | None = None, every: int = 1) -> Breakpoint:
        """Pause the flow before a record is computed ("input"), or after that ("output").

        `condition(row)` is asked of the input record, and `condition(row, out_row)` of both sides; a text such as
        "v > 100 and old.v <= 100" does without a function; `None`: each record. `every`: pause at each n-th record for
        which it holds. It does not outlive the process. Raises `InvalidOption`.
        """
        self._check_asked()
        text = condition if isinstance(condition, str) else ""
        if isinstance(condition, str):
            schemas = [one.schema for one in self.inputs or (self,)]
            columns = {name for schema in schemas for name in schema.names}
            read = TextCondition(condition, columns, self.schema.names if side == "output" else None)
            condition = (lambda row, out_row: read.holds(row, out_row)) if side == "output" else read.holds_alone
        number = len(self._breakpoints) + 1 if self._host is None else self._host.next_breakpoint()
        one = Breakpoint(self._remove_breakpoint, number, self.name, side, condition, every, text)
        with self._changing:
            if len(self._breakpoints) >= BREAKPOINTS_MAX:
                raise InvalidOption(f"stream {self.name!r} has {BREAKPOINTS_MAX:,} breakpoints already; remove some")
            self._breakpoints = [*self._breakpoints, one]
            self._show_breakpoints()
        return one

    @property
    def breakpoints(self) -> list[Breakpoint]:
        """Those that are there."""
        return list(self._breakpoints)

    def _remove_breakpoint(self, one: Breakpoint) -> None:
        """Forget one; no error if it is not there."""
        with self._changing:
            self._breakpoints = [other for other in self._breakpoints if other is not one]
            self._show_breakpoints()

    def _show_breakpoints(self) -> None:
        loop = self._loop()
        if loop is not None:
            loop.breakpoints = self._breakpoints

    def _loop(self) -> Any:
        return None if self._host is None else self._host.loop_of(self.name)

    def _check_asked(self) -> None:
        """`InvalidOption` in a function that its flow runs."""
        if self._host is not None:
            self._host.check_asked()

    def _running(self) -> "FlowHost":
        if self._host is None:
            raise ApplicationStopped(f"stream {self.name!r} is in no flow; make a Flow with it, and start it")
        return self._host


# --- For the machinery, which is no part of what users see ------------------------------------------------------------


def computed_stream(
    name: str,
    inputs: Sequence[Stream],
    schema: pa.Schema,
    key: Sequence[str],
    make: Callable[[StreamShape], Computation],
    what: Definition,
) -> Stream:
    """One with a ready-made computation, which `make` makes for its shape; in the store of its inputs.

    Raises `InvalidOption`.
    """
    one = Stream(inputs[0].store, name, schema=schema, key=key, inputs=inputs)
    one._declare(make(one._shape))  # noqa: SLF001 - of this module
    one._definition = what  # noqa: SLF001 - of this module
    return one


def plan_of(stream: Stream) -> StreamPlan:
    """A stream as the engine needs it."""
    return stream._plan()  # noqa: SLF001 - of this module


def join_flow(stream: Stream, flow: "Flow", host: "FlowHost") -> None:
    """It is part of this one."""
    stream._flow = flow  # noqa: SLF001 - of this module
    stream._host = host  # noqa: SLF001 - of this module
    for one in stream._breakpoints:  # noqa: SLF001 - of this module
        # Until now they had numbers of their stream, and others have the same.
        one.number = host.next_breakpoint()


def _checked(function: Any, stream: str) -> Any:
    if not callable(function):
        raise InvalidOption(f"stream {stream!r}: {function!r:.100} is no function")
    return function
