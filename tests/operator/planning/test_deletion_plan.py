"""The plan for taking a store down: its steps in order, and an end in any case."""

from datetime import UTC, datetime
from typing import Any

import pytest

from tussock.operator.planning.deletion import EmptiedFact, depart, leaves_bucket, lost_backups_event, untouched_fact
from tussock.operator.planning.words.conditions import Reason
from tussock.operator.planning.words.model import Delete, Ref, Release
from tussock.operator.resources.store import StoreResource, parse_store

NOW = datetime(2026, 11, 21, 12, tzinfo=UTC)
S3 = {"s3": {"bucket": "b"}}
LABELS = {
    "app.kubernetes.io/managed-by": "tussock-operator",
    "tussock.dev/owner-kind": "StateStore",
    "tussock.dev/owner": "s",
}


def child(*owners: str, **more: str) -> dict[str, Any]:
    """An object with the labels of the store's children, and with owners of these uids."""
    return {"metadata": {"name": "x", "labels": LABELS, "ownerReferences": [{"uid": uid} for uid in owners], **more}}


PARTS = {Ref(kind, "s"): child("1") for kind in ("Meta", "Compactor", "NetworkPolicy")}
NODES = (Delete(Ref("Compactor", "s")), Delete(Ref("Meta", "s")))
END = (*NODES, Release())
DONE = EmptiedFact(done=True)
STUCK = EmptiedFact(done=False, message="the bucket is away.", stuck=True)
HOPELESS = STUCK._replace(hopeless=True)
BUSY = EmptiedFact(done=False, message="the operator has deleted 1000 objects in this run, and more are left.")


