"""The half of `Runtime` about its workers: how many there are, and where they run."""

from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import NamedTuple

from tussock.compute.applications.durability.rehearsal import rehearse
from tussock.compute.applications.durability.troubles import WORKERS, Troubles
from tussock.compute.applications.runner import Runner
from tussock.compute.functions.engine import FunctionEngine
from tussock.compute.functions.epochs.request_records import read_progress
from tussock.compute.functions.errors import WorkerFault
from tussock.compute.functions.feeds.fed_epochs import FedEpochs
from tussock.compute.functions.option_checks import check_workers
from tussock.compute.functions.program.directory import Operators
from tussock.compute.functions.questions import Look
from tussock.compute.functions.site import LocalSite, Site, SiteOptions
from tussock.compute.functions.workers.shipment import code_number
from tussock.compute.functions.workers.staff.lobby import Lobby
from tussock.compute.functions.workers.worker_site import WorkerSite
from tussock.statestore import InvalidOption, StateStore
from tussock.statestore.base.system import System

__all__ = ["ProgramParts", "ProgramWorkers"]


class ProgramParts(NamedTuple):
    """What a worker that runs elsewhere has of a program."""

    name: str
    operators: Operators
    store: StateStore
    options: SiteOptions


class ProgramWorkers(ABC):
    """The number of workers, before the start and while the program runs."""

    def __init__(self, parts: ProgramParts, workers: int) -> None:
        self._parts = parts
        self._workers = workers
        self._lobby: Lobby | None = None
        self._site: Site | None = None
        self._engine: FunctionEngine | None = None

    def scale(self, workers: int) -> None:
        """Go on with that many workers, when they have begun: entities move at a commit.

        Requests are taken and wait meanwhile; none fails. Raises `InvalidOption` for a number that cannot be, and for a
        program without workers; `WorkerFault` if workers cannot begin, or too few have joined after 5 minutes, and then
        all is as it was; `ApplicationStopped`.
        """
        runner, engine, site = self._running_runner(waits=True), self._engine, self._site
        check_workers(workers, 1, f"program {self._parts.name!r}")
        if engine is None or not isinstance(site, WorkerSite):
            raise InvalidOption(
                f"program {self._parts.name!r} runs in this process: start it with workers=1 or more to scale it"
            )
        hired = site.hire(workers)
        try:
            # What the program runs waits for the commit and the move only.
            runner.submit(Look(lambda: engine.move(lambda: site.change(workers, hired))), is_look=True).result()
        finally:
            site.dismiss(hired)
        self._workers = workers

    def begin_with(self, workers: int) -> None:
        """Have that many workers at the start, whatever was said before; `scale` is for a program that runs."""
        self._check_not_running("scale() changes its workers")
        check_workers(workers, 0, f"program {self._parts.name!r}")
        self._workers = workers

    def take_workers(self) -> Lobby:
        """Let the workers be those that join there, by `tussock work`, and not processes that this one starts.

        The start waits up to 5 minutes for as many as the program wants. Raises `InvalidOption` for a program without
        workers, one that runs, and a store in the memory of this process.
        """
        self._check_not_running("its workers are processes here")
        if not self._workers:
            raise InvalidOption(f"program {self._parts.name!r} has no workers: say how many are to join, workers=")
        self._lobby = Lobby(self._parts.name, self._parts.operators, self._parts.store.url)
        return self._lobby

    def worker_processes(self) -> list[int]:
        """Ids of the processes of the workers, by their numbers; none of one elsewhere, or that is being replaced."""
        self._running_runner(waits=False)
        return [process for process in self._site.processes if process] if isinstance(self._site, WorkerSite) else []

    def workers_joined(self) -> dict[str, int]:
        """`workers` that are wanted, and `workers_joined`, at any time; empty if none join."""
        return {} if self._lobby is None else {"workers": self._workers, "workers_joined": self._lobby.joined}

    def parts(self) -> ProgramParts:
        """What a worker that runs elsewhere needs of the program."""
        return self._parts

    def _watch_workers(self, troubles: Troubles) -> None:
        """Tell while too few have joined: nothing runs then, also where nobody has asked for anything yet."""
        lobby = self._lobby
        if lobby is None:
            return

        def tell() -> None:
            if lobby.joined >= self._workers:
                troubles.end(WORKERS)
                return
            told = f"{lobby.joined} of {self._workers} workers have joined; start more by `tussock work`"
            troubles.note(WORKERS, WorkerFault(told))

        lobby.on_change = tell
        tell()

    def _new_site(self) -> Site:
        name, operators, _, options = self._parts
        if self._workers:
            return WorkerSite(name, operators, options, self._workers, self._lobby)
        return LocalSite(operators, options)

    def _system_of_store(self) -> System:
        delta = self._parts.store.delta(self._parts.name)
        delta.close()
        return delta.system

    def _new_engine(self, fed: FedEpochs, site: Site, keep_replies: float) -> FunctionEngine:
        name, operators, _, options = self._parts
        kept_ms, code = int(keep_replies * 1000), self._code()
        return FunctionEngine(name, operators, site, fed, timeout=options.timeout, keep_replies_ms=kept_ms, code=code)

    def _code(self) -> str:
        """Another one where the results may be others; empty where nothing is known."""
        code, options = code_number(self._parts.operators), self._parts.options
        if not code or (options.conflicts == "serializable" and options.lock_phase):
            return code
        return f"{code} {options.conflicts} {'locks' if options.lock_phase else 'waits'}"

    def _rehearse(self, new_fed: Callable[[], FedEpochs], place: str | None) -> None:
        """Others than those that ran last have to give the same results, before anybody is shut out."""
        name, operators, store, options = self._parts
        code = self._code()
        rehearse(
            store,
            name,
            lambda: self._new_engine(new_fed(), LocalSite(operators, options), 0),
            lambda state: not code or read_progress(name, state).code != code,
            place,
        )

    @abstractmethod
    def _running_runner(self, *, waits: bool) -> Runner:
        """`ApplicationStopped` unless the program runs; `FunctionFault` within one of its functions.

        If what is asked `waits` for the program, in a callback of a reply, too.
        """

    @abstractmethod
    def _check_not_running(self, instead: str) -> None:
        """`InvalidOption` if the program runs."""
