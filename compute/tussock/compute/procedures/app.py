"""`App`: declares an application of procedures, runs it, and takes batches and calls for it."""

from collections.abc import Callable, Sequence
from concurrent.futures import Future
from contextlib import suppress
from typing import TYPE_CHECKING, Any, Literal, TypeVar

import pyarrow as pa

from tussock.compute.applications.arguments import check_seconds, clean_text, is_name
from tussock.compute.applications.borders.pumps import Pumps
from tussock.compute.applications.errors import ApplicationStopped
from tussock.compute.applications.limits import DEFAULT_APPLICATION_LIMITS, ApplicationLimits
from tussock.compute.applications.request_queue import AskedWithin, Nesting
from tussock.compute.applications.runner import Runner
from tussock.compute.applications.startable import Startable, TimedEnd
from tussock.compute.procedures.borders.fed_inputs import FedInputs
from tussock.compute.procedures.borders.pump_access import PumpAccess
from tussock.compute.procedures.borders.requests import BATCH_ID_MAX, Ask, BatchRequest, CallRequest, pack_arguments
from tussock.compute.procedures.declarations import AppTable, Declarations
from tussock.compute.procedures.definitions import Window
from tussock.compute.procedures.engine import Engine
from tussock.compute.procedures.graph import graph_of
from tussock.compute.procedures.partitions.program import PartitionedProgram, partitioned_program
from tussock.compute.procedures.partitions.requirements import columns_of, partition_of
from tussock.compute.procedures.rows import TupleShape, to_bytes, to_table
from tussock.compute.procedures.state import create_tables
from tussock.statestore import InvalidOption, StateStore
from tussock.statestore.base.limits import check_sizes

if TYPE_CHECKING:
    from tussock.compute.procedures.remote.served_app import ServedApp

__all__ = ["App", "AppTable"]

F = TypeVar("F", bound=Callable[..., Any])

TRACE_MAX = 10_000
_ASKED_WITHIN = AskedWithin(
    InvalidOption,
    "application",
    "a procedure that it runs, and would wait for it, and graphs do not nest; emit to a stream whose consumer does the "
    "rest, read with tx.table(), and look, drain and stop from outside",
    "submit() or call_async()",
)


