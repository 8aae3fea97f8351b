"""A participant under seeded interleavings: whatever comes between what, every row commits once and no step in part.

Four take turns by chance: the coordinator, which sends barriers, commits and aborts; the wire, which loses events; the
store's thread, which may be interrupted in the middle of a todo; and the worker, which works in steps of three rows,
leaves, stays and dies. Leaders change. `test_barriers_property.py` runs the machine against the real coordinator's.
"""

import random
from collections import Counter
from collections.abc import Callable
from typing import Any

import pytest

from tussock.statestore.checkpoint.participant import (
    Participant,
    begin_leaving,
    begin_step,
    can_hear,
    caught_up,
    done,
    end_step,
    hear_abort,
    is_held,
    next_todo,
    react,
    stay,
    take,
)
from tussock.statestore.contract.barriers import BarrierEvent

STEP_ROWS = 3
TURNS = 400


class Job:
    """A coordinator with one participant, and the store that it commits to."""

    def __init__(self) -> None:
        self.store: list[int] = []
        self.clock = 0
        self.generation = self.fresh()
        self.epoch = self.fresh()
        self.barrier = 0
        self.committed = (0, 0)
        self.flight: tuple[int, int] | None = None
        """The barrier under way and the epoch that it ends."""
        self.collected: list[int] | None = None
        self.wire: list[BarrierEvent] = []

    def fresh(self) -> int:
        self.clock += 1
        return self.clock

    def send(self, what: Any, barrier: int, epoch: int, **fields: Any) -> None:
        told = {"generation": self.generation, "next_epoch": self.epoch, "committed_epoch": self.committed[1], **fields}
        self.wire.append(BarrierEvent(what=what, barrier=barrier, epoch=epoch, **told))

    def greet(self) -> None:
        """Say where the participant should be, and the barrier again that it has not collected."""
        self.send("started", self.committed[0], self.flight[1] if self.flight else 0)
        if self.flight and self.collected is None:
            self.send("barrier", *self.flight)

    def begin_barrier(self) -> None:
        if self.flight is None:
            self.barrier += 1
            self.flight, self.epoch = (self.barrier, self.epoch), self.fresh()
            self.send("barrier", *self.flight)

    def collect(self, generation: int, barrier: int, rows: list[int]) -> bool:
        if self.flight is None or (generation, barrier) != (self.generation, self.flight[0]):
            return False
        self.collected = rows
        return True

    def commit(self) -> None:
        if self.flight is not None and self.collected is not None:
            self.store += self.collected
            self.committed = self.flight
            self.flight = self.collected = None
            self.send("committed", *self.committed, next_epoch=0)

    def abort(self) -> None:
        barrier, epoch = self.flight or (0, 0)
        self.flight, self.collected, self.epoch = None, None, self.fresh()
        self.send("aborted", barrier, epoch, reason="chance")

    def begin_anew(self) -> None:
        """A new leader, or a new process in the participant's place: a new generation."""
        self.flight = self.collected = None
        self.generation, self.epoch = self.fresh(), self.fresh()
        self.wire.clear()
        self.greet()


