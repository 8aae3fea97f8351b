"""A participant's reactions to events: the coordinator's, also repeated, late and missing ones, and its worker's."""

from typing import Any, get_args

import pytest
from msgspec.structs import replace

from tussock.statestore.checkpoint.participant import (
    Participant,
    Phase,
    Todo,
    ask,
    begin_leaving,
    begin_step,
    can_hear,
    caught_up,
    done,
    end,
    end_step,
    failed,
    hear_abort,
    is_held,
    joined,
    next_todo,
    react,
    stay,
    take,
)
from tussock.statestore.contract.barriers import BarrierEvent

GENERATION = 5


def event(what: Any, barrier: int = 0, **fields: Any) -> BarrierEvent:
    return BarrierEvent(what=what, barrier=barrier, **{"generation": GENERATION, **fields})


def do(state: Participant) -> Participant:
    """The participant whose next todo is done."""
    todo, state = state.todos[0], take(state)
    return done(caught_up(state) if todo.what in ("start", "committed", "aborted") else state)


def finish(state: Participant) -> Participant:
    """The participant whose todos are done; its worker has asked for its epoch and is in no step."""
    state = ask(state)
    while next_todo(state):
        state = ask(do(state))
    return state


def after(*events: BarrierEvent) -> tuple[Participant, list[tuple[str, tuple[int, ...]]]]:
    """A new participant after these events, and its reactions to the last one, with their epochs."""
    state, todos = Participant(), ()
    for one in events:
        state = react(state, one)
        todos = state.todos
        state = finish(state)
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
    (todo,) = react(state, event("started", generation=GENERATION + 1, next_epoch=30)).todos
    assert (todo.event.what, todo.event.reason) == ("aborted", "the coordinator has begun anew")
    (todo,) = react(state, event("aborted", next_epoch=30, reason="b is gone")).todos
    assert todo.event.reason == "b is gone"


def test_the_number_seen_is_the_largest_one() -> None:
    """A new leader gets it, and numbers its barriers above it."""
    assert after(START, FIRST, HELD, SECOND)[0].seen == 2
    assert after(START, FIRST, HELD, SECOND, event("started", 1, epoch=20, next_epoch=30))[0].seen == 2


# --- The worker ---------------------------------------------------------------------------------------------------


ABORTED = event("aborted", 1, epoch=10, next_epoch=40, reason="b is gone")


def begin(*, restores: bool = False, phase: Phase = "working") -> Participant:
    """A participant that writes at epoch 10, or is about to."""
    state = do(react(Participant(restores=restores), START))
    return replace(state, phase=phase)


def what(todo: Todo | None) -> str | None:
    return todo.what if todo else None


@pytest.mark.parametrize(("restores", "phase"), [(False, "restoring"), (True, "working")])
def test_start(restores: bool, phase: str) -> None:
    """The worker has an epoch, and its state only if a callback has read it."""
    state = react(Participant(restores=restores), event("started", next_epoch=10, committed_epoch=5))
    assert (state.phase, state.open_epoch, what(next_todo(state))) == ("joining", 0, "start")
    state = caught_up(take(state))
    assert (state.phase, state.open_epoch, state.committed_epoch) == ("joining", 0, 5)
    state = done(state)
    assert (state.phase, state.open_epoch, next_todo(state)) == (phase, 10, None)


def test_barrier_waits_for_a_worker_that_is_not_ready() -> None:
    """Nothing is held meanwhile, and events are heard; the barrier goes on when the worker asks for its epoch."""
    for phase in ("restoring", "aborted", "recalled"):
        state = react(begin(phase=phase), FIRST)
        assert (next_todo(state), can_hear(state), is_held(state)) == (None, True, False), phase
        assert (state.epoch, state.open_epoch) == (20, 10)
    state = react(begin(phase="restoring"), FIRST)
    assert react(state, FIRST) == state, "there is nothing to collect yet"
    assert what(next_todo(ask(state))) == "barrier"
    assert what(next_todo(begin_leaving(state))) == "barrier"
    stepping = begin_step(state)
    assert (next_todo(stepping), is_held(stepping), can_hear(stepping)) == (None, True, False)


def test_abort_takes_the_place_of_a_barrier_that_waits() -> None:
    """The worker saves nothing for it, and writes at the epoch that the abort tells."""
    state = react(react(begin(phase="restoring"), FIRST), ABORTED)
    assert [(todo.what, todo.epochs) for todo in state.todos] == [("aborted", (10, 20))]
    assert (do(state).open_epoch, do(state).phase) == (40, "restoring")


def test_barrier_waits_for_the_step_under_way() -> None:
    """No other begins, no event is heard, and the step writes at the epoch that it began with."""
    state = react(begin_step(begin()), FIRST)
    assert (next_todo(state), can_hear(state), is_held(state), state.open_epoch) == (None, False, True, 10)
    with pytest.raises(AssertionError, match="no step begins"):
        begin_step(state)
    state = end_step(state)
    assert (what(next_todo(state)), can_hear(state), is_held(state)) == ("barrier", False, True)


def test_sealed_epoch_is_collected_next() -> None:
    """The worker goes on at the next epoch once the old one is sealed, while that is uploaded."""
    state = take(react(begin(), FIRST))
    assert (is_held(state), state.open_epoch) == (True, 10)
    state = done(state)
    assert (is_held(state), state.open_epoch, state.todos) == (False, 20, (Todo("collect", FIRST, (10,)),))
    state = begin_step(state)
    assert (what(next_todo(state)), can_hear(state)) == ("collect", False)
    assert can_hear(done(take(state)))


