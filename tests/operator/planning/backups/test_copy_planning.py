"""Copies of backups in another bucket, and drills: the pod, its status, retention, and crashes at every action."""

from datetime import timedelta
from typing import Any

import pytest

from golden.write_manifests import COPIES, text_of
from support.operator.backups.copy_case import CONFIG, POD, SECRET, CopyCase
from support.operator.backups.copy_cases import COPY_CASES
from support.operator.computes import DEFAULTS, at
from tussock.operator.planning.words.model import Apply, Delete, Plan, Ref


def of(plan: Plan) -> tuple[str, str, str]:
    """Ready, Degraded, the reason."""
    held = {one["type"]: one for one in plan.status["conditions"]}
    return held["Ready"]["status"], held["Degraded"]["status"], held["Ready"]["reason"]


def told(plan: Plan) -> str:
    return str(plan.status["conditions"][0]["message"])


@pytest.mark.parametrize("case", COPY_CASES)
def test_manifests_of_copies_are_those_of_the_file(case: str) -> None:
    """Byte for byte; after an intended change run `tests/golden/write_manifests.py`."""
    assert text_of(list(COPY_CASES[case])) == (COPIES / f"{case}.yaml").read_text(encoding="utf-8")


def test_no_golden_copy_is_left_over() -> None:
    assert {path.stem for path in COPIES.iterdir()} == set(COPY_CASES)


def test_a_backup_is_copied_once() -> None:
    """It is ready once the copy is there; the pod goes, and does not come back."""
    case = CopyCase()
    plan = case.settle()
    assert (of(plan), set(case.children)) == (("False", "False", "Running"), {POD, CONFIG})
    name = case.name()
    assert case.arguments[:7] == ["backup", "copy", name, "--to", "s3://elsewhere/shop", "--store", "s3://tussock"]
    assert "--verify" not in case.arguments
    case.pod_is("Running")
    assert f"is running to copy backup {name} to s3://elsewhere/shop at https://far" in told(case.settle())
    plan = case.succeed()
    assert (of(plan), case.children, case.copied()) == (("True", "False", "Completed"), {}, {name: True})
    assert (plan.status["destination"], plan.status["copies"]) == ("s3://elsewhere/shop at https://far", 1)
    assert plan.status["lastCopyTime"] == at(60)
    assert "lastVerifyTime" not in plan.status
    assert case.settle().actions[1:] == ()


@pytest.mark.parametrize("with_destination", [True, False])
def test_a_drill_is_noted_with_its_time(with_destination: bool) -> None:
    """The copy is read or, without a destination, the backup in the store, with the store's own credentials."""
    case = CopyCase(verify=True, **({} if with_destination else {"destination": None}))
    case.settle()
    if with_destination:
        assert "--verify" in case.arguments
    else:
        assert case.arguments == ["backup", "verify", case.name(), "--store", "s3://tussock", "--json"]
    plan = case.succeed()
    assert (of(plan), case.children) == (("True", "False", "Completed"), {})
    assert plan.status["lastVerifyTime"] == at(60)
    assert plan.status["backups"][0]["verifyTime"] == at(60)
    assert ("copies" in plan.status) is with_destination
    assert case.settle().actions[1:] == ()


def test_a_drill_that_is_asked_for_later_reads_what_is_there() -> None:
    case = CopyCase()
    case.settle()
    case.succeed()
    case.body["spec"]["verify"] = True
    case.settle()
    assert "--verify" in case.arguments
    assert case.succeed(at(120)).status["lastVerifyTime"] == at(120)


def schedule(**spec: Any) -> CopyCase:
    return CopyCase(schedule="*/10 * * * *", **spec)


def test_retention_deletes_copies_before_their_backups() -> None:
    """With the pod of the next copy; a copy that was never finished is among them."""
    case = schedule(retention={"count": 2})
    names: list[str] = []
    for _ in range(4):
        case.settle()
        names.append(case.arguments[2])
        drops = [one for at_, one in enumerate(case.arguments) if case.arguments[at_ - 1] == "--delete"]
        assert drops == names[-3:-2]
        assert case.dropped == names[: max(0, len(names) - 3)]
        case.succeed()
        case.now += timedelta(minutes=10)
    assert case.dropped == names[:2]
    assert case.copied() == {names[3]: True, names[2]: True}


