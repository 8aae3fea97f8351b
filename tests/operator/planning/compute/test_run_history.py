"""The history of runs by a schedule: records in the status, limits, pods that stay, and those that go."""

from typing import Any

import pytest

from support.operator.computes import NOW, SCHEDULED_ANNOTATION, World, at, compute
from tussock.operator.planning.compute.runs import DRAINED
from tussock.operator.planning.words.facts import DriverFact
from tussock.operator.planning.words.model import Delete, Ref

HOUR = 3600.0


def hourly(**spec: Any) -> World:
    return World(
        compute(
            mode="Batch",
            schedule="0 * * * *",
            metadata={"creationTimestamp": at(-60)},
            restartPolicy={"type": "Never"},
            **spec,
        )
    )


def run_once(world: World, code: int, seconds: float = 600, message: str = "") -> None:
    """The run of this full hour begins, ends with that code, and it is the next full hour."""
    world.settle()
    world.run()
    world.after(seconds).end(code, message=message)
    world.settle()
    world.after(1).settle()
    world.after(HOUR - seconds - 1)


def results(world: World) -> list[tuple[str, str]]:
    """The hours of the records, and what became of the runs."""
    return [(entry["scheduledTime"][11:16], entry["result"]) for entry in world.job["status"].get("runs", [])]


def pod_of(hour: int) -> str:
    return f"x-driver-20261121-{hour}00"


def test_a_record_tells_start_end_result_and_epoch() -> None:
    """The epoch is what the driver reports while it runs, and what its pod leaves at its end."""
    world = hourly()
    world.settle()
    assert world.job["status"]["runs"] == [{"scheduledTime": at(0), "pod": pod_of(12), "result": "Running"}]
    world.after(5).run()
    world.reported = DriverFact(70, 1, 1763725000000)
    world.settle()
    [going] = world.job["status"]["runs"]
    assert (going["startTime"], going["committedEpoch"]) == (at(5), 70)
    world.reported = None
    world.after(595).end(0, message="committed epoch=90 batch=3 ms=1763725000000\n")
    world.settle()
    assert world.job["status"]["runs"] == [
        {
            "scheduledTime": at(0),
            "pod": pod_of(12),
            "result": "Succeeded",
            "startTime": at(5),
            "completionTime": at(600),
            "exitCode": 0,
            "committedEpoch": 90,
        }
    ]
    assert (world.job["status"]["committedEpoch"], world.job["status"]["committedBatch"]) == (90, 3)


def test_what_a_pod_said_of_its_commit_is_no_failure() -> None:
    """The cause and the trace are as the program wrote them, and an older commit does not replace a newer one."""
    world = hourly()
    world.job["status"] = {"committedEpoch": 100}
    run_once(world, 1, message="ValueError: no\n\nTraceback ...\ncommitted epoch=90 batch=3 ms=1763725000000\n")
    [record] = world.job["status"]["runs"]
    assert (record["message"], record["committedEpoch"]) == ("ValueError: no", 90)
    assert world.job["status"]["lastFailure"]["log"] == "Traceback ..."
    assert world.job["status"]["committedEpoch"] == 100


@pytest.mark.parametrize(
    ("limits", "kept"),
    [
        ({}, [16, 15, 14, 12]),
        ({"successfulRunHistoryLimit": 1, "failedRunHistoryLimit": 2}, [16, 12, 11]),
        ({"successfulRunHistoryLimit": 0}, [12]),
        ({"failedRunHistoryLimit": 0}, [16, 15, 14]),
    ],
    ids=["by default", "fewer", "no successful one", "no failed one"],
)
def test_records_and_pods_beyond_the_limits_go(limits: dict[str, int], kept: list[int]) -> None:
    """Those of 11 and 12 o'clock failed, those of 13 to 16 went well; a limit is for each result, the newest stay."""
    world = hourly(**limits)
    world.job["metadata"]["creationTimestamp"] = at(-HOUR - 60)
    world.now = NOW.replace(hour=11)
    for code in (1, 1, 0, 0, 0, 0):
        run_once(world, code)
    world.now = NOW.replace(hour=16, minute=59)
    world.settle()
    assert [int(hour[:2]) for hour, _ in results(world)] == kept
    assert world.pods == sorted(map(pod_of, kept))
    assert world.plan().status == world.job["status"], "it is at rest"


def test_a_smaller_limit_removes_what_is_too_much() -> None:
    world = hourly()
    for _ in range(3):
        run_once(world, 0)
    world.now = NOW.replace(hour=14, minute=30)
    world.settle()
    assert len(world.pods) == 3
    world.set(successfulRunHistoryLimit=1)
    world.settle()
    assert (world.pods, results(world)) == ([pod_of(14)], [("14:00", "Succeeded")])