def test_commit_holds_nobody() -> None:
    """The version here has the checkpoint before the worker is told."""
    state = react(begin_step(do(do(react(begin(), FIRST)))), HELD)
    assert (what(next_todo(state)), is_held(state), state.committed_epoch) == ("committed", False, 0)
    state = caught_up(take(state))
    assert (state.committed_epoch, what(next_todo(state))) == (10, "committed")
    assert (done(state).open_epoch, done(state).todos) == (20, ())


def test_barrier_that_implies_a_commit_comes_after_it() -> None:
    """The event that told the commit got lost; the worker is held for the barrier only."""
    state = react(do(do(react(begin(), FIRST))), SECOND)
    assert [todo.what for todo in state.todos] == ["committed", "barrier"]
    assert not is_held(state)
    assert is_held(do(state))


def test_abort_is_told_when_the_worker_asks() -> None:
    """Once; then it reads its state back, and barriers wait for that."""
    state = react(begin_step(begin()), ABORTED)
    assert (next_todo(state), is_held(state)) == (None, True)
    state = do(end_step(state))
    assert (state.phase, state.open_epoch, is_held(state)) == ("aborted", 40, False)
    assert state.abort is not None
    assert state.abort.reason == "b is gone"
    assert ask(state) == begin_leaving(state) == state
    state = hear_abort(state)
    assert (state.phase, state.abort) == ("restoring", None)
    assert hear_abort(state) == state
    assert ask(state).phase == "working"


def test_abort_with_a_callback_is_not_told_again() -> None:
    """It has read the state back by the time that the todo is done."""
    state = do(react(begin(restores=True), ABORTED))
    assert (state.phase, state.open_epoch, state.abort) == ("working", 40, None)


def test_abort_of_a_worker_that_has_written_nothing_is_not_told() -> None:
    """It is reading its state back, and of a second abort it hears what the first one said."""
    again = event("aborted", next_epoch=50, reason="c is gone")
    state = do(react(begin(phase="restoring"), ABORTED))
    assert (state.phase, state.open_epoch, state.abort) == ("restoring", 40, None)
    state = do(react(do(react(begin(), ABORTED)), again))
    assert (state.phase, state.open_epoch) == ("aborted", 50)
    assert state.abort is not None
    assert state.abort.reason == "b is gone"


def test_leaving_with_the_first_barrier_from_now_on() -> None:
    """What was written before it is in the checkpoint that it makes."""
    state = react(begin_leaving(begin()), FIRST)
    assert (state.phase, state.leaves_with) == ("leaving", 0)
    state = take(state)
    assert state.leaves_with == 1
    state = caught_up(take(react(do(done(state)), HELD)))
    assert state.phase == "saved"
    assert done(state).phase == "saved"


def test_barrier_under_way_does_not_let_leave() -> None:
    """Its epoch may lack what the worker wrote since; the next one holds all."""
    state = begin_leaving(take(react(begin(), FIRST)))
    state = finish(react(finish(done(state)), HELD))
    assert (state.phase, state.leaves_with, state.committed_epoch) == ("leaving", 0, 10)
    state = finish(react(state, SECOND))
    assert (state.phase, state.leaves_with) == ("leaving", 2)
    assert begin_leaving(stay(state)).leaves_with == 0, "who asks again wants the next one again"
    assert finish(react(state, event("committed", 2, epoch=20, committed_epoch=20))).phase == "saved"


@pytest.mark.parametrize(("restores", "phase"), [(False, "restoring"), (True, "working")])
def test_abort_recalls_who_leaves(restores: bool, phase: str) -> None:
    """Also a worker with a callback hears of it: it has input to work on again. The newest abort counts."""
    state = do(react(begin_leaving(begin(restores=restores)), ABORTED))
    assert state.phase == "recalled"
    assert stay(state).phase == "aborted"
    assert hear_abort(stay(state)).phase == phase
    state = do(react(state, event("aborted", next_epoch=50, reason="c is gone")))
    assert state.abort is not None
    assert (state.phase, state.abort.reason) == ("recalled", "c is gone")
    assert (hear_abort(state).phase, hear_abort(state).abort) == (phase, None)


def test_who_is_saved_holds_nobody_up() -> None:
    """Everything is in a checkpoint, which no abort takes back; a barrier that comes before it has left is passed."""
    assert what(next_todo(react(begin(phase="saved"), FIRST))) == "barrier"
    assert do(react(begin(phase="saved"), ABORTED)).phase == "saved"


def test_worker_that_stays_works_on() -> None:
    """The one that waited in vain, and the one that was interrupted."""
    assert stay(begin_leaving(begin())).phase == stay(begin(phase="saved")).phase == "working"
    for phase in ("restoring", "working", "aborted", "over"):
        assert stay(begin(phase=phase)).phase == phase


@pytest.mark.parametrize("phase", get_args(Phase))
def test_end(phase: Phase) -> None:
    """Nothing is to be done any more and nobody is held; of two failures the first counts."""
    state = react(begin_step(begin()), FIRST)
    first, second = ValueError("first"), ValueError("second")
    for over in (end(replace(state, phase=phase)), failed(replace(state, phase=phase), first)):
        assert (over.phase, next_todo(end_step(over)), is_held(over)) == ("over", None, False)
        assert ask(over) == begin_leaving(over) == stay(over) == hear_abort(over) == over
        assert done(over).phase == caught_up(over).phase == "over"
    assert failed(failed(state, first), second).failure is first


def test_answer_to_joining_says_whose_events_follow() -> None:
    """The generation itself changes with the first of these events."""
    state = joined(begin(), GENERATION + 1)
    assert (state.answered, state.generation) == (GENERATION + 1, GENERATION)
