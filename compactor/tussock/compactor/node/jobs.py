"""The tasks of a compactor node, cut into parts, and which part a free slot takes next. No I/O, no clock.

A task that was cut into many parts must not keep others waiting until its last one: what waits makes no progress, and
the leader would take it for stuck. So a free slot goes to the task that has the fewest slots, and of several to the
one that came first.
"""

from dataclasses import dataclass, field

from tussock.compactor.parts import TaskPart
from tussock.meta.version.version import CompactionTask
from tussock.statestore.contract.records import SstInfo, TableSpec

__all__ = ["CompactionJob", "Jobs", "SlotWork"]


@dataclass
class CompactionJob:
    """A task that the node was given."""

    task: CompactionTask
    spec: TableSpec
    gc_horizon: str
    oldest_upload: str
    """No output that it uploads has a smaller id."""
    parts: list[TaskPart] | None = None
    """`None` until it is cut."""
    waiting: list[int] = field(default_factory=list)
    """Parts that no slot has taken, the last one being next."""
    outputs: dict[int, tuple[SstInfo, ...]] = field(default_factory=dict)
    rows_read: dict[int, int] = field(default_factory=dict)
    slots: int = 0
    """How many slots are busy with it."""
    error: BaseException | None = None
    """The first one; the job has failed."""
    stopped: str = ""
    """Why it is to be stopped without having failed."""
    lost: bool = False
    """The leader has taken it back."""
    ending: bool = False
    """Nothing of it runs or will run; somebody reports or returns it."""

    @property
    def cancelled(self) -> bool:
        """Whether its parts are to stop at their next chance."""
        return self.lost or bool(self.stopped) or self.error is not None

    def progress(self) -> int:
        """Rows read by all its parts."""
        return sum(self.rows_read.values())

    def all_outputs(self) -> tuple[SstInfo, ...]:
        """Of all parts in the order of their keys: one sorted run."""
        return tuple(sst for _, outputs in sorted(self.outputs.items()) for sst in outputs)


@dataclass
class SlotWork:
    """What a slot is to do."""

    job: CompactionJob
    part: int | None
    """Which part; `None`: cut the task first."""


class Jobs:
    """All tasks of a node. Its user holds a lock around every call."""

    def __init__(self) -> None:
        self._jobs: dict[str, CompactionJob] = {}

    def add(self, job: CompactionJob) -> None:
        """Take a task on."""
        self._jobs[job.task.id] = job

    def get(self, task_id: str) -> CompactionJob | None:
        """The task, if the node has it."""
        return self._jobs.get(task_id)

    def remove(self, job: CompactionJob) -> None:
        """The task has ended."""
        self._jobs.pop(job.task.id, None)

    def all(self) -> list[CompactionJob]:
        """All tasks, oldest first."""
        return list(self._jobs.values())

    def take(self) -> SlotWork | None:
        """The next work for a free slot, which is counted as busy with it from now on; `None` if there is none."""
        ready = [job for job in self._jobs.values() if not job.cancelled and self._has_work(job)]
        if not ready:
            return None
        job = min(ready, key=lambda job: job.slots)
        job.slots += 1
        return SlotWork(job, None if job.parts is None else job.waiting.pop())

    def cut(self, job: CompactionJob, parts: list[TaskPart]) -> int:
        """The task was cut; returns the part with which the slot that cut it goes on."""
        job.parts = parts
        # All keys from the start: slots note their progress without the lock, while others sum it up.
        job.rows_read = dict.fromkeys(range(len(parts)), 0)
        job.waiting = list(range(len(parts) - 1, -1, -1))
        return job.waiting.pop()

    def leave(self, job: CompactionJob) -> bool:
        """A slot is no longer busy with it; whether the caller is to end the task now."""
        job.slots -= 1
        if job.cancelled:
            job.waiting.clear()
        return self.may_end(job)

    def may_end(self, job: CompactionJob) -> bool:
        """Whether the caller is to end the task; asked again, of a task that is being ended, the answer is no."""
        if job.ending or job.slots or (job.waiting and not job.cancelled) or (job.parts is None and not job.cancelled):
            return False
        job.ending = True
        return True

    @staticmethod
    def _has_work(job: CompactionJob) -> bool:
        return bool(job.waiting) or (job.parts is None and job.slots == 0)
