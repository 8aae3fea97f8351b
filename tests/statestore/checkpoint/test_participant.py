"""A participant's reactions to the coordinator's events, also to repeated, late and missing ones."""

from typing import Any

from tussock.statestore.checkpoint.participant import Participant, react
from tussock.statestore.contract.barriers import BarrierEvent

GENERATION = 5


def event(what: Any, barrier: int = 0, **fields: Any) -> BarrierEvent:
    return BarrierEvent(what=what, barrier=barrier, **{"generation": GENERATION, **fields})


def after(*events: BarrierEvent) -> tuple[Participant, list[tuple[str, tuple[int, ...]]]]:
    """A new participant after these events, and its reactions to the last one, with their epochs."""
    state, todos = Participant(), []
    for one in events:
        state, todos = react(state, one)
    return state, [(todo.what, todo.epochs) for todo in todos]


START = event("started", next_epoch=10)
FIRST = event("barrier", 1, epoch=10, next_epoch=20)
HELD = event("committed", 1, epoch=10, next_epoch=20, committed_epoch=10)
SECOND = event("barrier", 2, epoch=20, next_epoch=30, committed_epoch=10)


def test_an_epoch_starts_ends_and_is_committed() -> None:
    """It is started, ended by a barrier, and committed; then the next one starts."""
    state, todos = after(START)
    assert (state.epoch, todos) == (10, [("start", ())])
    state, todos = after(START, FIRST)
    assert (state.epoch, state.barrier, state.ended, todos) == (20, 1, 10, [("barrier", (10,))])
    state, todos = after(START, FIRST, HELD)
    assert (state.epoch, state.barrier, state.ended, todos) == (20, 0, 0, [("committed", (10,))])
    assert after(START, FIRST, HELD, SECOND)[1] == [("barrier", (20,))]


def test_repeated_events_do_nothing_again() -> None:
    """A repeated barrier is collected twice, which has no effect on the coordinator."""
    assert after(START, START)[1] == []
    assert after(START, FIRST, FIRST)[1] == [("collect", (10,))]
    assert after(START, FIRST, HELD, HELD)[1] == []
    assert after(START, FIRST, HELD, FIRST)[1] == []
    aborted = event("aborted", 1, epoch=10, next_epoch=30)
    assert after(START, FIRST, aborted)[1] == [("aborted", (10, 20))]
    assert after(START, FIRST, aborted, aborted)[1] == []
    assert after(START, FIRST, aborted, FIRST)[1] == []
    assert after(START, FIRST, aborted, HELD)[1] == []


def test_an_abort_gives_up_all_epochs() -> None:
    """The open epoch and the one under way are given up; work goes on at the epoch that the event names."""
    state, todos = after(START, event("aborted", next_epoch=15))
    assert (state.epoch, todos) == (15, [("aborted", (10,))])
    state, todos = after(START, FIRST, event("aborted", 1, epoch=10, next_epoch=30))
    assert (state.epoch, state.barrier, state.ended) == (30, 0, 0)


def test_events_of_another_generation_are_ignored() -> None:
    """They are for an earlier participant of this name, or for its successor."""
    for generation in (GENERATION - 1, GENERATION + 1):
        for one in (FIRST, HELD, event("aborted", next_epoch=99)):
            other = BarrierEvent(**{**{f: getattr(one, f) for f in one.__struct_fields__}, "generation": generation})
            assert after(START, FIRST, other)[1] == []
    assert after(START, event("started", generation=GENERATION - 1, next_epoch=99))[1] == []


def test_start_during_a_barrier_begins_before_it() -> None:
    """The first event got lost; the following barrier ends the epoch that it starts at."""
    state, todos = after(event("started", epoch=10, next_epoch=20))
    assert (state.epoch, todos) == (10, [("start", ())])
    assert after(event("started", epoch=10, next_epoch=20), FIRST)[1] == [("barrier", (10,))]


def test_a_greeting_without_missed_events_does_nothing() -> None:
    """The greeting after a broken subscription finds the participant at the right place."""
    assert after(START, event("started", next_epoch=10))[1] == []
    assert after(START, event("started", epoch=10, next_epoch=20))[1] == []
    assert after(START, FIRST, event("started", epoch=10, next_epoch=20))[1] == []
    assert after(START, FIRST, HELD, event("started", 1, next_epoch=20, committed_epoch=10))[1] == []


def test_a_missed_commit_is_noticed() -> None:
    """It shows in the number of the newest checkpoint, or in the next barrier."""
    state, todos = after(START, FIRST, event("started", 1, next_epoch=20, committed_epoch=10))
    assert (state.epoch, state.barrier, todos) == (20, 0, [("committed", (10,))])
    greeting = event("started", 1, epoch=20, next_epoch=30, committed_epoch=10)
    assert after(START, FIRST, greeting)[1] == [("committed", (10,))]
    assert after(START, FIRST, greeting, SECOND)[1] == [("barrier", (20,))]
    assert after(START, FIRST, SECOND)[1] == [("committed", (10,)), ("barrier", (20,))]


def test_a_missed_abort_is_noticed() -> None:
    """The greeting has another epoch to write at; a barrier under way ends that one."""
    state, todos = after(START, event("started", next_epoch=30))
    assert (state.epoch, todos) == (30, [("aborted", (10,))])
    state, todos = after(START, FIRST, event("started", next_epoch=30))
    assert (state.epoch, state.barrier, todos) == (30, 0, [("aborted", (10, 20))])
    state, todos = after(START, FIRST, event("started", epoch=30, next_epoch=40))
    assert (state.epoch, todos) == (30, [("aborted", (10, 20))])
    # Committed first, aborted then: only what came after the checkpoint is given up.
    state, todos = after(START, FIRST, event("started", 1, next_epoch=30, committed_epoch=10))
    assert (state.epoch, todos) == (30, [("committed", (10,)), ("aborted", (20,))])


def test_a_new_generation_begins_anew() -> None:
    """The coordinator does not know the parts of an older generation, even if the epochs are the same."""
    newer = GENERATION + 1
    for events in ((START,), (START, FIRST), (START, FIRST, HELD)):
        for next_epoch in (10, 20, 30):
            again = event("started", events[-1].barrier, generation=newer, next_epoch=next_epoch)
            state, todos = after(*events, again)
            assert (state.generation, state.epoch) == (newer, next_epoch)
            assert [what for what, _ in todos] == ["aborted"]


def test_a_new_generation_ignores_a_commit_that_may_lack_its_part() -> None:
    """Found by the property test: it slept past its session, and the barrier was committed without its part."""
    again = event("started", 1, generation=GENERATION + 1, next_epoch=20, committed_epoch=10)
    assert after(START, FIRST, again)[1] == [("aborted", (10, 20))]


def test_an_abort_has_a_reason() -> None:
    """There is a reason even if no event has one."""
    state, _ = after(START)
    _, (todo,) = react(state, event("started", generation=GENERATION + 1, next_epoch=30))
    assert (todo.event.what, todo.event.reason) == ("aborted", "the coordinator has begun anew")
    _, (todo,) = react(state, event("aborted", next_epoch=30, reason="b is gone"))
    assert todo.event.reason == "b is gone"


def test_the_number_seen_is_the_largest_one() -> None:
    """A new leader gets it, and numbers its barriers above it."""
    assert after(START, FIRST, HELD, SECOND)[0].seen == 2
    assert after(START, FIRST, HELD, SECOND, event("started", 1, epoch=20, next_epoch=30))[0].seen == 2