def store(seconds_ago: int, policy: str = "Delete", **backend: Any) -> StoreResource:
    """A store that was deleted `seconds_ago`, with a deadline of 60 s."""
    deleted = datetime.fromtimestamp(NOW.timestamp() - seconds_ago, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
    spec = {"objectStore": backend or S3, "deletionPolicy": policy, "deletionDeadlineSeconds": 60}
    metadata = {"name": "s", "namespace": "n", "uid": "1", "deletionTimestamp": deleted}
    return parse_store({"metadata": metadata, "spec": spec})


def pod(name: str, component: str) -> dict[str, Any]:
    return {"metadata": {"name": name, "labels": {"app.kubernetes.io/component": component}}}


STEPS: dict[str, tuple[int, list[dict[str, Any]], EmptiedFact | None, Any, Reason]] = {
    "jobs drain first": (5, [pod("d", "compute"), pod("m", "meta")], None, (), Reason.DRAINING),
    "then nodes go": (5, [pod("m", "meta"), pod("c", "compactor")], None, NODES, Reason.DELETING),
    "the object store's server is no node": (5, [pod("o", "minio")], None, NODES, Reason.DELETING),
    "then the bucket": (5, [], BUSY, NODES, Reason.DELETING),
    "an obstacle in the bucket is waited for": (5, [], STUCK, NODES, Reason.DELETING),
    "one that nobody can put right is not": (5, [], HOPELESS, (*NODES, Release()), Reason.DELETION_GAVE_UP),
    "and that waits for pods": (5, [pod("m", "meta")], HOPELESS, NODES, Reason.DELETING),
    "then it goes": (5, [], EmptiedFact(done=True), (*NODES, Release()), Reason.DELETING),
    "late, and getting on": (99, [], BUSY, NODES, Reason.DELETING),
    "late, and stuck in the bucket": (99, [], STUCK, (*NODES, Release()), Reason.DELETION_GAVE_UP),
    "late, and a job does not end": (99, [pod("d", "compute")], None, NODES, Reason.DELETING),
    "late, and a node does not end": (99, [pod("m", "meta")], BUSY, NODES, Reason.DELETING),
    "late, a job does not end, and the rest is done": (99, [pod("d", "compute")], DONE, END, Reason.DELETION_GAVE_UP),
    "late, a node does not end, and the bucket is stuck": (99, [pod("m", "meta")], STUCK, END, Reason.DELETION_GAVE_UP),
    "late, a node does not end, and hopeless": (99, [pod("m", "meta")], HOPELESS, END, Reason.DELETION_GAVE_UP),
    "late, and done": (99, [], DONE, END, Reason.DELETING),
    "late, and nobody has looked": (99, [], None, NODES, Reason.DELETING),
    "nobody could look for long": (999, [], None, END, Reason.DELETION_GAVE_UP),
}


@pytest.mark.parametrize(("seconds", "pods", "emptied", "actions", "reason"), STEPS.values(), ids=STEPS)
def test_the_next_step_of_a_deletion(
    seconds: int, pods: list[dict[str, Any]], emptied: EmptiedFact | None, actions: Any, reason: Reason
) -> None:
    found = depart(store(seconds), pods, PARTS, emptied, NOW)
    assert (found.actions, found.verdict.reason) == (actions, reason)
    assert found.verdict.degraded is (reason is Reason.DELETION_GAVE_UP)


@pytest.mark.parametrize("owners", [(), ("another",)])
def test_a_deletion_leaves_copies_of_the_stores_children(owners: tuple[str, ...]) -> None:
    """Story: a copy of a Meta under another name, for another store, was deleted with the store of the original."""
    copies = {Ref(kind, "copy"): child(*owners) for kind in ("Meta", "Compactor")}
    restores = {Ref("Pod", "s-restore"): child(*owners)}
    assert depart(store(5), [], {**PARTS, **copies, **restores}, DONE, NOW).actions == END
    own = {Ref("Pod", "s-restore"): child("another", "1")}
    assert Delete(Ref("Pod", "s-restore")) in depart(store(5), [], {**PARTS, **own}, DONE, NOW).actions


def test_a_node_that_goes_already_is_not_deleted_again() -> None:
    going = {Ref("Meta", "s"): child("1", deletionTimestamp="2026-11-21T11:59:00Z")}
    assert depart(store(5), [], {**PARTS, **going}, DONE, NOW).actions == (Delete(Ref("Compactor", "s")), Release())


def test_the_deletion_names_what_it_waits_for() -> None:
    many = [pod(f"d{number}", "compute") for number in range(8)]
    assert "d0, d1, d2, d3, d4 and 3 more" in depart(store(1), many, {}, None, NOW).verdict.message
    given_up = depart(store(99), [pod("d", "compute")], {}, DONE, NOW).verdict.message
    assert "60 s" in given_up
    assert "Pods have not ended: d" in given_up
    assert "without cleaning up" not in given_up
    both = depart(store(99), [pod("d", "compute")], {}, STUCK, NOW).verdict.message
    assert "Pods have not ended: d" in both
    assert "without cleaning up: the bucket is away." in both
    assert "the bucket is away" in depart(store(99), [], {}, STUCK, NOW).verdict.message


@pytest.mark.parametrize(("policy", "tells"), [("Delete", True), ("Retain", False)])
def test_a_store_that_never_had_its_prefix_touches_nothing(policy: str, tells: bool) -> None:
    """A store that was refused because of another one goes at once, whatever its policy is."""
    found = depart(store(1, policy), [], {}, untouched_fact(store(1, policy), ["n/first"]), NOW)
    assert found.actions == (Release(),)
    assert ("s3://b belongs to StateStore n/first, and the operator changed nothing" in found.verdict.message) is tells


@pytest.mark.parametrize(
    ("backend", "policy", "nothing_to_clean"),
    [
        ({"s3": {"bucket": "b"}}, "Retain", False),
        ({"s3": {"bucket": "b"}}, "Delete", False),
        ({"volume": {"size": "1Gi"}}, "Retain", True),
        ({"volume": {"size": "1Gi"}}, "Delete", True),
        ({"managed": {}}, "Retain", False),
        ({"managed": {}}, "Delete", True),
        ({"managed": {"ephemeral": True}}, "Retain", True),
    ],
)
def test_only_a_bucket_that_stays_is_cleaned_up(backend: dict[str, Any], policy: str, nothing_to_clean: bool) -> None:
    """A disk that goes with its claim need not be emptied."""
    one = store(5, policy, **backend)
    assert leaves_bucket(one) is nothing_to_clean
    assert (Release() in depart(one, [], {}, None, NOW).actions) is nothing_to_clean


@pytest.mark.parametrize(
    ("backend", "policy", "goes"),
    [
        ({"managed": {}}, "Delete", True),
        ({"managed": {"ephemeral": True}}, "Retain", True),
        ({"managed": {}}, "Retain", False),
        ({"volume": {"size": "1Gi"}}, "Delete", True),
        ({"volume": {"claimName": "mine"}}, "Delete", False),
        (S3, "Delete", False),
    ],
)
def test_backups_on_a_disk_that_is_deleted_are_named(backend: dict[str, Any], policy: str, goes: bool) -> None:
    def of(name: str, store: str) -> tuple[Ref, dict[str, Any]]:
        status = {"backups": [{"name": f"{name}-1"}, {"name": f"{name}-2"}]}
        return Ref("StateStoreBackup", name), {"spec": {"storeRef": {"name": store}}, "status": status}

    found = lost_backups_event(store(1, policy, **backend), dict([of("nightly", "s"), of("others", "t")]))
    told = "nightly-1 (StateStoreBackup nightly), nightly-2 (StateStoreBackup nightly)"
    assert [(one.reason, told in one.message, "others" in one.message) for one in found] == [
        ("BackupsGo", True, False)
    ] * goes
    assert lost_backups_event(store(1, policy, **backend), {}) == ()
