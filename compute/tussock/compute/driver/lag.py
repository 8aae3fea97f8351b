"""How many executors the streams of a job need to be no further behind than asked: a decision, look by look.

The decision is a pure function of the course so far and of what a look finds. Its parts are known ones:

- Spark Streaming's `ExecutorAllocationManager` compares the time of a batch with what it may take, adds executors above
  one bound, and takes one away below a lower one.
- The `HorizontalPodAutoscaler` of Kubernetes asks for `ceil(n * now / wanted)`, at most twice as many at once, and
  waits five minutes before it takes away, for which every look has to agree.

What is added here are waits, since a stream answers late:

- More are asked for only after two batches have ended with all executors that were asked for, as the first of them may
  have begun without; a batch that does not end counts after five minutes. And not while the streams catch up by
  themselves: what waits from before is no measure of what is needed.
- If one was taken away too many, and had to come back, the wait before it is tried again is twice as long, up to an
  hour. How much executors could do beyond what comes shows in nothing that Spark tells of batches that follow each
  other at once, so the only way to find out is to try; and it is tried ever more rarely under a load that stays.
"""

import json
import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple, TypeAlias

__all__ = ["Course", "Delays", "Goal", "Stream", "StreamLook", "batch_of", "next_course", "words"]

Stream: TypeAlias = tuple[str, Mapping[str, Any], Mapping[str, Any]]
"""The id of a stream, its `lastProgress` (empty before the first) and its `status`, as Spark tells them."""

UP_SECONDS = 30.0
"""How long streams are late before executors are added."""
DOWN_SECONDS = 300.0
"""How long streams are early before one is taken away, unless as few were too few before."""
PATIENCE_SECONDS_MAX = 3600.0
GROWTH_MAX = 2.0
LOW = 0.5
"""Early is below this part of the goal."""
SPARE = 0.8
"""Those that remain have to do in this part of the goal what one more does now, as no batch shrinks in proportion."""
BATCHES = 2
"""That end before executors are added again, or `LONG_SECONDS` go by."""
LONG_SECONDS = 300.0
BETTER = 0.9
"""Streams whose lag falls to this part of it within `UP_SECONDS` catch up by themselves."""
START_SECONDS = 60.0
"""Executors that do not run after that are told of."""


class Goal(NamedTuple):
    """What is asked of the executors."""

    least: int
    """1 or more: without any, nothing is ever measured."""
    most: int
    seconds: float
    """How far behind streams may be."""


class StreamLook(NamedTuple):
    """What a look at Spark finds."""

    behind: float | None
    """How far the latest stream is behind, in seconds; `None` before its first batch has ended."""
    batches: int
    """Batches of all streams that have ended; only differences count."""
    active: int
    """Executors that take tasks."""


@dataclass(frozen=True)
class Course:
    """What was decided so far, and since when what is so. Times are those of a clock that never goes back."""

    wanted: int
    why: str
    changed: float
    full: int | None = None
    """Batches that had ended when all executors took tasks; `None` while some do not."""
    late: float | None = None
    """Since when streams are later than asked, with all executors, and do not catch up."""
    height: float = 0.0
    """How far behind they were then."""
    early: float | None = None
    lowered: float | None = None
    """When one was taken away, unless it had to come back."""
    missed: int = 0
    """So few were too few when they were tried last."""
    patience: float = DOWN_SECONDS
    """How long streams have to be early before so few are tried again."""


def next_course(goal: Goal, course: Course, look: StreamLook, now: float) -> Course:
    """The course after a look."""
    bounded = min(max(course.wanted, goal.least), goal.most)
    if bounded != course.wanted:
        return _changed(course, bounded, "minReplicas or maxReplicas has changed.", now)
    is_full = look.active >= course.wanted
    full = (look.batches if course.full is None else course.full) if is_full else None
    late = is_full and look.behind is not None and look.behind > goal.seconds
    early = look.behind is not None and look.behind <= LOW * goal.seconds
    early_since = _since(course.early, now, holds=early)
    if (full, early_since) != (course.full, course.early):
        course = replace(course, full=full, early=early_since)
    course = _with_lateness(course, look.behind if late else None, now)
    return _with_more(goal, course, look, now) or _with_fewer(goal, course, look, now) or course


def words(goal: Goal, course: Course, look: StreamLook, now: float) -> str:
    """Why there are as many as there are, for people: the same until something changes."""
    if look.active < course.wanted and now - course.changed > START_SECONDS:
        return f"{course.why} {look.active} of {course.wanted} executors run."
    if course.late is not None and course.wanted == goal.most:
        return f"Streams are more than {goal.seconds:g} s behind, and maxReplicas allows no more executors."
    return course.why