def test_a_smaller_retention_needs_no_new_backup() -> None:
    case = schedule()
    for _ in range(3):
        case.settle()
        case.succeed()
        case.now += timedelta(minutes=10)
    case.now -= timedelta(minutes=10)
    case.body["spec"]["retention"] = {"count": 1}
    case.settle()
    assert case.arguments.count("--delete") == 2
    assert case.dropped == []
    case.succeed()
    assert len(case.dropped) == 2
    assert (case.children, list(case.copied().values())) == ({}, [True])


def test_missed_copies_are_made_up_for_newest_first() -> None:
    """The destination was away for some time."""
    case = schedule()
    held = []
    for _ in range(3):
        case.settle()
        held.append(case.arguments[2])
        case.pod_is("Pending")
        case.now += timedelta(minutes=10)
    assert held == held[:1] * 3, "one copy at a time, to its end"
    made = []
    for _ in range(3):
        case.settle()
        made.append(case.arguments[2])
        case.succeed()
    assert case.held is not None
    names = [one.name for one in case.held]
    assert made == [names[0], names[-1], names[-2]]


def test_a_slow_copy_of_an_expired_backup_comes_to_its_end() -> None:
    """Retention of one, and copies that take longer than the schedule's interval."""
    case = schedule(retention={"count": 1})
    case.settle()
    first = case.arguments[2]
    case.pod_is("Running")
    for _ in range(3):
        case.now += timedelta(minutes=10)
        case.settle()
        assert case.arguments[2] == first
    assert first not in case.dropped
    case.succeed()
    assert case.arguments[2] != first
    assert first in case.arguments


@pytest.mark.parametrize("until", [0, 1, 2, 3])
def test_a_crash_at_any_action_does_no_harm(until: int) -> None:
    """The operator dies after some actions of a pass, before its status, again and again; then it goes on."""
    case = schedule(retention={"count": 1})
    for _ in range(3):
        for _ in range(4):
            case.pass_(until=until)
        case.settle()
        ended = {"terminated": {"exitCode": 0, "finishedAt": at(60)}}
        case.pod_is("Succeeded", containerStatuses=[{"name": "backup", "state": ended}])
        case.pass_(until=until)
        case.settle()
        case.now += timedelta(minutes=10)
    assert case.held is not None
    assert (len(case.held), len(case.dropped), case.children) == (1, 2, {})
    assert list(case.copied().values()) == [True]


def test_a_lost_status_copies_again_what_is_there() -> None:
    """The command finds everything there."""
    case = CopyCase()
    case.settle()
    case.succeed()
    case.body["status"] = {}
    case.settle()
    assert case.arguments[2] == case.name()
    case.succeed()
    assert case.copied() == {case.name(): True}


def test_marks_of_another_place_do_not_count() -> None:
    """A definition that forbids the change may be an older one, or the status edited."""
    case = CopyCase()
    case.settle()
    case.succeed()
    case.body["spec"]["destination"] = {"gcs": {"bucket": "other"}}
    case.settle()
    assert "gs://other" in case.arguments


def test_a_failing_copy_says_why_and_backups_go_on() -> None:
    case = schedule()
    case.settle()
    case.succeed()
    case.now += timedelta(minutes=10)
    case.settle()
    last = {"lastState": {"terminated": {"exitCode": 1, "message": "s3://elsewhere/shop: access denied\n"}}}
    case.pod_is("Running", containerStatuses=[{"name": "backup", **last}])
    plan = case.settle()
    assert of(plan) == ("True", "True", "BackupFailed")
    assert "access denied. It tries again." in told(plan)
    case.now += timedelta(minutes=10)
    case.settle()
    assert case.held is not None
    assert len(case.held) == 3


def test_a_copy_that_fails_again_and_again_makes_room() -> None:
    """An SST of the backup is damaged in the store: a newer backup may be without it, and is copied."""
    case = schedule(retention={"count": 1})
    case.settle()
    first = case.arguments[2]
    failed = {"lastState": {"terminated": {"exitCode": 1, "message": "checksum mismatch"}}}
    waits = {"state": {"waiting": {"reason": "CrashLoopBackOff"}}, "restartCount": 5}
    case.pod_is("Running", containerStatuses=[{"name": "backup", **failed, **waits}])
    assert of(case.settle())[2] == "BackupFailed"
    assert case.arguments[2] == first, "there is no other backup yet"
    case.now += timedelta(minutes=10)
    case.settle()
    assert case.arguments[2] != first
    assert case.arguments[-3:] == ["--delete", first, "--json"]
    case.succeed()
    assert case.dropped == [first], "with what it had brought"