class App(Declarations, Startable):
    """One application: declare, then start, or use it in a `with` block."""

    def __init__(
        self,
        store: StateStore,
        name: str,
        *,
        recovery: Literal["weak", "strong"] = "weak",
        group_commit: float | None = 0.010,
        checkpoint: float = 1.0,
        timeout: float = 30.0,
        input: str | None = None,  # noqa: A002 - the public API's name
        partition_by: str | Sequence[str] | None = None,
        limits: ApplicationLimits = DEFAULT_APPLICATION_LIMITS,
    ) -> None:
        """`recovery="strong"` logs each procedure's run, "weak" only what comes from outside.

        Replies leave once their records are durable, at most `group_commit` seconds after they ran; `None`: each record
        alone. State is committed every `checkpoint` seconds; 0: for each request. `input`: the URL of another place for
        the input log than the store's bucket. A procedure that runs for `timeout` seconds ends its batch.

        With `partition_by`, columns of the batches, the graph runs on the tuples of each key alone, in ascending order
        of the keys, and its procedures see the rows of that key only (`docs/procedures.md`). `limits`: what may wait,
        which tests shrink.
        """
        if not is_name(name):
            raise InvalidOption(
                f"an application is named {name!r:.120}; expected at most 100 letters, digits, '_' and '-', beginning "
                "with a letter or '_'"
            )
        if recovery not in ("weak", "strong"):
            raise InvalidOption(f"application {name!r}: recovery={recovery!r:.100}; expected 'weak' or 'strong'")
        check_seconds(group_commit, f"application {name!r}: group_commit", none=True)
        check_seconds(checkpoint, f"application {name!r}: checkpoint", none=False)
        check_seconds(timeout, f"application {name!r}: timeout", none=False)
        if not timeout:
            raise InvalidOption(f"application {name!r}: timeout={timeout!r}; expected more than 0 s")
        if input is not None and not isinstance(input, str):
            raise InvalidOption(f"application {name!r}: input={input!r:.100}; expected the URL of a place, or None")
        self._recovery = recovery
        self._group_commit = group_commit
        self._checkpoint = checkpoint
        self._input = input
        self._timeout = timeout
        keys = () if partition_by is None else columns_of(name, partition_by)
        if keys and recovery == "strong":
            raise InvalidOption(
                f"application {name!r}: recovery='strong' logs each procedure's run on a batch, and with partition_by "
                "each runs once for each key; expected 'weak'"
            )
        check_sizes(limits, ApplicationLimits)
        super().__init__(store, name, keys, limits)
        self._shapes: dict[str, TupleShape | None] = {}
        self._engine: Engine | None = None
        self._runner: Runner | None = None
        self._pumps: Pumps | None = None
        self._ending = TimedEnd(f"application {name!r}")
        self._nesting: Nesting | None = None
        """Of the newest run, which may be ending."""

    # --- Running -----------------------------------------------------------------------------------------------------

    def start(self) -> None:
        """Recover, and begin to take batches. A second runner of the same application shuts the first one out.

        Tables get the columns that they lack, if the application was stopped in order: else `SchemaMismatch`, and what
        runs goes on. Raises `InvalidOption` for a graph with a circle, `NotDeterministic`, `CorruptLog`, and what
        opening tables raises.
        """
        self._check_declaring()
        self._definitions.check_feeds()
        strong = self._recovery == "strong"
        partition = None
        if self._definitions.partition_by:
            graph = graph_of(self._definitions.procedures, self._definitions.streams)
            partition = partition_of(self._definitions, graph, self._specs())
        engine = Engine(
            self._definitions,
            FedInputs(self._store, self._definitions),
            strong=strong,
            alone=strong and self._group_commit is None,
            timeout=self._timeout,
            partition=partition,
        )
        self._check_tables()
        create_tables(self._store, self._definitions, self._input)
        runner = Runner(
            self._store,
            self.name,
            engine,
            group_commit=self._group_commit,
            checkpoint=self._checkpoint,
            place=self._input,
            asked_within=_ASKED_WITHIN,
            limits=self._definitions.limits,
        )
        runner.start()
        self._shapes = engine.border_shapes()
        access = PumpAccess(self._definitions, engine, runner)
        pumps = Pumps(self.name, self._store, engine.system, runner, self._definitions.outputs, access)
        try:
            if self._definitions.feeds:
                # Where they begin is durable before the start returns.
                runner.submit(Ask(lambda: None)).result()
            pumps.start(access.feeds)
        except BaseException:
            with suppress(Exception):
                pumps.stop(0)
            with suppress(Exception):
                runner.stop()
            raise
        self._engine, self._runner, self._pumps, self._nesting = engine, runner, pumps, runner.nesting

    def stop(self) -> None:
        """Run what was asked for, commit, and end; raises what the application has failed with. Again: nothing.

        From within a procedure, which it would wait for, it raises `InvalidOption`; so do `drain`, requests and looks,
        and all but requests in a callback of a reply. In a process that was forked off: nothing.
        """
        self._stop(None)

    def _leave(self) -> None:
        self._stop(self._definitions.limits.exit_ms / 1000)

    def _stop(self, trouble_seconds: float | None) -> None:
        """`WaitTimeout` after that many seconds in which it waits for its bucket."""
        runner, nesting = self._runner, self._nesting
        if nesting is not None and not nesting.is_forked:
            nesting.check(waits=True)
        if runner is not None:
            self._runner = None
            if runner.nesting.is_forked:
                # Its threads, and all that it is to end, are the parent's.
                return
            assert self._engine is not None
            self._ending.begin(self._engine.system, lambda: self._end(runner), runner, trouble_seconds)
        self._ending.wait(trouble_seconds, in_trouble=True)

    def _end(self, runner: Runner) -> None:
        assert self._pumps is not None
        try:
            self._pumps.stop(self._timeout)
        finally:
            runner.stop()

    def drain(self, timeout: float | None = None) -> None:
        """Wait until all that the feeds' sources have now has run and is durable, and Kafka has what was emitted.

        The application runs on; it is `Client.drain` that ends a node.

        Raises `WaitTimeout` after `timeout` seconds, and what the application has failed with.
        """
        self._waiting_runner()
        assert self._pumps is not None
        self._pumps.drain(timeout)

    def partitioned_program(self, procedure: str | None = None) -> PartitionedProgram:
        """What Spark's tasks run, with batches for that border procedure; `InvalidOption` says why it cannot be."""
        self._check_declaring()
        if self._definitions.grown:
            raise InvalidOption(
                f"application {self.name!r}: tables {sorted(self._definitions.grown)} lack columns that are declared "
                "for them, and Spark's tasks run on tables as they are: give them these by store.alter_table"
            )
        return partitioned_program(self._definitions, procedure, self._timeout, self._specs())

    @property
    def store(self) -> StateStore:
        """The store that has its tables."""
        return self._store

    # --- Clients -----------------------------------------------------------------------------------------------------

    def submit(self, procedure: str, rows: Any, batch_id: int | None = None) -> "Future[Any]":
        """Give a border procedure a batch: Arrow data, a frame or a list of dicts, maybe empty; `None`: the next id.

        The future gets what was replied last, once the batch is durable; of a batch that was given before its first
        reply; `ProcedureError` if it was rolled back, `InvalidBatch` if a later one was given before. Raises
        `InvalidOption` for an unknown procedure, `SchemaMismatch`, and `ApplicationStopped`.
        """
        running, engine = self._running(), self._engine
        running.nesting.check(waits=False)
        assert engine is not None
        if not isinstance(procedure, str) or procedure not in self._shapes:
            known = sorted(self._shapes)
            raise InvalidOption(
                f"application {self.name!r} has no border procedure {procedure!r:.100}; batches go to one of {known}"
            )
        if batch_id is not None and (type(batch_id) is not int or not 1 <= batch_id <= BATCH_ID_MAX):
            raise InvalidOption(f"procedure {procedure!r}: batch_id {batch_id!r:.100}; expected 1 to 2**63-1, or None")
        if procedure in self._definitions.feeds:
            raise InvalidOption(
                f"procedure {procedure!r} gets its batches from a feed, and clients cannot put any between them: give "
                "clients another border"
            )
        shape = self._shapes[procedure]
        if shape is None and type(rows) is list and not rows:
            # No row says which columns there are.
            rows = engine.empty_batch(procedure)
        table = to_table(rows, shape, f"procedure {procedure!r}")
        assert self._pumps is not None
        self._pumps.wait_for_room()
        given = to_bytes(rows, table, f"procedure {procedure!r}")
        return running.submit(BatchRequest(procedure, batch_id, table, given), len(given))

    def call_async(self, name: str, *arguments: Any) -> "Future[Any]":
        """The same as `call`, for a future."""
        running = self._running()
        if not isinstance(name, str) or name not in self._definitions.calls:
            known = sorted(self._definitions.calls)
            raise InvalidOption(f"application {self.name!r} has no call procedure {name!r:.100}; there are {known}")
        packed = pack_arguments(name, arguments)
        return running.submit(CallRequest(name, packed), len(packed))

    def call(self, name: str, *arguments: Any, timeout: float | None = None) -> Any:
        """Run a call procedure between two batches; returns its reply, once what it saw is durable.

        Raises `ProcedureError` if it raised; nothing was written then. `TimeoutError` after `timeout` seconds, with the
        call still on its way.
        """
        self._waiting_runner()
        return self.call_async(name, *arguments).result(timeout)

    def trace(self, last: int = 20) -> list[tuple[str, int | None]]:
        """The newest executions, in order: (procedure, batch), of a call (name, None); none of what was rolled back."""
        if type(last) is not int or not 1 <= last <= TRACE_MAX:
            raise InvalidOption(f"last is {last!r:.100}; expected 1 to {TRACE_MAX:,}")
        return self._look(lambda engine: engine.trace(last))

    def window_rows(self, name: str | Window, *, staged: bool = False) -> pa.Table:
        """The visible tuples of a window, by its name or as declared, oldest first; or those that wait for a slide."""
        found = self._definitions.find_window(name)
        if found is None:
            known = sorted(self._definitions.windows)
            raise InvalidOption(f"application {self.name!r} has no window {name!r:.100}; there are {known}")
        return self._look(lambda engine: engine.window_rows(found, staged=staged))

    def stats(self) -> dict[str, Any]:
        """Counts of this run: `records` and `log_writes` of the input log, `commits` of the store.

        `uncommitted` are the records that no committed epoch holds yet.
        `feeds` has for each procedure `batches`, `rows` and `trouble` (why nothing comes, or empty); `outputs` for each
        stream its `sequence`, and of Kafka `sent`, `lag_rows` and `trouble`.
        """
        runner = self._running()
        assert self._pumps is not None
        return {**runner.counts(), **self._pumps.stats()}

    def pause(self) -> None:
        """Take batches and calls, and run none until `resume`; `trace`, `window_rows` and `stats` answer meanwhile.

        A stop runs what waits. A pause does not outlive the process. Raises `ApplicationStopped`.
        """
        self._running().pause()

    def resume(self) -> None:
        """Run what waits, in the order in which it came, and what comes. Raises `ApplicationStopped`."""
        self._running().resume()

    def status(self) -> dict[str, Any]:
        """How the application is, as JSON can say it: state, counts, graph, windows, newest executions.

        Does not wait for what runs. Raises `ApplicationStopped` if it was never started.
        """
        if self._engine is None:
            raise ApplicationStopped(f"application {self.name!r} was not started")
        runner = self._runner
        failure = None if runner is None else runner.failure
        state = "stopped" if runner is None else "failed" if failure else "paused" if runner.is_paused else "running"
        return {
            "application": self.name,
            "layer": "procedures",
            "state": state,
            "failure": clean_text(str(failure or "")),
            "recovery": self._recovery,
            "trouble": [] if runner is None else runner.troubles.told(),
            "waiting": 0 if runner is None else runner.waiting,
            **({} if runner is None else self.stats()),
            **self._engine.picture(),
        }

    def border_schemas(self) -> dict[str, pa.Schema | None]:
        """What the batches of each border procedure look like; `None`: as they come."""
        return {name: one.schema for name, one in self._definitions.procedures.items() if one.border}

    def served(self) -> "ServedApp":
        """The application as `tussock serve` sees it (extra `service`)."""
        from tussock.compute.procedures.remote.served_app import ServedApp

        return ServedApp(self, self._store.url)

    @property
    def is_running(self) -> bool:
        """Whether it has started, and not stopped."""
        return self._runner is not None

    @property
    def failure(self) -> Exception | None:
        """What the running application has failed with; `None` while nothing has."""
        return None if self._runner is None else self._runner.failure

    # --- Within ------------------------------------------------------------------------------------------------------

    def _check_declaring(self) -> None:
        self._ending.check_over()
        super()._check_declaring()

    def _look(self, look: Callable[[Engine], Any]) -> Any:
        """Look at the engine between two requests; of an application that has stopped, at what it left."""
        engine = self._engine
        if engine is None:
            raise ApplicationStopped(f"application {self.name!r} was not started")
        if self._runner is None:
            if self._nesting is not None:
                self._nesting.check(waits=True)
            self._ending.check_over()
            return look(engine)
        runner = self._waiting_runner()
        return runner.troubles.answer(runner.submit(Ask(lambda: look(engine)), is_look=True), self._timeout)

    def _waiting_runner(self) -> Runner:
        """For what waits: `InvalidOption` where it would wait for itself."""
        runner = self._running()
        runner.check_running()
        runner.nesting.check(waits=True)
        return runner

    def _running(self) -> Runner:
        if self._runner is None:
            raise ApplicationStopped(f"application {self.name!r} is not running; start it, or use it in a `with` block")
        return self._runner
