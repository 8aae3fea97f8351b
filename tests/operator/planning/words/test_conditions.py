"""Conditions: how they follow from a verdict, when their times move, and the event of a transition."""

from datetime import UTC, datetime
from typing import Any

import pytest

from tussock.operator.planning.words.conditions import (
    Reason,
    Verdict,
    conditions,
    idle_verdict,
    is_ready,
    problem_verdict,
    progress_verdict,
    ready_verdict,
    transitions,
)
from tussock.operator.planning.words.model import Emit

THEN = datetime(2026, 11, 21, 12, tzinfo=UTC)
LATER = datetime(2026, 11, 21, 13, tzinfo=UTC)

VERDICTS: dict[str, tuple[Verdict, str]] = {
    "serving": (ready_verdict("x"), "True False False"),
    "on its way": (progress_verdict(Reason.ROLLING_OUT, "x"), "False True False"),
    "serving and changing": (progress_verdict(Reason.ROLLING_OUT, "x", serving=True), "True True False"),
    "wrong": (problem_verdict(Reason.BUCKET_NOT_FOUND, "x"), "False False True"),
    "wrong and serving": (problem_verdict(Reason.IMAGE_PULL_FAILED, "x", serving=True), "True False True"),
    "at rest": (idle_verdict(Reason.SUSPENDED, "x"), "False False False"),
}


@pytest.mark.parametrize(("verdict", "expected"), VERDICTS.values(), ids=VERDICTS)
def test_three_conditions_follow_from_a_verdict(verdict: Verdict, expected: str) -> None:
    """`Ready` comes first, and all three have the same reason, message and generation."""
    found = conditions((), verdict, 7, THEN)
    assert [condition["type"] for condition in found] == ["Ready", "Progressing", "Degraded"]
    assert " ".join(condition["status"] for condition in found) == expected
    assert {(condition["reason"], condition["observedGeneration"]) for condition in found} == {(verdict.reason, 7)}


@pytest.mark.parametrize(
    ("after", "moved"),
    [
        pytest.param(ready_verdict("x"), set(), id="nothing"),
        pytest.param(ready_verdict("other words"), set(), id="words"),
        pytest.param(progress_verdict(Reason.ROLLING_OUT, "x", serving=True), {"Progressing"}, id="one-status"),
        pytest.param(problem_verdict(Reason.CRASH_LOOPING, "x"), {"Ready", "Degraded"}, id="two-statuses"),
    ],
)
def test_a_time_moves_with_its_status_only(after: Verdict, moved: set[str]) -> None:
    before = conditions((), ready_verdict("x"), 1, THEN)
    found = conditions(before, after, 1, LATER)
    assert {condition["type"] for condition in found if condition["lastTransitionTime"] != THEN_TEXT} == moved


THEN_TEXT = "2026-11-21T12:00:00Z"


def test_the_same_verdict_gives_the_same_bytes() -> None:
    """An unchanged status is therefore not written."""
    before = conditions((), ready_verdict("x"), 1, THEN)
    assert conditions(before, ready_verdict("x"), 1, LATER) == before


EVENTS: dict[str, tuple[Verdict | None, Verdict, tuple[Emit, ...]]] = {
    "first": (None, ready_verdict("x"), (Emit("Normal", "Ready", "x"),)),
    "the same": (ready_verdict("x"), ready_verdict("x"), ()),
    "other words": (progress_verdict(Reason.ROLLING_OUT, "1 of 2"), progress_verdict(Reason.ROLLING_OUT, "2 of 2"), ()),
    "another reason": (
        progress_verdict(Reason.WAITING_FOR_META, "x"),
        progress_verdict(Reason.ROLLING_OUT, "y"),
        (Emit("Normal", "RollingOut", "y"),),
    ),
    "worse": (ready_verdict("x"), problem_verdict(Reason.CRASH_LOOPING, "y"), (Emit("Warning", "CrashLooping", "y"),)),
    "worse, and serving": (
        problem_verdict(Reason.CRASH_LOOPING, "y"),
        problem_verdict(Reason.CRASH_LOOPING, "y", serving=True),
        (Emit("Warning", "CrashLooping", "y"),),
    ),
    "healed": (problem_verdict(Reason.CRASH_LOOPING, "y"), ready_verdict("x"), (Emit("Normal", "Ready", "x"),)),
}


@pytest.mark.parametrize(("before", "after", "events"), EVENTS.values(), ids=EVENTS)
def test_a_transition_has_one_event(before: Verdict | None, after: Verdict, events: tuple[Emit, ...]) -> None:
    old = conditions((), before, 1, THEN) if before else []
    assert transitions(old, conditions(old, after, 1, LATER)) == events


@pytest.mark.parametrize(
    ("generation", "observed", "status", "expected"),
    [(2, 2, "True", True), (2, 1, "True", False), (2, 2, "False", False), (2, None, "True", False)],
)
def test_ready_counts_only_for_the_present_spec(generation: int, observed: Any, status: str, expected: bool) -> None:
    body = {
        "metadata": {"generation": generation},
        "status": {"observedGeneration": observed, "conditions": [{"type": "Ready", "status": status}]},
    }
    assert is_ready(body) is expected
