"""Takes workers more or less while a program runs."""

from tussock.compute.applications.runner import Runner
from tussock.compute.functions.engine import FunctionEngine
from tussock.compute.functions.option_checks import check_workers
from tussock.compute.functions.questions import Look
from tussock.compute.functions.site import Site
from tussock.compute.functions.workers.worker_site import WorkerSite
from tussock.statestore import InvalidOption

__all__ = ["change_workers"]


def change_workers(program: str, runner: Runner, engine: FunctionEngine, site: Site, workers: int) -> None:
    """Return when that many have the entities; what the program runs waits for the commit and the move only."""
    check_workers(workers, 1, f"program {program!r}")
    if not isinstance(site, WorkerSite):
        raise InvalidOption(f"program {program!r} runs in this process: start it with workers=1 or more to scale it")
    hired = site.hire(workers)
    try:
        runner.submit(Look(lambda: engine.move(lambda: site.change(workers, hired))), is_look=True).result()
    finally:
        site.dismiss(hired)
