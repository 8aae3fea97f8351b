"""`RunningStream`: one stream of a run, with its loop, its histories, and how far it is."""

from tussock.compute.changelog.changes.changes import Changes
from tussock.compute.changelog.changes.transaction import StreamTransaction
from tussock.compute.changelog.engine.anew.beginnings import Beginning
from tussock.compute.changelog.engine.held_back import HeldBack
from tussock.compute.changelog.histories import History
from tussock.compute.changelog.loop.stream_loop import Queued, StreamLoop
from tussock.compute.changelog.plan import StreamPlan

__all__ = ["RunningStream"]

QUEUE_BYTES_MAX = 64 << 20
"""Of one queue; a transaction that is larger is alone in it."""


class RunningStream:
    """One stream of a run."""

    def __init__(self, plan: StreamPlan, loop: StreamLoop) -> None:
        self.plan = plan
        self.loop = loop
        self.taken_history = History(plan.name, "in", plan.history, plan.history_seconds)
        self.history = History(plan.name, "out", plan.history, plan.history_seconds)
        self.behind: list[RunningStream] = []
        """Those that read it."""
        self.taken = self.pushed = 0
        self.rows_in = self.rows_out = self.bad = 0
        """Of this run: records that were taken and published, and transactions that were bad."""
        self.read: dict[str, int] = {}
        self.waiting: dict[int, StreamTransaction] = {}
        """Pushed ones that are queued, for the next commit."""
        self.stored_waiting: set[int] = set()
        self.held: dict[str, HeldBack] = {}
        """By input, what an operator could not compute."""
        self.stored_held: dict[int, HeldBack | None] = {}
        """By number, what the newest commit has of it; `None` where that is not asked for any more."""
        self.begins: dict[str, Beginning] = {}
        """By input that it has not read before, its rows, which come first."""

    def take_in(self, changes: Changes) -> int:
        """A transaction that nobody else has published joins the queue; returns its number."""
        self.pushed += 1
        one = StreamTransaction(self.pushed, changes)
        self.waiting[one.seq] = one
        self.loop.enqueue(Queued("", one))
        return one.seq

    def begin(self, source: "RunningStream") -> None:
        """Let the first part of the rows of an input join the queue, unless it has, or the input was read before."""
        one = self.begins.get(source.plan.name)
        if one is not None and one.part is None:
            self.read_ahead(source)
            self.begin_on(source)

    def read_ahead(self, source: "RunningStream") -> None:
        """Before a part is noted as taken, read the next one, so that nothing stands against it then."""
        newest = source.history.find(source.history.seq)
        assert newest is not None, "the newest transaction is kept"
        self.begins[source.plan.name].read_ahead(newest.seq, newest.time)

    def begin_on(self, source: "RunningStream") -> None:
        """A part was taken: the next one joins the queue. After the last one the input has been read."""
        name = source.plan.name
        part = self.begins[name].next_part()
        if part is None:
            del self.begins[name]
            self.read[name] = source.history.seq
        else:
            self.loop.enqueue(part)

    def forget_waiting(self) -> None:
        """Nothing waits for it any more, nor is held back."""
        self.waiting.clear()
        self.held.clear()
        self.begins.clear()
        self.loop.queue.clear()
        self.loop.queue_bytes = 0

    def has_room(self, coming: int = 0, coming_bytes: int = 0) -> bool:
        """Whether its queue takes one more, besides those that are on their way."""
        loop = self.loop
        return len(loop.queue) + coming < self.plan.queue and loop.queue_bytes + coming_bytes < QUEUE_BYTES_MAX
