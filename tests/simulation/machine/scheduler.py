"""One thread, one clock, one source of choice: everything of a simulated cluster runs from this loop.

The code under test is the production code, which is synchronous: it waits in locks, sleeps and requests. Each of its
threads is a greenlet here, which switches back to the loop wherever it would wait; the loop then takes the next event
off a heap, by simulated time. Latencies, failures and orders of events at one moment come from one `random.Random`,
so a seed is a whole history, and the same seed is the same history.

A process is a `Node`. Its death is that its greenlets are never resumed; a stall (SIGSTOP) is that they are resumed
later. A request that was sent is a separate event: it reaches the bucket whether or not its sender lives.
"""

import hashlib
import heapq
import random
from collections.abc import Callable
from typing import Any, NamedTuple

from greenlet import GreenletExit, getcurrent, greenlet

__all__ = ["Ambush", "Deadlock", "Node", "NodeDead", "Scheduler", "Thread", "Violation"]


class Violation(AssertionError):
    """A guarantee was broken; the text says which and how."""


class Deadlock(Violation):
    """A thread waits and nothing will wake it, or time runs on without an end."""


class NodeDead(BaseException):
    """Raised in what is left of a dead process, so that its clean-up has no effect."""


class Ambush(NamedTuple):
    """A failure at the most delicate moment: when a commit is on its way to the log, or a pin to the bucket."""

    kind: str
    """`halt before` it is sent, `halt after` it was sent, or `silence`: it acts, and nothing comes or goes since."""
    seconds: float


class Node:
    """One process: its clocks, and whether it lives or stands still."""

    def __init__(self, name: str, incarnation: int) -> None:
        self.name = name
        self.incarnation = incarnation
        self.alive = True
        self.resumes_at = 0.0
        """It stands still until then, in the scheduler's seconds."""
        self.wall_offset = 0.0
        """Seconds by which its wall clock is ahead."""
        self.years_until = -1e9
        """It was years ahead until then."""
        self.cut_off_until = 0.0
        """No request of it gets through before then."""
        self.parted_until = 0.0
        """No other node hears of it before then, nor it of them."""
        self.deaf_until = 0.0
        """What it sends gets through, and no answer comes back before then."""
        self.latency = 0.0
        """Usual seconds of its requests either way, at most, where that is more than the network's."""
        self.ambush: Ambush | None = None
        """What happens to it at its next commit or pin."""
        self.calls = 0
        self.crash_at_call = 0
        """The request of that number finds it dead: before it is sent, or when its answer comes; 0: none does."""
        self.crash_after = False
        self.workloads = 0
        """How many of the threads that do its work have not ended."""

    def __repr__(self) -> str:
        return f"{self.name}.{self.incarnation}"


class Thread:
    """A greenlet of a node; satisfies `tussock.statestore.base.system.Task`."""

    def __init__(self, scheduler: "Scheduler", node: Node, name: str, work: Callable[[], None]) -> None:
        self.scheduler = scheduler
        self.node = node
        self.name = name
        self.done = False
        self.turn = 0
        """Counts the waits, so that a wake-up that comes late meets another wait and is no wake-up."""
        self.woken_by: Any = None
        self.waiting_for = ""
        self._joiners: list[tuple[Thread, int]] = []
        self._work = work
        self.greenlet = greenlet(self._run, scheduler.hub)

    def join(self, timeout: float | None = None) -> None:
        """Wait for its end."""
        if not self.done:
            me = self.scheduler.current()
            self._joiners.append((me, me.turn + 1))
            self.scheduler.park(f"end of {self.name}", timeout)

    def is_alive(self) -> bool:
        """Whether it has not ended."""
        return not self.done

    def _run(self) -> None:
        try:
            self._work()
        except (NodeDead, GreenletExit):
            pass
        except Violation as error:
            self.scheduler.fail(error)
        except BaseException as error:
            self.scheduler.fail(Violation(f"thread {self.name} of {self.node} died of {error!r}"), error)
        self.done = True
        for thread, turn in self._joiners:
            self.scheduler.wake(thread, turn)