@pytest.mark.parametrize("loss", ["evicted", "settings", "image", "backup"])
def test_a_pod_that_is_lost_or_out_of_date_is_replaced(loss: str) -> None:
    case = schedule()
    case.settle()
    case.pod_is("Running")
    case.settle()
    if loss == "evicted":
        case.pod_is("Failed", reason="Evicted")
    elif loss == "settings":
        del case.children[CONFIG]
    elif loss == "image":
        case.defaults = DEFAULTS._replace(node_image="localhost/tussock-node:next")
    else:
        case.now += timedelta(minutes=10)
        case.pass_()
        assert case.held is not None
        case.held = case.held[1:]
    plan = case.pass_()
    assert case.children == {}
    assert of(plan)[1:] == ("False", "Running")
    case.settle()
    assert set(case.children) == {POD, CONFIG}
    assert "status" not in case.children[POD]


@pytest.mark.parametrize(
    ("gap", "reason", "said"),
    [
        ("secret", "SecretNotFound", "There is no Secret k in namespace team, from which the copy takes"),
        ("key", "SecretKeyMissing", "has no key secret-access-key"),
        ("image", "ImagePullFailed", "cannot pull image"),
        ("overlap", "InvalidSpec", "overlaps with the place of StateStore s"),
        ("around", "InvalidSpec", "overlaps with the place of StateStore s"),
    ],
)
def test_what_is_in_the_way_of_a_copy_is_told(gap: str, reason: str, said: str) -> None:
    """The backup in the store is made in any case."""
    case = CopyCase()
    if gap == "secret":
        del case.others[Ref("Secret", "k")]
    elif gap == "key":
        case.others[Ref("Secret", "k")] = {**SECRET, "data": {"access-key-id": ""}}
    elif gap in ("overlap", "around"):
        s3 = {"bucket": "elsewhere", "endpoint": "https://far/", "prefix": "shop/data" if gap == "overlap" else ""}
        case.others[Ref("StateStore", "s")]["spec"]["objectStore"] = {"s3": s3}
    plan = case.settle()
    if gap == "image":
        waiting = {"waiting": {"reason": "ErrImagePull", "message": "not found"}}
        case.pod_is("Pending", containerStatuses=[{"name": "backup", "image": "i", "state": waiting}])
        plan = case.settle()
    assert of(plan) == ("False", "True", reason)
    assert said in told(plan)
    assert case.held is not None
    assert len(case.held) == 1


@pytest.mark.parametrize("gate", ["suspend", "paused", "not-listed", "no-store"])
def test_nothing_is_begun_while_something_is_in_the_way(gate: str) -> None:
    """A pod that runs already is left alone."""
    for begun in (False, True):
        case = schedule()
        case.pass_()
        if begun:
            case.settle()
            case.pod_is("Running")
        if gate == "suspend":
            case.body["spec"]["suspend"] = True
        elif gate == "paused":
            case.others[Ref("StateStore", "s")]["spec"]["paused"] = True
        elif gate == "not-listed":
            case.held = None
        else:
            del case.others[Ref("StateStore", "s")]
        case.settle()
        assert set(case.children) == ({POD, CONFIG} if begun else set())


def test_an_object_of_somebody_else_is_not_taken_for_the_pod() -> None:
    """It has the name, and not our owner: nothing of it is deleted, and it is no proof of a copy."""
    case = CopyCase()
    case.pass_()
    foreign = {"kind": "Pod", "metadata": {"name": POD.name, "labels": {}}, "status": {"phase": "Succeeded"}}
    plan = case.plan()
    case.children[POD] = foreign
    plan = case.plan()
    assert not [action for action in plan.actions if isinstance(action, Delete)]
    assert case.body["status"].get("copies") == 0


def test_copies_stay_when_the_object_goes() -> None:
    """With either policy: they are for the time after it."""
    for policy in ("Retain", "Delete"):
        case = CopyCase(deletionPolicy=policy)
        case.settle()
        case.succeed()
        case.body["metadata"]["deletionTimestamp"] = at(70)
        plan = case.plan()
        assert not [action for action in plan.actions if isinstance(action, Apply)]
        assert plan.status["destination"] == "s3://elsewhere/shop at https://far"
