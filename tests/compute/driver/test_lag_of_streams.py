"""The driver's choice of executors by the lag of streams: by rule, and stable under loads of all kinds.

The model of a stream is that of micro-batches: a batch takes a fixed time, and time for its rows that executors share;
its rows are those that came since the batch before began. So a batch that takes long makes the next one take longer.
"""

import json
import math
import random
from collections.abc import Callable
from itertools import pairwise
from typing import Any, NamedTuple

import pytest

from support.depth import DEPTH
from tussock.compute.driver.lag import (
    DOWN_SECONDS,
    LONG_SECONDS,
    PATIENCE_SECONDS_MAX,
    UP_SECONDS,
    Course,
    Delays,
    Goal,
    StreamLook,
    next_course,
    words,
)

GOAL = Goal(1, 8, 30)
BEGIN = Course(1, "begins", 0)


def follow(course: Course, looks: list[StreamLook], goal: Goal = GOAL, begin: float = 0) -> Course:
    """The course after looks, one a second."""
    for second, look in enumerate(looks):
        course = next_course(goal, course, look, begin + second)
    return course


def seconds(count: float, behind: float | None, active: int, batch_seconds: int = 10) -> list[StreamLook]:
    """Looks of that many seconds; a batch ends now and then."""
    return [StreamLook(behind, second // batch_seconds, active) for second in range(int(count))]


# --- Rules -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("wanted", "behind", "then"),
    [
        (1, 31, 2),
        (1, 3000, 2),
        (4, 31, 5),
        (4, 44, 6),
        (4, 3000, 8),
        (6, 3000, 8),
        (8, 3000, 8),
        (4, 30, 4),
        (4, 16, 4),
    ],
)
def test_a_late_stream_gets_more_in_proportion(wanted: int, behind: float, then: int) -> None:
    """One at least, twice as many at most, and never beyond the bound; on time, and a little early, is well."""
    assert follow(Course(wanted, "", 0), seconds(UP_SECONDS + 1, behind, wanted)).wanted == then
    assert follow(Course(wanted, "", 0), seconds(UP_SECONDS, behind, wanted)).wanted == wanted, "too soon"


@pytest.mark.parametrize(
    ("wanted", "behind", "then"), [(4, 15, 3), (4, 0, 3), (4, 16, 4), (2, 12, 1), (2, 13, 2), (1, 0, 1), (3, 15, 3 - 1)]
)
def test_an_early_stream_loses_one_if_the_others_can_do_its_work(wanted: int, behind: float, then: int) -> None:
    """Of two the one that stays has twice as much to do."""
    assert follow(Course(wanted, "", 0), seconds(DOWN_SECONDS + 1, behind, wanted)).wanted == then
    assert follow(Course(wanted, "", 0), seconds(DOWN_SECONDS, behind, wanted)).wanted == wanted, "too soon"


def test_one_look_that_disagrees_begins_the_wait_anew() -> None:
    late, well = seconds(UP_SECONDS, 40, 1), [StreamLook(20, 99, 1)]
    assert follow(BEGIN, [*late, *well, *late]).wanted == 1
    early = seconds(DOWN_SECONDS, 1, 4)
    assert follow(Course(4, "", 0), [*early, StreamLook(20, 99, 4), *early]).wanted == 4


def test_more_are_asked_for_after_two_batches_with_all_that_were_asked_for() -> None:
    """A batch that began with fewer says nothing of what they can do; and those that do not run would not help."""
    course = follow(Course(2, "", 0), [StreamLook(90, 5, 1)] * 600)
    course = follow(course, [StreamLook(90, 5, 2)] * 100 + [StreamLook(90, 6, 2)] * 100, begin=600)
    assert course.wanted == 2
    assert next_course(GOAL, course, StreamLook(90, 7, 2), 800).wanted == 4


def test_a_batch_that_does_not_end_counts_after_five_minutes() -> None:
    """Under a load far beyond what they can do each batch takes longer than the one before, and soon for hours."""
    looks = [StreamLook(100 + second, 5, 2) for second in range(int(LONG_SECONDS) + 1)]
    assert follow(Course(2, "", 0), looks[:-1]).wanted == 2
    assert follow(Course(2, "", 0), looks).wanted == 4


def test_streams_that_catch_up_by_themselves_get_no_more() -> None:
    """After an outage there is much that waits; as long as it falls by a tenth in thirty seconds there are enough."""
    catches_up = [StreamLook(900 * 0.89 ** (second // 29), second // 10, 2) for second in range(900)]
    assert follow(Course(2, "", 0), catches_up).wanted == 2
    too_slow = [StreamLook(900 * 0.99 ** (second // 29), second // 10, 2) for second in range(900)]
    assert follow(Course(2, "", 0), too_slow).wanted == 4


def test_nothing_is_decided_before_the_first_batch() -> None:
    assert follow(Course(4, "", 0), [StreamLook(None, -1, 4)] * 3000).wanted == 4


def test_bounds_that_change_hold_at_once() -> None:
    assert next_course(Goal(3, 5, 30), Course(8, "", 0), StreamLook(20, 1, 8), 1).wanted == 5
    assert next_course(Goal(3, 5, 30), BEGIN, StreamLook(20, 1, 1), 1).wanted == 3


def test_one_that_had_to_come_back_is_tried_again_after_twice_the_time() -> None:
    """Up to an hour."""
    course, at, waits = Course(4, "", 0), 0.0, []
    for _ in range(7):
        began = at
        while course.wanted == 4:
            course, at = next_course(GOAL, course, StreamLook(10, int(at) // 10, 4), at), at + 1
        waits.append(at - began)
        while course.wanted == 3:
            course, at = next_course(GOAL, course, StreamLook(31, int(at) // 10, 3), at), at + 1
        assert course.wanted == 4
    assert waits == pytest.approx([300, 600, 1200, 2400, 3600, 3600, 3600], abs=2)


def test_only_as_few_as_were_too_few_are_waited_for_so_long() -> None:
    """More than these are taken away as ever; and once these are enough the load is another one."""
    course, waits = Course(8, "", 0, missed=5, patience=PATIENCE_SECONDS_MAX), []
    for at in range(3 * 3600):
        before = course
        course = next_course(GOAL, course, StreamLook(1, 0, course.wanted), at)
        if course.wanted < before.wanted:
            waits.append(at - before.changed)
    assert waits == pytest.approx([300, 300, 3600, 300, 300, 300, 300], abs=2)
    assert course.wanted == 1


def test_the_status_says_why() -> None:
    """In the same words until something changes, since each change is a write of the status."""
    late = follow(BEGIN, seconds(UP_SECONDS + 1, 45, 1))
    assert late.why == "1 to 2 executors: Streams were 45 s behind, more than 30 s for 30 s."
    assert words(GOAL, late, StreamLook(45, 3, 1), late.changed + 5) == late.why
    assert words(GOAL, late, StreamLook(45, 3, 1), late.changed + 61) == f"{late.why} 1 of 2 executors run."
    most = follow(Course(8, "so", 0), seconds(100, 45, 8))
    told = words(GOAL, most, StreamLook(45, 3, 8), 100)
    assert told == "Streams are more than 30 s behind, and maxReplicas allows no more executors."
    assert words(GOAL, most, StreamLook(99, 4, 8), 900) == told
    early = follow(Course(4, "", 0), seconds(DOWN_SECONDS + 1, 3, 4))
    assert early.why == "4 to 3 executors: Streams were at most 15 s behind for 300 s, of 30 s."


# --- What a stream says ------------------------------------------------------------------------------------------


def progress(batch: int, took_ms: int, **more: Any) -> dict[str, Any]:
    return {"batchId": batch, "durationMs": {"triggerExecution": took_ms}, "processedRowsPerSecond": 100.0, **more}


BUSY = {"isDataAvailable": True, "isTriggerActive": True}
WAITS = {"isDataAvailable": True, "isTriggerActive": False}
IDLE = {"isDataAvailable": False, "isTriggerActive": True}


def test_a_stream_is_behind_by_its_newest_batch_or_by_the_one_that_runs() -> None:
    delays = Delays()
    told = [
        delays.look([("a", done, status)], now)
        for now, done, status in [
            (0, {}, BUSY),
            (5, progress(0, 4000), BUSY),
            (8, progress(0, 4000), BUSY),
            (65, progress(0, 4000), BUSY),
            (70, progress(1, 64000), WAITS),
            (700, progress(1, 64000), WAITS),
            (701, progress(1, 64000), BUSY),
            (765, progress(1, 64000), BUSY),
            (800, progress(2, 99000), IDLE),
        ]
    ]
    assert told == [[None], [4], [4], [60], [64], [64], [64], [65], [0]]


def test_streams_of_a_job_are_told_apart() -> None:
    delays = Delays()
    delays.look([("a", progress(3, 1000), BUSY), ("b", progress(3, 1000), BUSY)], 0)
    assert delays.look([("b", progress(3, 1000), BUSY), ("a", progress(4, 2000), BUSY)], 50) == [50, 2]
    assert delays.look([], 60) == []
    assert delays.look([("a", progress(4, 2000), BUSY)], 70) == [2], "another run of it"


def kafka(latest: object, ended: object) -> dict[str, Any]:
    offsets = {"latestOffset": json.dumps(latest), "endOffset": json.dumps(ended)}
    return {"description": "KafkaV2[...]", "metrics": {"maxOffsetsBehindLatest": "1"}, **offsets}


@pytest.mark.parametrize(
    ("sources", "behind"),
    [
        ([kafka({"t": {"0": 900, "1": 400}}, {"t": {"0": 400, "1": 400}})], 9),
        ([kafka({"t": {"0": 900}}, {"t": {"0": 400}}), kafka({"u": {"0": 900}}, {"u": {"0": 400}})], 14),
        ([kafka({"t": {"0": 900, "1": 700}}, {"t": {"0": 900}})], 4),
        ([kafka({"t": {"0": 1}}, {"t": {"0": 400}})], 4),
        ([kafka(None, {"t": {"0": 400}})], 4),
        ([kafka([1], 7)], 4),
        ([{**kafka(1, 1), "latestOffset": None}], 4),
        ([{**kafka(1, 1), "latestOffset": "no JSON"}], 4),
        ([{"latestOffset": '{"t": {"0": 900}}', "endOffset": '{"t": {"0": 0}}', "metrics": {}}], 4),
        ([{}], 4),
    ],
)
def test_what_waits_in_kafka_counts_at_the_pace_of_the_stream(sources: list[dict[str, Any]], behind: float) -> None:
    """With a bound on the rows of a batch its time alone says nothing; strange offsets count as none."""
    assert Delays().look([("a", progress(1, 4000, sources=sources), WAITS)], 0) == [behind]
    stands = {**progress(1, 4000, sources=sources), "processedRowsPerSecond": None}
    assert Delays().look([("a", stands, WAITS)], 0) == [4]


# --- Stability ---------------------------------------------------------------------------------------------------


STEP = 2
"""Seconds between two looks of the model, which takes half the time so."""


class Load(NamedTuple):
    """Rows a second by time, and what a batch costs."""

    rate: Callable[[float], float]
    fixed: float = 2.0
    """Seconds of a batch, whatever is in it."""
    rows: float = 100.0
    """Rows a second that one executor can do."""
    start: float = 25.0
    """Seconds until an executor that was asked for takes tasks."""
    noise: float = 0.1


class Run(NamedTuple):
    """What happened, second by second."""

    wanted: list[int]
    behind: list[float]

    def changes(self, begin: int = 0) -> list[int]:
        """The changes of the number of executors since a second."""
        return [after - before for before, after in pairwise(self.wanted[begin:]) if after != before]

    def turns(self, begin: int = 0) -> int:
        """How often its direction changed."""
        return sum(before * after < 0 for before, after in pairwise(self.changes(begin)))


def simulate(load: Load, hours: float, seed: int, goal: Goal = GOAL) -> Run:
    draw, run, course = random.Random(seed), Run([], []), Course(goal.least, "", 0)
    active, starting, batch, queue = goal.least, list[float](), -1, 0.0
    took, began, fixed, rows = 0.0, 0, 0.0, 0.0
    for now in range(0, int(hours * 3600), STEP):
        active += len([at for at in starting if at <= now])
        starting = [at for at in starting if at > now]
        queue += max(0.0, load.rate(now)) * STEP
        if fixed <= 0 and rows <= 0:
            took, began, batch = now - began, now, batch + 1
            fixed = load.fixed * draw.uniform(1 - load.noise, 1 + load.noise)
            rows, queue = queue * draw.uniform(1 - load.noise, 1 + load.noise), 0.0
        busy = STEP - min(float(STEP), fixed)
        fixed = max(0.0, fixed - STEP)
        rows -= busy * load.rows * active
        behind = max(took, now - began)
        course = next_course(goal, course, StreamLook(behind, batch, active), now)
        active = min(active, course.wanted)
        starting = starting[: course.wanted - active]
        starting += [now + load.start * draw.uniform(0.5, 2) for _ in range(course.wanted - active - len(starting))]
        run.wanted.extend([course.wanted] * STEP)
        run.behind.extend([behind] * STEP)
    return run


@pytest.mark.parametrize("rate", [10, 90, 150, 420, 650])
@pytest.mark.parametrize("seed", range(DEPTH))
def test_a_steady_load_comes_to_rest(rate: float, seed: int) -> None:
    """From the second hour on it is on time, with few more than needed; once an hour at most one less is tried."""
    run = simulate(Load(lambda _: rate), 8, seed)
    late = sum(behind > GOAL.seconds for behind in run.behind[3600:])
    assert late <= 0.1 * 7 * 3600, late
    assert run.turns(3600) <= 2 * 7
    needed = math.ceil(rate / 100)
    assert sum(run.wanted[3600:]) / (7 * 3600) <= needed + 1.5
    assert set(run.wanted) <= set(range(1, 9))


@pytest.mark.parametrize("seed", range(2 * DEPTH))
def test_a_load_between_two_numbers_does_not_flap(seed: int) -> None:
    """Story of every scaler: one too few with four, one too many with five, and so on for ever."""
    draw = random.Random(seed)
    rate = 100 * draw.randint(1, 6) - draw.uniform(0, 15)
    run = simulate(Load(lambda _: rate, fixed=draw.uniform(0.5, 6), noise=draw.uniform(0, 0.4)), 12, seed)
    assert run.turns() <= 4 + 2 * 12, "the first waits are short, then it is one an hour"
    assert run.turns(6 * 3600) <= 2 * 6


@pytest.mark.parametrize("seed", range(DEPTH))
def test_a_step_is_followed_up_and_down(seed: int) -> None:
    """Three times the load for an hour: more within minutes, and back to few after it."""
    run = simulate(Load(lambda now: 450 if 3600 <= now < 7200 else 150), 5, seed)
    assert max(run.wanted[:3600]) <= 4
    assert max(run.wanted[3600:4500]) >= 5
    assert sum(behind > GOAL.seconds for behind in run.behind[5000:7200]) <= 300
    assert run.wanted[-1] <= 4
    assert run.turns() <= 4 * 5


@pytest.mark.parametrize("seed", range(DEPTH))
def test_a_day_is_followed_without_flapping(seed: int) -> None:
    """Two waves with noise in twelve hours."""
    draw = random.Random(seed)
    run = simulate(
        Load(lambda now: 300 + 250 * math.sin(now / 3600 * math.pi / 3) + draw.gauss(0, 40), noise=0.3), 12, seed
    )
    assert sum(behind > GOAL.seconds for behind in run.behind) <= 0.1 * len(run.behind)
    assert run.turns() <= 3 * 12
    assert sum(run.wanted) / len(run.wanted) <= 7


@pytest.mark.parametrize("seed", range(DEPTH))
def test_short_spikes_are_left_alone(seed: int) -> None:
    """A few seconds of ten times the load now and then are over before executors would be there."""
    run = simulate(Load(lambda now: 500 if now % 1800 < 4 else 50), 4, seed)
    assert not run.changes()


def test_a_load_beyond_the_bound_stays_at_the_bound() -> None:
    run = simulate(Load(lambda _: 2000), 2, 0)
    assert run.wanted[-1] == 8
    assert min(run.changes()) > 0