class Scheduler:
    """The loop. Times are seconds since the start of the simulation."""

    def __init__(self, seed: int, *, verbose: Callable[[str], None] | None = None) -> None:
        self.random = random.Random(seed)
        self.now = 0.0
        self.hub = getcurrent()
        self.over = False
        self.failure: BaseException | None = None
        self.steps = 0
        self._heap: list[tuple[float, float, int, Callable[[], None]]] = []
        self._events = 0
        self._threads: list[Thread] = []
        self._running: Thread | None = None
        self._hash = hashlib.blake2b(digest_size=16)
        self._verbose = verbose

    # --- The trace -----------------------------------------------------------------------------------------------

    def trace(self, text: str) -> None:
        """Add an event to the hash of this history."""
        line = f"{self.now:.6f} {text}"
        self._hash.update(line.encode())
        if self._verbose is not None:
            self._verbose(line)

    def trace_hash(self) -> str:
        """The hash of this history."""
        return self._hash.hexdigest()

    # --- Events --------------------------------------------------------------------------------------------------

    def at(self, delay: float, action: Callable[[], None]) -> None:
        """Do the action after `delay` seconds; events at one moment come in random order."""
        self._events += 1
        heapq.heappush(self._heap, (self.now + delay, self.random.random(), self._events, action))

    def run(self, until: Callable[[], bool], *, seconds_max: float, steps_max: int) -> None:
        """Take events until `until()` holds or a check fails; raises `Deadlock` if neither happens."""
        while self.failure is None and not until():
            if not self._heap or self.now > seconds_max or self.steps > steps_max:
                waiting = [f"{thread.node} {thread.name}: {thread.waiting_for}" for thread in self.waiting()]
                what = "nothing is left to happen" if not self._heap else f"{self.now:.0f} s, {self.steps} steps"
                raise Deadlock(f"the cluster does not come to its end ({what}); waiting: {waiting}")
            at, _, _, action = heapq.heappop(self._heap)
            self.now = max(self.now, at)
            self.steps += 1
            action()
        if self.failure is not None:
            raise self.failure

    def fail(self, error: BaseException, cause: BaseException | None = None) -> None:
        """End the run with this error; the first one counts."""
        if self.failure is None and not self.over:
            error.__cause__ = cause
            self.failure = error

    def waiting(self) -> list[Thread]:
        """The threads of living nodes that have not ended."""
        return [thread for thread in self._threads if not thread.done and thread.node.alive]

    def end(self) -> None:
        """Unwind all greenlets; nothing that they do on their way has an effect."""
        self.over = True
        for thread in self._threads:
            if not thread.greenlet.dead and thread.greenlet:
                thread.greenlet.throw(GreenletExit)
        self._heap.clear()
        self._threads.clear()

    # --- Threads -------------------------------------------------------------------------------------------------

    def spawn(self, node: Node, name: str, work: Callable[[], None]) -> Thread:
        """A thread of the node, which starts a moment later."""
        thread = Thread(self, node, name, work)
        self._threads.append(thread)
        self.at(self.random.random() * 1e-4, lambda: self._resume(thread, 0))
        return thread

    def current(self) -> Thread:
        """The thread that runs; there is one, unless the loop itself runs."""
        if self.over or self._running is None:
            raise NodeDead
        return self._running

    def park(self, what: str, timeout: float | None = None) -> bool:
        """Switch to the loop until woken or for `timeout` seconds; `False` if the time was up."""
        thread = self.current()
        thread.turn += 1
        turn = thread.turn
        if timeout is not None:
            self.at(max(timeout, 0.0), lambda: self._resume(thread, turn, False))
        thread.waiting_for = what
        self.hub.switch()
        if self.over or not thread.node.alive:
            raise NodeDead
        return bool(thread.woken_by)

    def wake(self, thread: Thread, turn: int, delay: float = 0.0) -> None:
        """End that wait of the thread after `delay` seconds."""
        self.at(delay, lambda: self._resume(thread, turn, True))

    def crash(self, node: Node) -> None:
        """The process is no more; if it is the one that runs, this does not return."""
        node.alive = False
        self.trace(f"{node} dies")
        if self._running is not None and self._running.node is node:
            self.hub.switch()
            raise NodeDead

    def stall(self, node: Node, seconds: float) -> None:
        """None of the node's threads goes on for `seconds`; its clocks do."""
        node.resumes_at = max(node.resumes_at, self.now + seconds)
        self.trace(f"{node} stands still for {seconds:.1f} s")

    def halt(self, node: Node, seconds: float) -> None:
        """Stand still here and now; the thread that runs is one of the node's."""
        self.stall(node, seconds)
        self.park("standing still", 0.0)

    def _resume(self, thread: Thread, turn: int, reason: bool = True) -> None:
        if thread.done or thread.turn != turn or not thread.node.alive:
            return
        if thread.node.resumes_at > self.now:
            late = thread.node.resumes_at - self.now + self.random.random() * 1e-3
            self.at(late, lambda: self._resume(thread, turn, reason))
            return
        thread.woken_by = reason
        self._running = thread
        thread.greenlet.switch()
        self._running = None