@pytest.mark.parametrize("limit", [0, 1])
def test_a_failure_is_told_until_the_next_run_whatever_is_kept_of_it(limit: int) -> None:
    """Also when the pod of a run that went well before it is still there."""
    world = hourly(failedRunHistoryLimit=limit)
    run_once(world, 0)
    run_once(world, 3, message="boom")
    world.now = NOW.replace(hour=13, minute=30)
    for _ in range(2):
        world.settle()
        assert world.reason("Degraded") == ("True", "Failed")
        assert "boom" in world.message()
    assert "The next run is at" in world.message()
    assert world.job["status"]["lastExitCode"] == 3
    assert (pod_of(13) in world.pods) == bool(limit)
    world.now = NOW.replace(hour=14)
    world.settle()
    assert world.reason() == ("False", "Running")


def test_a_pod_goes_after_its_time_to_live_and_its_record_stays() -> None:
    world = hourly(ttlSecondsAfterFinished=900)
    world.settle()
    world.run()
    world.after(600).end(0)
    assert world.settle().again_seconds == 1, "the status has it then"
    assert world.settle().again_seconds == 900
    world.after(899).settle()
    assert world.pods == [pod_of(12)]
    world.after(1).settle()
    assert (world.pods, results(world)) == ([], [("12:00", "Succeeded")])
    assert world.reason() == ("False", "Scheduled")


@pytest.mark.parametrize("code", [0, 1])
def test_the_pod_of_a_job_without_a_schedule_goes_after_its_time_too(code: int) -> None:
    """The job stays as it ended, and is not started again."""
    world = World(compute(mode="Batch", restartPolicy={"type": "Never"}, ttlSecondsAfterFinished=60))
    world.settle()
    world.run()
    world.after(10).end(code, message="boom")
    world.settle()
    assert world.settle().again_seconds == 60
    reason, told = world.reason(), world.message()
    world.after(60).settle()
    assert (world.pods, world.reason()) == ([], reason)
    assert code == 0 or "boom" in world.message()
    assert code or world.message() == told
    world.after(3600).settle()
    assert (world.pods, world.reason()) == ([], reason)


@pytest.mark.parametrize("schedule", ["0 * * * *", ""])
def test_no_pod_goes_before_the_status_says_that_its_run_is_over(schedule: str) -> None:
    """Story: an operator that died between the two would have started a completed run again."""
    spec: dict[str, Any] = {"schedule": schedule, "successfulRunHistoryLimit": 0} if schedule else {}
    world = World(compute(mode="Batch", metadata={"creationTimestamp": at(-60)}, ttlSecondsAfterFinished=0, **spec))
    world.settle()
    world.run()
    world.settle()
    world.after(5).end(0)
    plan = world.plan()
    assert not [action for action in plan.actions if isinstance(action, Delete)]
    assert plan.again_seconds == 1
    world.job["status"] = plan.status
    died = world.plan()
    [gone] = [action.ref for action in died.actions if isinstance(action, Delete)]
    del world.children[gone]
    for _ in range(3):
        world.after(5).settle()
        assert world.pods == []
    assert world.reason()[1] == ("Scheduled" if schedule else "Completed")


def test_a_run_that_waits_for_its_restart_keeps_its_pod() -> None:
    """It is not over, so neither limits nor its time to live concern it."""
    world = hourly(failedRunHistoryLimit=0, ttlSecondsAfterFinished=1)
    world.job["spec"]["restartPolicy"] = {"backoffSeconds": 60, "maxBackoffSeconds": 300}
    world.settle()
    world.run()
    world.after(5).end(1, message="boom")
    world.settle()
    world.after(30).settle()
    assert (world.pods, results(world)) == ([pod_of(12)], [("12:00", "Running")])
    [record] = world.job["status"]["runs"]
    assert (record["failures"], record["message"]) == (1, "boom")


def test_a_run_waits_for_meta_nodes_before_it_starts_again() -> None:
    """Story: its pod had gone when they went away, and its restart was forgotten."""
    world = hourly()
    world.job["spec"]["restartPolicy"] = {"backoffSeconds": 10, "maxBackoffSeconds": 300}
    world.settle()
    world.run()
    world.after(5).end(1, message="boom")
    world.settle()
    del world.children[Ref("Pod", pod_of(12))]
    world.others[Ref("Meta", "s")]["status"]["conditions"][0]["status"] = "False"
    world.after(10).settle()
    world.after(10).settle()
    assert (world.pods, world.reason()) == ([], ("False", "WaitingForMeta"))
    world.others[Ref("Meta", "s")]["status"]["conditions"][0]["status"] = "True"
    world.settle()
    assert world.pods == [pod_of(12)]
    assert world.driver()["metadata"]["annotations"]["tussock.dev/failures"] == "1"


def test_a_run_whose_pod_is_gone_before_its_end_starts_again() -> None:
    """As after a drained node; the next run is another one."""
    world = hourly()
    world.settle()
    world.run()
    world.settle()
    del world.children[Ref("Pod", pod_of(12))]
    world.after(60).settle()
    assert world.pods == [pod_of(12)]
    assert world.driver()["metadata"]["annotations"][SCHEDULED_ANNOTATION] == at(0)
    assert results(world) == [("12:00", "Running")]


