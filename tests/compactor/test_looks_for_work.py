"""When the background thread looks for work: on the simulator's clock, where only requests and waits take time."""

from collections.abc import Callable
from itertools import pairwise

from simulation.machine.scheduler import Node, Scheduler
from simulation.machine.system import SimSystem
from tussock.compactor.worker import LOOK_COMMITS, LOOK_SECONDS, CompactionWorker

STEP_SECONDS = 0.001


class Watched:
    """A worker whose steps are noted with the time; each takes `seconds`, and `work` of them have found some."""

    def __init__(self) -> None:
        self.scheduler = Scheduler(1)
        self.node = Node("p", 1)
        self.system = SimSystem(self.scheduler, self.node)
        self.looks: list[float] = []
        self.work = 0
        self.seconds = STEP_SECONDS
        self.worker = CompactionWorker(self.system, self._step)
        self._ended = False

    def _step(self) -> bool:
        self.looks.append(self.system.monotonic())
        self.system.sleep(self.seconds)
        self.work -= 1
        return self.work >= 0

    def run(self, story: Callable[[], None]) -> None:
        def main() -> None:
            story()
            self.system.sleep(10)
            self.worker.close()
            self._ended = True

        self.scheduler.spawn(self.node, "main", main)
        try:
            self.scheduler.run(lambda: self._ended, seconds_max=1000, steps_max=1_000_000)
        finally:
            self.scheduler.end()


def commits(watched: Watched, count: int, seconds: float) -> None:
    for _ in range(count):
        watched.worker.nudge()
        watched.system.sleep(seconds)


def test_commits_that_follow_each_other_are_looked_at_together() -> None:
    """Once there was a look after each of them, which found little and took the interpreter from the next commit."""
    watched = Watched()
    watched.run(lambda: commits(watched, 240, 0.002))
    assert len(watched.looks) <= 240 / LOOK_COMMITS + 2


def test_a_commit_after_a_while_is_looked_at_at_once() -> None:
    """Nothing waits for others where none come."""
    watched = Watched()
    watched.run(lambda: commits(watched, 5, 2 * LOOK_SECONDS))
    assert [round(at / LOOK_SECONDS) for at in watched.looks] == [0, 2, 4, 6, 8]


def test_no_commit_waits_longer_for_a_look() -> None:
    """The second of two comes just after a look."""
    watched = Watched()
    watched.run(lambda: commits(watched, 2, 2 * STEP_SECONDS))
    assert len(watched.looks) == 2
    assert watched.looks[1] - watched.looks[0] <= LOOK_SECONDS + STEP_SECONDS


def test_work_goes_on_without_a_pause_where_nobody_commits() -> None:
    """A backlog is worked off as fast as it can be."""
    watched = Watched()
    watched.work = 50
    watched.run(watched.worker.nudge)
    assert len(watched.looks) == 51
    assert watched.looks[-1] - watched.looks[0] < 60 * STEP_SECONDS


def test_long_work_goes_on_beside_commits() -> None:
    """Steps that take longer than the time between two looks follow each other although commits come."""
    watched = Watched()
    watched.work = 20
    watched.seconds = 2 * LOOK_SECONDS
    watched.run(lambda: commits(watched, 100, LOOK_SECONDS / 3))
    gaps = [later - earlier for earlier, later in pairwise(watched.looks[:21])]
    assert max(gaps) < watched.seconds + STEP_SECONDS
