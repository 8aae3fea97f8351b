"""Runs a program of functions on a store: in this process, or in several."""

from collections.abc import Callable, Sequence
from concurrent.futures import Future
from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from tussock.compute.applications.borders.pumps import Pumps
from tussock.compute.applications.errors import ApplicationStopped, Full
from tussock.compute.applications.limits import DEFAULT_APPLICATION_LIMITS
from tussock.compute.applications.replies import ReplyFuture
from tussock.compute.applications.runner import Runner
from tussock.compute.applications.startable import Startable, TimedEnd
from tussock.compute.functions.batches.columns_request import columns_request
from tussock.compute.functions.batches.reply_table import argument_rows, together
from tussock.compute.functions.callers import ASKED_WITHIN, Callers, SharedReply
from tussock.compute.functions.declarations import ProgramDeclarations
from tussock.compute.functions.entities.own_tables import create_tables
from tussock.compute.functions.epochs.conflicts import Conflicts
from tussock.compute.functions.epochs.transaction import FunctionRequest
from tussock.compute.functions.feeds.fed_epochs import FedEpochs, Waiting
from tussock.compute.functions.feeds.pump_access import ProgramAccess
from tussock.compute.functions.intake import RequestIntake
from tussock.compute.functions.option_checks import check_options, checked_request_id
from tussock.compute.functions.program.directory import Operators
from tussock.compute.functions.program.operators import Operator
from tussock.compute.functions.program.values import Key
from tussock.compute.functions.questions import Look, NextColumns, NextEpoch
from tussock.compute.functions.site import SiteOptions
from tussock.compute.functions.workers.staff.program_workers import ProgramParts, ProgramWorkers
from tussock.statestore import InvalidOption, StateStore

if TYPE_CHECKING:
    from tussock.compute.functions.remote.served_runtime import ServedRuntime

__all__ = ["Runtime"]


