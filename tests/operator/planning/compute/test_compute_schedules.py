"""Batches with a schedule: the start of a run, runs that take too long, and runs that fail."""

from datetime import datetime

import pytest

from support.operator.computes import NOW, SCHEDULED_ANNOTATION, World, at, compute
from tussock.operator.planning.compute.runs import FAILURES_ANNOTATION, RESTARTS_ANNOTATION
from tussock.operator.planning.words.model import Ref

CREATED = at(-60)
"""12:00 is NOW, and the schedule names every full hour."""


def hourly(policy: str = "Forbid", **spec: object) -> World:
    return World(
        compute(
            mode="Batch",
            schedule="0 * * * *",
            concurrencyPolicy=policy,
            metadata={"creationTimestamp": CREATED},
            **spec,
        )
    )


def test_nothing_runs_before_its_time() -> None:
    """A schedule that was made a minute ago makes up for no earlier time."""
    world = hourly()
    world.now = NOW.replace(hour=11, minute=59, second=30)
    plan = world.settle()
    assert world.pods == []
    assert world.reason() == ("False", "Scheduled")
    assert world.job["status"]["nextScheduleTime"] == at(0)
    assert plan.again_seconds == 30


def test_a_run_begins_at_its_time_and_the_next_one_after_it() -> None:
    """Each has its own pod, and that of the last one stays for its log."""
    world = hourly()
    world.settle()
    assert world.pods == ["x-driver-20261121-1200"]
    assert world.driver()["metadata"]["annotations"][SCHEDULED_ANNOTATION] == at(0)
    assert world.job["status"]["lastScheduleTime"] == at(0)
    world.run()
    world.settle()
    assert world.reason("Progressing") == ("True", "Running")
    world.after(600).end(0)
    world.settle()
    assert world.reason() == ("False", "Scheduled")
    assert (world.job["status"]["lastExitCode"], world.pods) == (0, ["x-driver-20261121-1200"])
    world.after(3000).settle()
    assert world.pods == ["x-driver-20261121-1200", "x-driver-20261121-1300"]
    assert world.driver()["metadata"]["annotations"][SCHEDULED_ANNOTATION] == at(3600)
    assert "status" not in world.driver()


def test_missed_times_are_made_up_for_once() -> None:
    """The operator was away from 12:00 to 16:20."""
    world = hourly().after(4 * 3600 + 1200)
    world.settle()
    assert world.driver()["metadata"]["annotations"][SCHEDULED_ANNOTATION] == at(4 * 3600)
    world.run()
    world.after(60).end(0)
    world.settle()
    world.after(60).settle()
    assert world.driver()["status"]["phase"] == "Succeeded", "the other three are not run"


@pytest.mark.parametrize("policy", ["Forbid", "Replace"])
def test_a_run_that_is_still_running_at_the_next_time_follows_the_policy(policy: str) -> None:
    """Forbid waits for its end, Replace stops it; there are never two."""
    world = hourly(policy)
    world.settle()
    [first] = world.pods
    world.run(first)
    world.after(3600).settle()
    second = {"Forbid": at(0), "Replace": at(3600)}[policy]
    assert world.driver()["metadata"]["annotations"][SCHEDULED_ANNOTATION] == second
    assert len(world.pods) == 1
    if policy == "Forbid":
        world.after(60).end(0)
        world.settle()
        assert world.driver()["metadata"]["annotations"][SCHEDULED_ANNOTATION] == at(3600), "made up for at once"


def test_a_run_that_fails_is_started_again_for_the_same_time() -> None:
    """The restart policy decides; it keeps its time, and counts its failures."""
    world = hourly(restartPolicy={"backoffSeconds": 10, "maxBackoffSeconds": 300, "maxRestarts": 1})
    world.settle()
    world.run()
    world.after(5).end(1, message="boom")
    plan = world.settle()
    assert world.reason() == ("False", "DriverFailed")
    assert plan.again_seconds == 10
    world.after(10).settle()
    assert world.driver()["metadata"]["annotations"][SCHEDULED_ANNOTATION] == at(0)
    assert world.driver()["metadata"]["annotations"]["tussock.dev/failures"] == "1"
    world.run()
    world.after(5).end(1, message="boom")
    world.settle()
    assert world.reason("Degraded") == ("True", "Failed")
    assert "The next run is at" in world.message()
    world.now = datetime.fromisoformat(at(3600))
    world.settle()
    assert world.driver()["metadata"]["annotations"]["tussock.dev/failures"] == "0"
    assert world.job["status"]["failures"] == 0


def test_a_run_waits_for_the_platform() -> None:
    world = hourly()
    world.settled[Ref("Compactor", "s")] = False
    world.settle()
    assert (world.pods, world.reason()) == ([], ("False", "WaitingForCompactors"))
    world.settled[Ref("Compactor", "s")] = True
    world.after(600).settle()
    assert world.driver()["metadata"]["annotations"][SCHEDULED_ANNOTATION] == at(0)


def test_a_suspended_schedule_runs_nothing_and_later_makes_up_for_one_time() -> None:
    world = hourly(suspend=True)
    world.after(3 * 3600).settle()
    assert (world.pods, world.reason()) == ([], ("False", "Suspended"))
    world.set(suspend=False)
    world.settle()
    assert world.driver()["metadata"]["annotations"][SCHEDULED_ANNOTATION] == at(3 * 3600)


@pytest.mark.parametrize("text", ["2026-11-24T13:00:00+99:00", "soon", "-7", "9" * 5000])
def test_what_others_wrote_into_a_drivers_annotations_counts_as_absent(text: str) -> None:
    """Times and numbers there are the operator's, but anybody with the right may edit them."""
    world = hourly()
    world.settle()
    world.run()
    names = (SCHEDULED_ANNOTATION, FAILURES_ANNOTATION, RESTARTS_ANNOTATION)
    world.driver()["metadata"]["annotations"].update(dict.fromkeys(names, text))
    world.after(600).end(0)
    world.settle()
    assert world.reason() == ("False", "Scheduled")
    assert (world.job["status"]["restarts"], world.job["status"]["failures"]) == (0, 0)


def test_times_in_a_status_that_do_not_exist_count_as_absent() -> None:
    world = hourly()
    world.job["status"] = dict.fromkeys(("lastScheduleTime", "nextRestartTime"), "2026-11-24T13:00:00+99:00")
    world.settle()
    assert world.job["status"]["lastScheduleTime"] == at(0)
