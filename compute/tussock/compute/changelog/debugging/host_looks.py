"""`HostLooks`: the part of `FlowHost` that tells where a flow stands, waits for it, and lets it stand still."""

from abc import abstractmethod
from collections.abc import Callable
from concurrent.futures import Future
from typing import Any, TypeVar

from tussock.compute.applications.runner import Runner
from tussock.compute.changelog.borders.fed_host import FedHost
from tussock.compute.changelog.engine.flow_engine import FlowEngine
from tussock.compute.changelog.engine.requests import FlowAct
from tussock.compute.changelog.loop.location import Location, PausedAt
from tussock.statestore import InvalidOption, WaitTimeout

__all__ = ["HostLooks"]

T = TypeVar("T")

WAIT_SECONDS = 0.005


class HostLooks(FedHost):
    """Of one flow."""

    _engine: FlowEngine | None
    _runner: Runner | None

    @abstractmethod
    def look(self, look: Callable[[FlowEngine], T], timeout: float | None = None) -> T:
        """Look at something between two transactions; raises what that raises, and `WaitTimeout`."""

    @abstractmethod
    def ask(self, what: Any) -> "Future[Any]":
        """Something for the engine; the future has its `Applied`."""

    @abstractmethod
    def answer(self, what: Any) -> Any:
        """What that comes to, once it is durable."""

    @abstractmethod
    def started(self) -> FlowEngine:
        """The engine of the run; `ApplicationStopped` if there is none."""

    @abstractmethod
    def _running(self) -> Runner:
        """The run; `ApplicationStopped` if there is none."""

    @property
    def failure(self) -> Exception | None:
        """What has ended the run; `None` while nothing has."""
        return None if self._runner is None else self._runner.failure

    @property
    def waiting(self) -> int:
        """Requests that have not begun."""
        return self._running().waiting

    def troubles(self) -> list[dict[str, object]]:
        """What the flow waits for, the oldest first."""
        return self._running().troubles.told()

    def counts(self) -> dict[str, int]:
        """Of the input log and of commits."""
        return self._running().counts()

    @property
    def paused_at(self) -> PausedAt | None:
        """Where the flow stands; `None` if it is not paused."""
        engine = self._engine
        return None if engine is None or self._runner is None else engine.paused_at()

    def pause_soon(self) -> None:
        """Let all streams stand still, without waiting until they do."""
        self.started().debugger.pause()

    def resume_soon(self) -> "Future[Any]":
        """Let them go on, without waiting until they do."""
        return self.ask(FlowAct(self.started().debugger.resume))

    def hold(self, stream: str, *, is_held: bool) -> None:
        """Let one stream take nothing from its queue, or take again."""

        def act() -> None:
            self.started().streams[stream].loop.is_held = is_held

        self.answer(FlowAct(act))

    def stream_of_bad(self, number: int) -> str:
        """The stream that a bad transaction is of; `InvalidOption`."""
        row = self.look(lambda engine: engine.kept.bad_rows.find(number))
        if row is None or row["stream"] not in self.streams:
            raise InvalidOption(f"flow {self.name!r} has no bad transaction {number}")
        return str(row["stream"])

    def until(self, timeout: float | None) -> float | None:
        """The moment when that many seconds have passed."""
        return None if timeout is None else self.started().system.monotonic() + timeout

    def wait_a_little(self, until: float | None, timeout: float | None) -> None:
        """Before another look; `WaitTimeout` after that moment."""
        system = self.started().system
        if until is not None and system.monotonic() > until:
            raise WaitTimeout(f"flow {self.name!r}: {timeout:g} s have passed; {self._stands()}")
        system.sleep(WAIT_SECONDS)

    def _stands(self) -> str:
        """What keeps it, for people."""
        at = self.paused_at
        if at is not None:
            return f"it is paused at {at.stream or 'no stream'}: resume() it"
        busy = [one for one in self.started().streams.values() if one.loop.has_work]
        held = [f"{one.plan.name} is held, release() it" for one in busy if one.loop.is_held]
        full = [one.plan.name for one in busy if one.loop.location is Location.OUTPUT]
        waits = [f"{name} is in OUTPUT, and waits for a subscriber or a stream behind it" for name in full]
        rest = [f"{one.plan.name} is in {one.loop.location} with {len(one.loop.queue):,} queued" for one in busy]
        return "; ".join([*held, *waits, *rest][:3]) or "nothing is queued"