class Runtime(ProgramDeclarations, ProgramWorkers, Startable):
    """One program: give it operators, then start it, or use it in a `with` block. Callers may be in any thread."""

    def __init__(
        self,
        store: StateStore,
        name: str,
        operators: Sequence[Operator],
        *,
        epoch_ms: float = 1,
        epoch_max: int = 1000,
        checkpoint: float = 1.0,
        conflicts: Conflicts = "serializable",
        lock_phase: bool = True,
        group_commit: float | None = 0.010,
        timeout: float = 30.0,
        keep_replies: float = 3600.0,
        cache_bytes: int = 256 << 20,
        input: str | None = None,  # noqa: A002 - the public API's name
        workers: int = 0,
    ) -> None:
        """An epoch ends `epoch_ms` milliseconds after its first request came, or with `epoch_max` transactions.

        Replies leave once the epoch's record is durable, at most `group_commit` seconds after it ran; `None`: each
        record alone. State is committed every `checkpoint` seconds. `conflicts` says between what transactions of an
        epoch: "serializable", "reorder" or "snapshot"; with `lock_phase=False` losers wait for the next epoch. A
        transaction that runs for `timeout` seconds is aborted. Replies to requests with an id are kept for
        `keep_replies` seconds. `cache_bytes`: of entities in memory, about. `input`: the URL of another bucket for the
        input log. `workers`: processes that share the entities and run functions; 0: this one. Raises `InvalidOption`.
        """
        check_options(
            name,
            epoch_ms=epoch_ms,
            epoch_max=epoch_max,
            conflicts=conflicts,
            lock_phase=lock_phase,
            group_commit=group_commit,
            checkpoint=checkpoint,
            timeout=timeout,
            keep_replies=keep_replies,
            cache_bytes=cache_bytes,
            input=input,
            workers=workers,
        )
        self._options = SiteOptions(conflicts, lock_phase, timeout, cache_bytes)
        ProgramDeclarations.__init__(self, store, name, Operators(list(operators)), input)
        ProgramWorkers.__init__(self, ProgramParts(name, self._operators, store, self._options), workers)
        self._epoch_seconds = epoch_ms / 1000
        self._epoch_max = epoch_max
        self._checkpoint = checkpoint
        self._group_commit = group_commit
        self._keep_replies = keep_replies
        self._runner: Runner | None = None
        self._intake: RequestIntake | None = None
        self._ending = TimedEnd(f"program {name!r}")
        self.before_epochs: Callable[[], None] = lambda: None
        """Called before requests are taken for an epoch; a node waits in it for the memory of replies."""

    # --- Running -----------------------------------------------------------------------------------------------------

    def start(self) -> None:
        """Recover, and begin to take requests. A second runtime of this name shuts the first one out.

        Tables follow their operators' columns after an ordered stop. Raises `NotDeterministic`, `CorruptLog`, and what
        opening the store's tables raises; without shutting anybody out `InvalidOption` for another application's name
        or table, `SchemaMismatch` for a table or feed, `TableNotFound`, and `NotDeterministic` for changed functions.
        """
        self._check_not_running("stop it first")
        self._operators.fix()
        fed, site = FedEpochs(self.name, self._feeds, self._outputs), self._new_site()
        grow = create_tables(self._store, self.name, self._operators.all, fed, self._input)
        self._system = self._system_of_store()
        engine = self._new_engine(fed, site, self._keep_replies)
        runner = Runner(
            self._store,
            self.name,
            engine,
            group_commit=self._group_commit,
            checkpoint=self._checkpoint,
            place=self._input,
            asked_within=ASKED_WITHIN,
        )
        callers = Callers()
        intake = RequestIntake(
            self._system, self._epoch_seconds, self._epoch_max, self._begin_epoch, callers.begun, runner.nesting
        )
        access = ProgramAccess(self.name, self._operators, self._feeds, engine, runner, intake, self._put)
        try:
            access.open(self._store, self._system)
            grow()
            self._rehearse(lambda: FedEpochs(self.name, self._feeds, self._outputs), self._input)
            runner.start()
            self._engine, self._runner, self._site, self._callers, self._intake = engine, runner, site, callers, intake
            self._watch_workers(runner.troubles)
            if engine.deferred:
                self._begin_epoch()
            self._pumps = Pumps(self.name, self._store, self._system, runner, self._outputs, access)
            self._pumps.start(access.feeds)
        except BaseException:
            access.close()
            with suppress(Exception):
                self.stop()
            raise

    def stop(self) -> None:
        """Run what was sent, commit, and end; raises what the program has failed with. Again: nothing.

        In a function, and in a callback of a reply, which it would wait for, `FunctionFault`. In a process that was
        forked off, nothing.
        """
        self._stop(None)

    def _leave(self) -> None:
        self._stop(DEFAULT_APPLICATION_LIMITS.exit_ms / 1000)

    def _stop(self, trouble_seconds: float | None) -> None:
        """`WaitTimeout` after that many seconds in which it waits for its bucket."""
        runner, intake, pumps = self._runner, self._intake, self._pumps
        if runner is not None and intake is not None and pumps is not None:
            if runner.nesting.is_forked:
                # Its threads, and all that it is to end, are the parent's.
                self._runner = self._intake = self._pumps = None
                return
            runner.nesting.check(waits=True)
            if not self._ending.is_begun:
                pumps.end_feeds()
                end = partial(self._end, runner, intake, pumps)
                self._ending.begin(self._system, end, runner, trouble_seconds, lambda: intake.waiting)
        self._ending.wait(trouble_seconds, in_trouble=True)

    def _end(self, runner: Runner, intake: RequestIntake, pumps: Pumps) -> None:
        intake.run_out(runner)
        if runner.failure is not None:
            self._callers.refuse(runner.failure)
        try:
            pumps.stop(self._options.timeout)
        finally:
            self._runner = self._intake = self._pumps = None
            try:
                runner.stop()
            finally:
                self._callers.refuse(runner.failure or self._stopped())

    # --- Callers -----------------------------------------------------------------------------------------------------

    def send(
        self, operator: str, key: Key, function: str, *arguments: Any, request_id: str | None = None
    ) -> "Future[Any]":
        """Ask for a transaction: a function on an entity, and all that it calls.

        The future gets what the function returned, once that is durable, or `TransactionAborted` with the text of what
        one of the functions raised. A request with an id that came before gets its first reply, and does not run again.
        Until its epoch begins `cancel` withdraws it, for all who have asked with its id.
        Raises `FunctionFault` for a function, key or arguments that cannot be, `InvalidOption` for an id that is no
        text of 1 to 200 characters, and `ApplicationStopped`.
        """
        nesting = self._running()[0].nesting
        target = self._operators.target(operator, key, function, arguments)
        if request_id is None:
            alone = ReplyFuture(nesting)
            self._put(FunctionRequest(target, None, alone, self._system.monotonic()))
            return alone
        request_id = checked_request_id(request_id)
        reply = SharedReply(nesting)
        first = self._callers.first_with(request_id, reply)
        if first is reply:
            self._put(FunctionRequest(target, request_id, reply, self._system.monotonic()))
        return first

    def send_many(self, operator: str, function: str, keys: Any, columns: Any = None) -> pa.Table:
        """Ask for a transaction for each of many keys, and wait; returns their replies, in the order of the keys.

        `keys`: an Arrow array or a list; `columns`: Arrow data or a dict of columns, one row a key. A batch function
        gets them as columns, up to a million at a time, alone in its epoch. Any other function gets, for each key, the
        row's values as the arguments that the columns are named after; with `*args`, as they come. The table has
        `reply`, null where the request was aborted, and `error`, the text then, else null; of no keys, no rows. Raises
        `FunctionFault`, `ApplicationStopped`, and `TransactionAborted` if the batch function itself raised; then
        nothing is stored. `Full` if there was no room for a minute: then none was sent.
        """
        self._check_asking()
        replies: pa.Table = self.send_many_async(operator, function, keys, columns).result()
        return replies

    def send_many_async(
        self, operator: str, function: str, keys: Any, columns: Any = None, *, bytes_max: int | None = None
    ) -> "Future[Any]":
        """The same as `send_many`, for a future of the table; `MessageTooLarge` if that takes over `bytes_max`.

        Until the first of them begins `cancel` withdraws all.
        """
        runner, _ = self._running()
        number, found = self._operators.function(operator, function)
        if not found.is_batch:
            rows = argument_rows(found, keys, columns)
            # All are checked before the first one is sent.
            targets = [self._operators.target(operator, key, function, one) for key, one in rows]
            requests, table = together(targets, runner.nesting, self._system.monotonic(), bytes_max)
            if requests:
                self._put(*requests)
            return table
        request = columns_request(self._operators, number, found, keys, columns)
        if not request.columns.num_rows:
            return together([], runner.nesting, 0.0)[1]
        return runner.submit(NextColumns(request), request.columns.nbytes + 1)

    def query(self, operator: str, key: Key) -> dict[str, Any] | None:
        """The newest state of an entity in memory, between two epochs; `None` where there is none.

        `WaitTimeout` after twice the program's `timeout` and 5 s.
        """
        runner = self._running_runner(waits=True)
        state: dict[str, Any] | None = runner.troubles.answer(self.query_async(operator, key), self._options.timeout)
        return state

    def query_async(self, operator: str, key: Key) -> "Future[Any]":
        """The same as `query`, for a future of the state."""
        runner, _ = self._running()
        engine = self._engine
        assert engine is not None
        return runner.submit(Look(lambda: engine.query(operator, key)), is_look=True)

    def stats(self) -> dict[str, Any]:
        """Counts of this run, as JSON can say them; in any thread."""
        runner, intake = self._running()
        assert self._engine is not None
        return {**runner.counts(), "waiting": intake.waiting, **self._engine.stats(), **self._pump_stats()}

    def call_graph(self, request_id: str | None = None, *, tid: int | None = None) -> dict[str, Any] | None:
        """One of the newest thousand transactions, by its request's id or its number; `None` for another one.

        `tid`, `request_id`, `epoch`, `phase` (`lock_free`, `locked` or `aborted`), `runs`, `error`, and `calls`: for
        each function `operator`, `key`, `function`, `caller` (its place in this list, -1 for the request itself),
        `share` of the transaction as a fraction, and `is_awaited`. Of a program that has ended, what its last run had.
        """
        if self._engine is None:
            raise self._stopped()
        if (request_id is None) == (tid is None) or (request_id is None and type(tid) is not int):
            raise InvalidOption("call_graph takes the id of a request, or the number of a transaction")
        return self._engine.figures.find(request_id=request_id, tid=tid)

    def pause(self) -> None:
        """Take requests, and begin no epoch until `resume`; `query`, `stats` and `call_graph` answer meanwhile.

        A stop runs what waits. A pause does not outlive the process. Raises `ApplicationStopped`.
        """
        runner, intake = self._running()
        runner.pause()
        intake.hold()

    def resume(self) -> None:
        """Run what waits, and what comes. Raises `ApplicationStopped`."""
        runner, intake = self._running()
        intake.go_on()
        runner.resume()

    def status(self) -> dict[str, Any]:
        """How the program is, as JSON can say it: state, operators, counts, hot keys, newest transactions.

        Does not wait for what runs. Raises `ApplicationStopped` if it was never started.
        """
        if self._engine is None:
            raise self._stopped()
        runner, intake = self._runner, self._intake
        if runner is not None:
            runner.nesting.check_process()
        failure = self.failure
        state = "stopped" if runner is None else "failed" if failure else "paused" if runner.is_paused else "running"
        counts = {} if runner is None else runner.counts()
        return {
            "application": self.name,
            "layer": "functions",
            "state": state,
            "failure": str(failure or ""),
            "conflicts": self._options.conflicts,
            "trouble": [] if runner is None else runner.troubles.told(),
            "waiting": 0 if intake is None else intake.waiting,
            **counts,
            **self._engine.stats(),
            **self._pump_stats(),
            "operators": self._operators.picture(),
            "transactions": self._engine.figures.newest(),
        }

    def served(self) -> "ServedRuntime":
        """The program as `tussock serve` sees it (extra `service`)."""
        from tussock.compute.functions.remote.served_runtime import ServedRuntime

        return ServedRuntime(self, self._store.url)

    @property
    def room(self) -> int:
        """How many more requests can wait; a caller that sends more has to wait itself."""
        return 0 if self._intake is None else self._intake.room

    @property
    def failure(self) -> Exception | None:
        """What the running program has failed with; `None` while nothing has."""
        return None if self._runner is None else self._runner.failure

    # --- Within ------------------------------------------------------------------------------------------------------

    def _begin_epoch(self) -> None:
        runner, intake = self._runner, self._intake
        if runner is None or intake is None:
            return
        callers = self._callers
        reply: Future[Any] = Future()
        reply.add_done_callback(callers.give)

        def take() -> Sequence[Waiting] | None:
            self.before_epochs()
            taken = intake.take()
            return None if taken is None else callers.begun(taken)

        runner.submit_next(NextEpoch(take, intake.put_back, intake.ended), reply)

    def _put(self, *requests: Waiting) -> None:
        """Let them wait for their epochs, all or none; raises `Full` and `ApplicationStopped`."""
        runner, intake = self._runner, self._intake
        if runner is None or intake is None:
            raise self._stopped()
        for one in requests:
            self._callers.expect(one.reply)
        try:
            intake.put(*requests)
        except (Full, ApplicationStopped):
            for one in requests:
                self._callers.forget(one.reply, one.request_id)
            raise
        if runner.failure is not None:
            self._callers.refuse(runner.failure)

    def _check_declaring(self) -> None:
        self._check_not_running("load and declare before its start, or send requests")

    def _check_asking(self) -> None:
        self._running_runner(waits=True)

    def _check_not_running(self, instead: str) -> None:
        self._ending.check_over()
        if self._runner is not None:
            raise InvalidOption(f"program {self.name!r} runs already: {instead}")

    def _running_runner(self, *, waits: bool) -> Runner:
        runner, _ = self._running()
        runner.nesting.check(waits=waits)
        return runner

    def _running(self) -> tuple[Runner, RequestIntake]:
        runner, intake = self._runner, self._intake
        if runner is None or intake is None:
            raise self._stopped()
        runner.check_running()
        runner.nesting.check(waits=False)
        return runner, intake

    def _stopped(self) -> ApplicationStopped:
        return ApplicationStopped(f"program {self.name!r} is not running; start it, or use it in a `with` block")
