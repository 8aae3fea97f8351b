"""The operator's picture of the cluster: the newest state from any source, and nothing of objects that are gone."""

from typing import Any

import pytest

from tussock.operator.cluster.seen import TOMBSTONES_MAX, Key, Seen, slim
from tussock.operator.planning.words.model import Ref

OWNER = Key("Meta", "n", "m")
LABELS = {
    "app.kubernetes.io/managed-by": "tussock-operator",
    "tussock.dev/owner-kind": "Meta",
    "tussock.dev/owner": "m",
}


def body(name: str = "x", version: int = 1, uid: str = "", labels: dict[str, str] | None = None) -> dict[str, Any]:
    metadata = {"name": name, "namespace": "n", "uid": uid or name, "resourceVersion": str(version)}
    return {"metadata": {**metadata, "labels": LABELS if labels is None else labels}}


def version_of(seen: Seen, name: str = "x") -> str:
    found = seen.get("Service", "n", name)
    return str(found["metadata"]["resourceVersion"]) if found else ""


def test_the_newest_state_counts_in_any_order() -> None:
    """An event may report an older state than the answer to the operator's own write; it comes later and is ignored."""
    seen = Seen()
    seen.put("Service", body(version=9))
    seen.put("Service", body(version=10))
    seen.put("Service", body(version=9))
    assert version_of(seen) == "10"


def test_children_are_found_by_their_owner() -> None:
    seen = Seen()
    seen.put("Service", body("a"))
    seen.put("Pod", body("b"))
    seen.put("Pod", body("c", labels={}))
    assert set(seen.children(OWNER)) == {Ref("Service", "a"), Ref("Pod", "b")}
    assert seen.children(Key("Meta", "other", "m")) == {}


@pytest.mark.parametrize("label", LABELS)
def test_a_child_has_all_three_labels(label: str) -> None:
    """Story: a Meta of another store, with two of them, was deleted with the store that they named."""
    seen = Seen()
    seen.put("Meta", body(labels={name: value for name, value in LABELS.items() if name != label}))
    assert seen.children(OWNER) == {}
    assert seen.get("Meta", "n", "x") is not None


def test_a_child_that_loses_its_labels_is_no_child_any_more() -> None:
    seen = Seen()
    seen.put("Service", body(version=1))
    seen.put("Service", body(version=2, labels={}))
    assert seen.children(OWNER) == {}
    assert version_of(seen) == "2"


def test_a_deleted_object_does_not_come_back_with_a_late_answer() -> None:
    """The answer to an apply may come after the event of the object's deletion."""
    seen = Seen()
    seen.put("Service", body(version=1))
    seen.drop("Service", body(version=3))
    seen.put("Service", body(version=2))
    assert version_of(seen) == ""
    assert seen.children(OWNER) == {}
    seen.put("Service", body(version=4, uid="another"))
    assert version_of(seen) == "4"


def test_an_object_that_gets_its_labels_back_is_there_again() -> None:
    """A watch by labels reports their loss as a deletion; the uid stays, and the answer to a write may come first."""
    seen = Seen()
    seen.put("Service", body(version=1))
    seen.drop("Service", body(version=2))
    assert version_of(seen) == ""
    seen.put("Service", body(version=3))
    assert (version_of(seen), set(seen.children(OWNER))) == ("3", {Ref("Service", "x")})
    seen.drop("Service", body(version=2))
    assert version_of(seen) == "3"
    found = seen.sweep("Service", None, [body(version=4)], seen.uids("Service"))
    assert found.stale == {("x", "4")}
    seen.drop("Service", body(version=5))
    assert (version_of(seen), seen.children(OWNER)) == ("", {})


def test_the_end_of_an_object_spares_the_next_one_of_its_name() -> None:
    seen = Seen()
    seen.put("Service", body(version=5, uid="new"))
    seen.drop("Service", body(version=4, uid="old"))
    assert version_of(seen) == "5"


def test_few_deletions_are_remembered() -> None:
    seen = Seen()
    for number in range(TOMBSTONES_MAX + 10):
        seen.drop("Service", body(uid=str(number)))
    seen.put("Service", body(uid="0"))
    assert version_of(seen) == "1"


def test_a_sweep_forgets_objects_that_are_not_listed() -> None:
    """Objects that were reported after the list was requested stay."""
    seen = Seen()
    for name in ("gone", "there"):
        seen.put("Service", body(name))
    before = seen.uids("Service")
    seen.put("Service", body("new"))
    found = seen.sweep("Service", None, [body("there")], before)
    assert [one["metadata"]["name"] for one in found.gone] == ["gone"]
    assert found.stale == set()
    assert [version_of(seen, name) for name in ("gone", "there", "new")] == ["", "1", "1"]


def test_a_sweep_finds_unreported_objects() -> None:
    """New objects, and newer states, which the watch should have reported by the next sweep."""
    seen = Seen()
    seen.put("Service", body("changed", version=1))
    found = seen.sweep("Service", None, [body("changed", version=2), body("new")], seen.uids("Service"))
    assert found.stale == {("changed", "2"), ("new", "1")}


def test_values_of_secrets_are_not_kept() -> None:
    """The copy in the annotation of `kubectl apply` is not kept, either."""
    secret = body()
    secret["data"] = {"password": "c2VjcmV0"}
    last = "kubectl.kubernetes.io/last-applied-configuration"
    secret["metadata"]["annotations"] = {last: '{"data": {"password": "c2VjcmV0"}}', "a": "b"}
    secret["metadata"]["managedFields"] = [{"manager": "x"}]
    kept = slim("Secret", secret)
    assert kept["data"] == {"password": ""}
    assert kept["metadata"]["annotations"] == {"a": "b"}
    assert "c2VjcmV0" not in str(kept)
    assert "managedFields" not in kept["metadata"]


def test_nonsense_in_a_status_is_not_remembered() -> None:
    """The API server takes times that do not exist, and lists that lack a condition; no plan can use them."""
    seen = Seen()
    ready = {"type": "Ready", "status": "True", "reason": "Ready", "message": ""}
    status = {"count": 3, "lastScheduleTime": "2026-11-24T13:00:00+99:00", "conditions": [ready]}
    seen.put("StateStoreBackup", {**body("b"), "status": status})
    found = seen.get("StateStoreBackup", "n", "b")
    assert found is not None
    assert found["status"] == {"count": 3}