def test_a_run_that_is_replaced_was_stopped() -> None:
    world = hourly(concurrencyPolicy="Replace")
    world.settle()
    world.run()
    world.after(HOUR).settle()
    assert results(world) == [("13:00", "Running"), ("12:00", "Stopped")]
    assert world.job["status"]["runs"][1]["message"].endswith(f"another run began at {at(HOUR)}.")
    world.run()
    world.after(HOUR)
    world.driver(pod_of(13))["metadata"]["deletionTimestamp"] = at(HOUR)
    world.end(DRAINED, pod_of(13))
    world.settle()
    assert results(world)[1:] == [("13:00", "Stopped")], "the limit for failed runs is 1"


def test_a_run_that_a_suspension_stopped_is_not_continued() -> None:
    """The next one does its work; pods and records of runs that are over stay meanwhile."""
    world = hourly()
    run_once(world, 0)
    world.settle()
    world.run()
    world.after(60).set(suspend=True)
    assert Delete(Ref("Pod", pod_of(13))) in world.plan().actions
    world.settle()
    assert world.reason() == ("False", "Suspended")
    assert (world.pods, results(world)) == ([pod_of(12)], [("13:00", "Stopped"), ("12:00", "Succeeded")])
    world.set(suspend=False)
    world.settle()
    assert (world.pods, world.reason()) == ([pod_of(12)], ("False", "Scheduled"))
    world.after(HOUR).settle()
    assert pod_of(14) in world.pods


def test_records_live_without_their_pods_and_pods_without_their_records() -> None:
    """A status that was lost comes back from the pods; a pod that was deleted leaves its record."""
    world = hourly()
    run_once(world, 0)
    run_once(world, 1)
    world.now = NOW.replace(hour=13, minute=30)
    world.settle()
    before = world.job["status"]["runs"]
    world.job["status"] = {}
    world.settle()
    assert world.job["status"]["runs"] == before
    for pod in list(world.pods):
        del world.children[Ref("Pod", pod)]
    world.settle()
    assert (world.job["status"]["runs"], world.pods) == (before, [])


def test_what_others_wrote_into_the_records_counts_as_absent() -> None:
    world = hourly()
    run_once(world, 0)
    runs = world.job["status"]["runs"]
    world.job["status"]["runs"] = [{"result": "Running"}, {"scheduledTime": at(-9), "result": "Lost"}, *runs]
    world.now = NOW.replace(minute=30)
    world.settle()
    assert world.job["status"]["runs"] == runs


def test_the_pod_of_another_owner_is_no_run_and_stays() -> None:
    """A copy of an ended driver has its labels, and its time; only the owner's uid makes it the job's."""
    world = hourly(successfulRunHistoryLimit=0)
    run_once(world, 0)
    world.now = NOW.replace(minute=30)
    twin = hourly()
    run_once(twin, 0)
    copy = twin.driver()
    copy["metadata"]["ownerReferences"][0]["uid"] = "another"
    world.children[Ref("Pod", "copy")] = copy
    world.settle()
    assert (world.pods, results(world)) == (["copy"], [])


def test_without_its_schedule_a_job_keeps_the_newest_pod_alone() -> None:
    """The run that goes on decides, whatever ended before it."""
    world = hourly()
    run_once(world, 0)
    world.settle()
    world.run()
    del world.job["spec"]["schedule"]
    world.set()
    world.children[Ref("Pod", pod_of(13))]["metadata"]["deletionTimestamp"] = at(HOUR)
    world.settle()
    assert world.pods == [pod_of(13)]
    assert "runs" not in world.job["status"]
    assert world.reason() == ("False", "Draining")


def test_a_pod_from_before_the_schedule_stays_until_the_first_run() -> None:
    world = World(compute(mode="Batch", metadata={"creationTimestamp": at(-60)}))
    world.settle()
    world.run()
    world.after(10).end(0)
    world.settle()
    world.set(schedule="0 * * * *")
    world.job["metadata"]["creationTimestamp"] = at(1)
    world.settle()
    assert world.pods == ["x-driver"]
    world.now = NOW.replace(hour=13)
    world.settle()
    world.run(pod_of(13))
    world.settle()
    assert world.pods == [pod_of(13)]


def test_a_deletion_waits_for_the_driver_and_takes_all_pods() -> None:
    world = hourly()
    run_once(world, 0)
    world.settle()
    world.run()
    world.job["metadata"]["deletionTimestamp"] = at(HOUR)
    plan = world.plan()
    assert {action.ref.name for action in plan.actions if isinstance(action, Delete)} == {pod_of(12), pod_of(13)}
    assert pod_of(13) in plan.status["conditions"][0]["message"]