def _with_lateness(course: Course, behind: float | None, now: float) -> Course:
    if behind is None:
        return course if course.late is None else replace(course, late=None)
    catches_up = course.late is not None and now - course.late >= UP_SECONDS and behind <= BETTER * course.height
    return replace(course, late=now, height=behind) if course.late is None or catches_up else course


def _with_more(goal: Goal, course: Course, look: StreamLook, now: float) -> Course | None:
    if course.late is None or look.behind is None or now - course.late < UP_SECONDS or course.wanted >= goal.most:
        return None
    if course.full is None or (look.batches - course.full < BATCHES and now - course.late < LONG_SECONDS):
        return None
    growth = min(look.behind / goal.seconds, GROWTH_MAX)
    wanted = min(max(course.wanted + 1, math.ceil(course.wanted * growth)), goal.most)
    why = f"Streams were {look.behind:.0f} s behind, more than {goal.seconds:g} s for {UP_SECONDS:g} s."
    if course.lowered is not None and now - course.lowered < PATIENCE_SECONDS_MAX:
        patience = min(2 * course.patience, PATIENCE_SECONDS_MAX)
        course = replace(course, missed=max(course.missed, course.wanted), patience=patience)
    return replace(_changed(course, wanted, why, now), lowered=None)


def _with_fewer(goal: Goal, course: Course, look: StreamLook, now: float) -> Course | None:
    wait = course.patience if course.wanted - 1 == course.missed else DOWN_SECONDS
    if course.early is None or look.behind is None or now - course.early < wait:
        return None
    if course.wanted <= goal.least or look.behind * course.wanted > SPARE * goal.seconds * (course.wanted - 1):
        return None
    why = f"Streams were at most {LOW * goal.seconds:g} s behind for {wait:g} s, of {goal.seconds:g} s."
    if course.wanted <= course.missed:
        # They are enough now, so the load is another one.
        course = replace(course, missed=0, patience=DOWN_SECONDS)
    return replace(_changed(course, course.wanted - 1, why, now), lowered=now)


def _changed(course: Course, wanted: int, why: str, now: float) -> Course:
    told = f"{course.wanted} to {wanted} executors: {why}"
    return replace(course, wanted=wanted, why=told, changed=now, full=None, late=None, early=None)


def _since(known: float | None, now: float, *, holds: bool) -> float | None:
    return (now if known is None else known) if holds else None


class Delays:
    """How far streams are behind, look by look.

    That is the time of the newest batch, or of the one that runs if that takes longer already, and the time for what
    waits in Kafka beyond that batch at its pace. What a trigger waits is no delay: executors cannot change it.
    """

    def __init__(self) -> None:
        self._began: dict[str, tuple[int, float]] = {}

    def look(self, streams: Sequence[Stream], now: float) -> list[float | None]:
        """Of each stream; `None` before its first batch has ended."""
        began = {}
        for id_, progress, status in streams:
            batch, known = batch_of(progress), self._began.get(id_)
            runs = known is not None and known[0] == batch and bool(status.get("isTriggerActive"))
            began[id_] = known if runs and known is not None else (batch, now)
        self._began = began
        return [_behind(progress, status, now - began[id_][1]) for id_, progress, status in streams]


def batch_of(progress: Mapping[str, Any]) -> int:
    """The id of the newest batch that has ended; -1: none has yet."""
    return int(progress.get("batchId", -1))


def _behind(progress: Mapping[str, Any], status: Mapping[str, Any], running: float) -> float | None:
    if not progress:
        return None
    if not status.get("isDataAvailable"):
        return 0.0
    took = float((progress.get("durationMs") or {}).get("triggerExecution") or 0) / 1000
    pace = float(progress.get("processedRowsPerSecond") or 0)
    waiting = sum(map(_rows_waiting, progress.get("sources") or ()))
    return max(took, running) + (waiting / pace if pace > 0 else 0)


def _rows_waiting(source: Mapping[str, Any]) -> int:
    """What a source has beyond the newest batch; 0 for those that do not say it, which are all but Kafka."""
    if "maxOffsetsBehindLatest" not in (source.get("metrics") or {}):
        return 0
    try:
        latest, ended = (dict(_offsets(json.loads(source[name]))) for name in ("latestOffset", "endOffset"))
    except (AttributeError, KeyError, TypeError, ValueError):
        return 0
    return sum(max(0, offset - ended.get(place, offset)) for place, offset in latest.items())


def _offsets(by_topic: Mapping[str, Mapping[str, int]]) -> Iterable[tuple[tuple[str, str], int]]:
    for topic, by_partition in by_topic.items():
        for partition, offset in by_partition.items():
            yield (topic, partition), int(offset)