class World:
    """One run; each method that is a turn does nothing where its actor has nothing to do."""

    def __init__(self, seed: int) -> None:
        self.dice = random.Random(seed)
        self.restores = self.dice.random() < 0.5
        self.trouble = self.dice.choice([0.02, 0.1])
        self.job = Job()
        self.count: Counter[str] = Counter()
        self.begin_process()
        self.job.greet()

    def begin_process(self) -> None:
        self.state = Participant(restores=self.restores)
        self.buffer: dict[int, list[int]] = {}
        """Rows of the epochs that are open or sealed, and not committed or given up."""
        self.sealed: dict[int, int] = {}
        """Epochs by the barrier that sealed them."""
        self.position = 0
        self.step: list[int] = []
        self.middle = False
        """The store's thread has begun its todo."""

    # --- The coordinator and the wire -----------------------------------------------------------------------------

    def barrier(self) -> None:
        self.count["barrier while a step is under way"] += self.job.flight is None and bool(self.state.steps)
        self.job.begin_barrier()

    def commit(self) -> None:
        self.job.commit()

    def abort(self) -> None:
        self.count["abort while a barrier waits"] += bool(self.state.todos)
        self.job.abort()

    def break_subscription(self) -> None:
        self.job.wire.clear()
        self.job.greet()

    def change_leader(self) -> None:
        """What became of a barrier that was collected is for the log to say."""
        self.count["leader lost in the middle of a todo"] += self.middle
        if self.dice.random() < 0.5:
            self.job.commit()
        self.job.barrier = max(self.job.committed[0], self.state.seen)
        self.job.begin_anew()

    def restart(self) -> None:
        self.count["restart in a step"] += bool(self.state.steps)
        if self.dice.random() < 0.5:
            self.job.commit()
        self.begin_process()
        self.job.begin_anew()

    # --- The store's thread ---------------------------------------------------------------------------------------

    def hear(self) -> None:
        if self.job.wire and can_hear(self.state) and not self.middle:
            before = self.state
            self.state = react(before, self.job.wire.pop(0))
            if before.todos and self.state.todos[-1].what == "aborted":
                assert [todo.what for todo in self.state.todos] == ["aborted"]
                self.count["abort instead of a barrier"] += 1

    def begin_todo(self) -> None:
        if self.middle or next_todo(self.state) is None:
            return
        self.state, self.middle = take(self.state), True
        todo = self.state.todos[0]
        if todo.what in ("barrier", "aborted"):
            assert not self.state.steps, "an epoch ends in the middle of a step"
        for epoch in todo.epochs if todo.what in ("committed", "aborted") else ():
            rows = self.buffer.pop(epoch, [])
            assert todo.what == "aborted" or set(rows) <= set(self.job.store), "told committed, is not"
        if todo.what in ("start", "committed", "aborted"):
            self.state = caught_up(self.state)
            if self.restores and todo.what != "committed":
                self.position = len(self.job.store)

    def finish_todo(self) -> None:
        if not self.middle:
            return
        todo = self.state.todos[0]
        if todo.what == "barrier":
            assert self.state.phase in ("working", "leaving", "saved"), "the worker has no state to save"
            self.sealed[todo.event.barrier] = todo.event.epoch
        self.state, self.middle = done(self.state), False
        if todo.what == "collect":
            rows = list(self.buffer.get(self.sealed[todo.event.barrier], []))
            if not self.job.collect(self.state.generation, todo.event.barrier, rows):
                self.break_subscription()

    # --- The worker -----------------------------------------------------------------------------------------------

    def hear_abort(self) -> None:
        self.state = hear_abort(self.state)

    def read_back(self) -> None:
        if self.state.phase == "restoring":
            self.position = len(self.job.store)

    def begin_step(self) -> None:
        if self.state.phase in ("restoring", "working") and not self.state.steps and not is_held(self.state):
            self.read_back()
            self.state = begin_step(self.state)
            self.step = [self.state.open_epoch]

    def write(self) -> None:
        """A row of the step, at the epoch that the step was given."""
        if self.state.steps and len(self.step) <= STEP_ROWS:
            epoch = self.step[0]
            assert epoch == self.state.open_epoch
            assert epoch not in self.sealed.values(), "a row comes to a sealed epoch"
            self.buffer.setdefault(epoch, []).append(self.position)
            self.step.append(self.position)
            self.position += 1

    def end_step(self) -> None:
        if self.state.steps and len(self.step) > STEP_ROWS:
            self.state = end_step(self.state)

    def leave(self) -> None:
        if self.state.phase in ("restoring", "working") and not self.state.steps:
            self.count["leave while a barrier is passed"] += is_held(self.state)
            self.read_back()
            self.state = begin_leaving(self.state)

    def look_up(self) -> None:
        """What `leave` does when it is woken."""
        if self.state.phase == "saved":
            self.count["saved"] += 1
            assert self.job.store == list(range(self.position)), "it leaves with all that it wrote"
            self.state = stay(self.state)
        elif self.state.phase == "recalled":
            self.count["recalled"] += 1
            self.state = hear_abort(self.state)

    def stay(self) -> None:
        self.state = stay(self.state)

    # --- Turns ----------------------------------------------------------------------------------------------------

    def turn(self) -> None:
        often: list[Callable[[], None]] = [self.hear, self.begin_todo, self.finish_todo, self.begin_step, self.write]
        often += [self.write, self.end_step, self.barrier, self.commit, self.hear_abort, self.look_up]
        seldom = [self.abort, self.break_subscription, self.change_leader, self.restart, self.stay, *[self.leave] * 5]
        self.dice.choice(seldom if self.dice.random() < self.trouble else often)()

    def check(self) -> None:
        assert self.job.store == list(range(len(self.job.store))), "each row once, in order"
        assert len(self.job.store) % STEP_ROWS == 0, "a step commits as a whole"
        assert self.state.steps in (0, 1)
        if self.state.phase != "joining" and can_hear(self.state):
            assert self.state.open_epoch == (self.state.ended if self.state.todos else self.state.epoch)

    def settle(self) -> None:
        """Nothing goes wrong any more: what is written now is in a checkpoint soon."""
        self.stay()
        for _ in range(40):
            turns = [self.hear, self.begin_todo, self.finish_todo, self.hear_abort, self.begin_step]
            for turn in (*turns, *[self.write] * STEP_ROWS, self.end_step, self.barrier, self.commit):
                turn()
                self.check()


@pytest.mark.parametrize("first", range(0, 400, 100))
def test_interleavings(first: int) -> None:
    """Each seed replays; the interleavings that matter have all come."""
    count: Counter[str] = Counter()
    for seed in range(first, first + 100):
        world = World(seed)
        for turn in range(TURNS):
            try:
                world.turn()
                world.check()
            except AssertionError as error:
                error.add_note(f"seed {seed}, turn {turn}")
                raise
        before = len(world.job.store)
        world.settle()
        assert len(world.job.store) > before, f"seed {seed}: nothing is committed any more"
        count += world.count
    assert set(count) == {
        "abort instead of a barrier",
        "abort while a barrier waits",
        "barrier while a step is under way",
        "leader lost in the middle of a todo",
        "leave while a barrier is passed",
        "recalled",
        "restart in a step",
        "saved",
    }
