"""What a flow offers those who look into it: pause and steps, what a transaction would come to, and how it is."""

from collections.abc import Callable
from typing import Any, Literal, get_args

from tussock.compute.applications.startable import Startable
from tussock.compute.changelog.computations import ByBatch, ByRecord, Computation
from tussock.compute.changelog.debugging.auto_step import AutoStep
from tussock.compute.changelog.debugging.picture import breakpoints_shown, streams_shown
from tussock.compute.changelog.debugging.rates import GrowthRates
from tussock.compute.changelog.debugging.what_if import WhatIf, try_bad, try_taken
from tussock.compute.changelog.engine.requests import FlowAct
from tussock.compute.changelog.flow_host import FlowHost
from tussock.compute.changelog.loop.breakpoints import Breakpoint
from tussock.compute.changelog.loop.debugger import Step
from tussock.compute.changelog.loop.location import PausedAt
from tussock.compute.changelog.stream import Stream
from tussock.statestore import InvalidOption, StateStore

__all__ = ["FlowLooks", "How"]

How = Literal["stream", "downstream", "base"]
STEP_SECONDS_MIN, STEP_SECONDS_MAX = 0.01, 3600.0


class FlowLooks(Startable):
    """The part of a `Flow` that is about looking into it."""

    def __init__(self, host: FlowHost) -> None:
        self._host = host
        self._rates = GrowthRates()
        self._auto_step: AutoStep | None = None

    @property
    def name(self) -> str:
        """What tells the flow from other applications of the store."""
        return self._host.name

    @property
    def store(self) -> StateStore:
        """The store that it runs on."""
        return self._host.store

    # --- Pause and steps ---------------------------------------------------------------------------------------------

    def pause(self) -> None:
        """Let all streams stand still where they are, once their record is computed. Transactions are still taken."""
        # A function that the flow runs is refused before anything pauses.
        self._host.check_asked(waits=True)
        self._host.pause_soon()
        self._host.look(lambda _: None)

    def resume(self) -> None:
        """Go on."""
        self._host.check_asked(waits=True)
        self.stop_auto_step()
        self._host.answer(FlowAct(self._host.started().debugger.resume))

    def step(self, what: Step = "row", stream: Stream | str | None = None) -> PausedAt:
        """Go on by a record, to the end of COMPUTE of a transaction, or to the next location; returns where it stands.

        `stream`: which one is to go on; by default the one that has paused, or the hindmost that has something to do.
        Raises `InvalidOption` unless the flow is paused.
        """
        self._check_step(what)
        name = None if stream is None else self._host.name_of(stream)
        found: PausedAt = self._host.answer(FlowAct(lambda: self._host.started().step(what, name)))
        return found

    def quiesce(self, stream: Stream | str | None = None, how: How = "stream") -> PausedAt:
        """In a pause, let streams work their queues off while all others stand still; returns where it stands then.

        "stream": this one; "downstream": all behind it; "base": it, and all before it. Without a `stream` the one at
        which the flow stands; with "base" all. A breakpoint ends it. Raises `InvalidOption` unless the flow is paused.
        """
        if how not in get_args(How):
            raise InvalidOption(
                f"flow {self.name!r}: quiesce(how={how!r:.100}); expected 'stream', 'downstream' or 'base'"
            )
        at = self._host.look(lambda engine: engine.check_paused("quiesce()"))
        name = at.stream if stream is None else self._host.name_of(stream)
        names = set(self._host.streams) if stream is None and how == "base" else self._around(name, how)
        while not self._host.answer(FlowAct(lambda: self._host.started().quiesce(names))):
            continue
        return self._host.look(lambda engine: engine.check_paused("quiesce()"))

    def auto_step(self, seconds: float, what: Step = "row") -> None:
        """In a pause, make a step each `seconds`, until `stop_auto_step` or `resume`; breakpoints are ignored.

        0.01 to 3,600 seconds. Raises `InvalidOption` unless the flow is paused.
        """
        self._check_step(what)
        if isinstance(seconds, bool) or not isinstance(seconds, int | float):
            raise InvalidOption(f"flow {self.name!r}: auto_step({seconds!r:.100}); expected seconds")
        if not STEP_SECONDS_MIN <= seconds <= STEP_SECONDS_MAX:
            raise InvalidOption(
                f"flow {self.name!r}: auto_step({seconds!r:.100}); expected {STEP_SECONDS_MIN} to "
                f"{STEP_SECONDS_MAX:,.0f} s"
            )
        engine = self._host.started()
        self._host.look(lambda _: engine.check_paused("auto_step()"))
        self.stop_auto_step()
        self._auto_step = AutoStep(
            engine.system,
            f"tussock flow {self.name} steps",
            seconds,
            what,
            lambda: self._host.answer(FlowAct(lambda: engine.step(what, None, asks_breakpoints=False))),
        )

    def stop_auto_step(self) -> None:
        """Make no more steps by itself; no error if it makes none."""
        self._host.check_asked()
        running, self._auto_step = self._auto_step, None
        if running is not None:
            running.stop()

    @property
    def paused_at(self) -> PausedAt | None:
        """Where the flow stands; `None` if it is not paused."""
        return self._host.paused_at

    def wait_paused(self, timeout: float | None = None) -> PausedAt:
        """Return once a breakpoint, or a user, has paused the flow. Raises `WaitTimeout`."""
        self._host.check_asked(waits=True)
        until = self._host.until(timeout)
        while (found := self.paused_at) is None:
            self._host.wait_a_little(until, timeout)
        return found

    @property
    def breakpoints(self) -> list[Breakpoint]:
        """Those of all streams, by their numbers."""
        found = [one for stream in self._host.streams.values() for one in stream.breakpoints]
        return sorted(found, key=lambda one: one.number)

    # --- Transactions again ------------------------------------------------------------------------------------------

    def replay_bad(self, number: int) -> None:
        """Give its stream a bad transaction once more, such as after its function was mended.

        `number` is that of a `BadRecord`. Raises `InvalidOption` for one that is not there, or was skipped.
        """
        if type(number) is not int:
            raise InvalidOption(f"flow {self.name!r}: bad transaction {number!r:.100}; expected a number")
        self._host.answer(FlowAct(lambda: self._host.started().retries.replay(number)))

    def what_if(
        self,
        stream: Stream | str | None = None,
        seq: int | None = None,
        *,
        bad: int | None = None,
        compute: Callable[..., Any] | None = None,
        compute_batch: Callable[..., Any] | None = None,
    ) -> WhatIf:
        """Compute a transaction again, and put it into a copy of the rows that it touches; nothing comes of it.

        Transaction `seq` of what `stream` has taken, with these rows as they were before it; or the bad one of number
        `bad`, with the rows as they are now; an operator with its tables as they were, too. `compute` or
        `compute_batch` stands in for the stream's own function. Raises `HistoryGone` if these rows are not known any
        more, and `InvalidOption`.
        """
        given = [type(one) is int for one in (seq, bad)]
        if (
            sum(given) != 1
            or (bad is None) != (stream is not None)
            or (compute is not None and compute_batch is not None)
        ):
            raise InvalidOption(
                f"flow {self.name!r}: what_if takes a stream and the number of a transaction, or bad= and the number "
                "of a bad one; and one function at most"
            )
        if bad is not None:
            name = self._host.stream_of_bad(bad)
            computation = self._stand_in(name, compute, compute_batch)
            return self._host.look(lambda engine: try_bad(engine, bad, computation)[1])
        assert stream is not None, "one of both is given"
        number = seq or 0
        name = self._host.name_of(stream)
        computation = self._stand_in(name, compute, compute_batch)
        return self._host.look(lambda engine: try_taken(engine, name, number, computation))

    # --- How it is ---------------------------------------------------------------------------------------------------

    @property
    def failure(self) -> Exception | None:
        """What has ended the run; `None` while nothing has."""
        return self._host.failure

    def stats(self) -> dict[str, Any]:
        """Counts of this run: `records` and `log_writes` of the input log, `commits`, `transactions` and `rows` taken.

        `rates` has of each stream how many records it takes and publishes a second. `feeds` and `outputs` by name; what
        is wrong with one at present is its `trouble`.
        """
        self._host.check_asked()
        engine = self._host.started()
        shown = streams_shown(engine, self._rates, self._host.readers)
        return {
            **self._host.counts(),
            "transactions": engine.work.transactions,
            "rows": engine.work.rows,
            **self._host.pump_stats(),
            "rates": {one["name"]: [one["rows_in_per_second"], one["rows_out_per_second"]] for one in shown},
        }

    def status(self) -> dict[str, Any]:
        """How the flow is, as JSON can say it: state, counts, where it stands, streams, breakpoints.

        Does not wait for what runs. Raises `ApplicationStopped` if it does not run.
        """
        self._host.check_asked()
        engine = self._host.started()
        at, failure, steps = self.paused_at, self.failure, self._auto_step
        return {
            "application": self.name,
            "layer": "changelog",
            "state": "failed" if failure is not None else "running" if at is None else "paused",
            "failure": str(failure or ""),
            "trouble": self._host.troubles(),
            "waiting": self._host.waiting,
            **self._host.counts(),
            "flow_transactions": engine.work.transactions,
            "flow_rows": engine.work.rows,
            "paused_at": None if at is None else at._asdict(),
            **self._host.pump_stats(),
            "auto_step": None if steps is None or steps.is_over else {"seconds": steps.seconds, "what": steps.what},
            "streams": streams_shown(engine, self._rates, self._host.readers),
            "breakpoints": breakpoints_shown(self.breakpoints),
        }

    # --- Within ------------------------------------------------------------------------------------------------------

    def _check_step(self, what: object) -> None:
        if what not in get_args(Step):
            raise InvalidOption(f"flow {self.name!r}: step({what!r:.100}); expected 'row', 'trans' or 'location'")

    def _stand_in(
        self, stream: str, compute: Callable[..., Any] | None, compute_batch: Callable[..., Any] | None
    ) -> Computation | None:
        shape = self._host.started().streams[stream].plan.shape
        if compute is not None:
            return ByRecord(shape, compute)
        return None if compute_batch is None else ByBatch(shape, compute_batch)

    def _around(self, name: str, how: How) -> set[str]:
        """The streams that one, and a word, stand for."""
        if how == "stream" or not name:
            return {name}
        engine = self._host.started()
        found: set[str] = set()
        left = [name]
        while left:
            one = engine.streams[left.pop()]
            more = [one.plan.name for one in one.behind] if how == "downstream" else list(one.plan.inputs)
            left += [other for other in more if other not in found]
            found.update(more)
        return found if how == "downstream" else {*found, name}
