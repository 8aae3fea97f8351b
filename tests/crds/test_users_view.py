"""The kinds as users see them through kubectl: explanations, columns, scale, and the objects of a store."""

import json
import re
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from support.kubernetes.kubectl import Kubectl

pytestmark = pytest.mark.slow

COMPUTE = {"storeRef": {"name": "shop"}, "application": {"file": "/opt/app/job.py"}}
SPECS: dict[str, dict[str, Any]] = {
    "StateStore": {"objectStore": {"managed": {}}},
    "Meta": {"storeRef": {"name": "shop"}, "replicas": 3},
    "Compactor": {"storeRef": {"name": "shop"}, "replicas": 2, "slots": 4},
    "Compute": COMPUTE,
    "StateStoreBackup": {"storeRef": {"name": "shop"}, "schedule": "@daily"},
    "StateStoreClient": {"storeRef": {"name": "shop"}, "role": "reader", "expiresAt": "2030-01-01T00:00:00Z"},
}


def body(kind: str, name: str, spec: dict[str, Any]) -> dict[str, Any]:
    return {"apiVersion": "tussock.dev/v1alpha1", "kind": kind, "metadata": {"name": name}, "spec": spec}


def conditions(ready: str, reason: str, message: str) -> list[dict[str, str]]:
    """One condition, as the operator writes it."""
    moment = datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
    return [{"type": "Ready", "status": ready, "reason": reason, "message": message, "lastTransitionTime": moment}]


def ago(seconds: int) -> str:
    """A point of time before now, as the API writes it."""
    return (datetime.now(UTC) - timedelta(seconds=seconds)).strftime("%Y-%m-%dT%H:%M:%SZ")


@pytest.fixture
def objects(kubectl: Kubectl) -> Iterator[None]:
    """One object of each kind, named `shop`."""
    bodies = [body(kind, "shop", spec) for kind, spec in SPECS.items()]
    kubectl.run_well("create", "-f", "-", manifest=bodies)
    yield
    kubectl.run_well("delete", "-f", "-", manifest=bodies)


def set_status(kubectl: Kubectl, kind: str, status: dict[str, Any]) -> None:
    patch = json.dumps({"status": status})
    kubectl.run_well("patch", kind, "shop", "--subresource=status", "--type=merge", "-p", patch)


def table(kubectl: Kubectl, *arguments: str) -> tuple[list[str], list[str]]:
    """Headings and the one row that `kubectl get` prints; columns are two spaces apart at least."""
    heading, row = kubectl.run_well("get", *arguments).splitlines()
    # By place, as one heading may be a part of another one.
    found = list(re.finditer(r"\S+(?: \S+)*", heading))
    names, starts = [one[0] for one in found], [one.start() for one in found]
    ends = [*starts[1:], len(row) + 1]
    return names, [row[start:end].strip() for start, end in zip(starts, ends, strict=True)]


STATUSES: dict[str, tuple[dict[str, Any], list[str], list[str]]] = {
    "tss": (
        {
            "conditions": conditions("True", "Ready", "all is well"),
            "meta": {"readyReplicas": 3},
            "compactor": {"readyReplicas": 2},
            "compute": {"ready": 1, "total": 1},
            "committedEpoch": 7042,
            "committedTime": ago(86400 * 10),
        },
        ["NAME", "READY", "REASON", "META", "COMPACTORS", "COMPUTES", "LAG", "AGE"],
        ["shop", "True", "Ready", "3", "2", "1", "10d"],
    ),
    "tsm": (
        {
            "conditions": conditions("True", "RollingOut", "2 of 3 nodes have the new image"),
            "readyReplicas": 3,
            "leader": "shop-meta-6b7f-x2x9k",
            "committedEpoch": 7042,
            "committedTime": ago(86400 * 10),
        },
        ["NAME", "READY", "REASON", "REPLICAS", "AVAILABLE", "LEADER", "LAG", "AGE"],
        ["shop", "True", "RollingOut", "3", "3", "shop-meta-6b7f-x2x9k", "10d"],
    ),
    "tsc": (
        {"conditions": conditions("False", "Unschedulable", "too little cpu"), "readyReplicas": 1, "runningTasks": 3},
        ["NAME", "READY", "REASON", "REPLICAS", "AVAILABLE", "SLOTS", "TASKS", "AGE"],
        ["shop", "False", "Unschedulable", "2", "1", "4", "3"],
    ),
    "tsx": (
        {
            "conditions": conditions("False", "BackingOff", "again in 20 s"),
            "replicas": 1,
            "restarts": 4,
            "committedEpoch": 7042,
            "committedTime": ago(86400 * 10),
            "service": {"waiting": 3},
        },
        ["NAME", "READY", "REASON", "MODE", "REPLICAS", "RESTARTS", "LAG", "WAITING", "AGE"],
        ["shop", "False", "BackingOff", "Streaming", "1", "4", "10d", "3"],
    ),
    "tsb": (
        {
            "conditions": conditions("True", "Scheduled", "next at 03:00"),
            "count": 7,
            "epoch": 7042,
            "lastBackupTime": ago(86400 * 10),
        },
        ["NAME", "READY", "REASON", "STORE", "SCHEDULE", "BACKUPS", "LAST", "AGE"],
        ["shop", "True", "Scheduled", "shop", "@daily", "7", "10d"],
    ),
    "tscl": (
        {"conditions": conditions("True", "Ready", "may call as shop"), "secretName": "shop-client-tls"},
        ["NAME", "READY", "REASON", "STORE", "ROLE", "SECRET", "EXPIRES", "AGE"],
        ["shop", "True", "Ready", "shop", "reader", "shop-client-tls", "2030-01-01T00:00:00Z"],
    ),
}


@pytest.mark.parametrize("kind", STATUSES)
def test_columns_tell_the_state(kubectl: Kubectl, objects: None, kind: str) -> None:
    """`kubectl get` shows the object's state under its short name; `-o wide` ends with the message."""
    status, headings, cells = STATUSES[kind]
    set_status(kubectl, kind, status)
    names, row = table(kubectl, kind, "shop")
    assert names == headings
    assert row[:-1] == cells
    names, row = table(kubectl, kind, "shop", "-o", "wide")
    assert (names[-1], row[-1]) == ("MESSAGE", status["conditions"][0]["message"])
    if "committedEpoch" in status:
        shown = dict(zip(names, row, strict=True))
        assert (shown["EPOCH"], shown["COMMITTED"]) == ("7042", status["committedTime"])


def test_category_shows_all_kinds(kubectl: Kubectl, objects: None) -> None:
    """`kubectl get tussock` names every object of every kind."""
    shown = kubectl.run_well("get", "tussock", "-o", "name").split()
    assert sorted(shown) == sorted(f"{kind.lower()}.tussock.dev/shop" for kind in SPECS)


def test_a_field_selector_finds_the_computes_of_a_store(kubectl: Kubectl, objects: None) -> None:
    """A field selector finds the computes of a store, and only those."""
    kubectl.run_well("create", "-f", "-", manifest=body("Compute", "other", COMPUTE | {"storeRef": {"name": "other"}}))
    found = kubectl.run_well("get", "tsx", "--field-selector", "spec.storeRef.name=shop", "-o", "name")
    kubectl.run_well("delete", "tsx", "other")
    assert found.split() == ["compute.tussock.dev/shop"]


@pytest.mark.parametrize(("kind", "path"), [("tsc", "{.spec.replicas}"), ("tsx", "{.spec.executor.replicas}")])
def test_kubectl_scale_sets_the_number(kubectl: Kubectl, objects: None, kind: str, path: str) -> None:
    """`kubectl scale` sets the number, and what an autoscaler asks for is in the scale subresource."""
    set_status(kubectl, kind, {"replicas": 2, "selector": "tussock.dev/owner=shop"})
    kubectl.run_well("scale", kind, "shop", "--replicas=5")
    assert kubectl.run_well("get", kind, "shop", "-o", f"jsonpath={path}") == "5"
    scale = json.loads(kubectl.run_well("get", kind, "shop", "--subresource=scale", "-o", "json"))
    assert scale["spec"] == {"replicas": 5}
    assert scale["status"] == {"replicas": 2, "selector": "tussock.dev/owner=shop"}


def test_a_section_without_a_number_leaves_scaling_alone(kubectl: Kubectl) -> None:
    """Other clients may set a field of a Compactor that the StateStore's section leaves out; the rest is put back."""

    def apply_section(section: dict[str, Any]) -> str:
        told = body("Compactor", "sectioned", {"storeRef": {"name": "sectioned"}, **section})
        flags = ("--server-side", "--field-manager=tussock-operator", "--force-conflicts")
        kubectl.run_well("apply", *flags, "-f", "-", manifest=told)
        return kubectl.run_well("get", "tsc", "sectioned", "-o", "jsonpath={.spec.replicas}")

    assert apply_section({"slots": 2}) == "1"
    kubectl.run_well("scale", "tsc", "sectioned", "--replicas=5")
    assert apply_section({"slots": 4}) == "5"
    assert apply_section({"slots": 4, "replicas": 2}) == "2"
    kubectl.run_well("delete", "tsc", "sectioned")


def test_scale_is_held_to_the_limits_of_the_schema(kubectl: Kubectl, objects: None) -> None:
    """`kubectl scale` is refused what the schema forbids."""
    answer = kubectl("scale", "tsc", "shop", "--replicas=1001")
    assert answer.code != 0
    assert "should be less than or equal to 1000" in answer.error


def test_scale_is_refused_where_spark_chooses(kubectl: Kubectl) -> None:
    """With a range Spark chooses the number of executors, and `kubectl scale` is refused with that reason."""
    spec = COMPUTE | {"executor": {"minReplicas": 1, "maxReplicas": 3}}
    kubectl.run_well("create", "-f", "-", manifest=body("Compute", "elastic", spec))
    answer = kubectl("scale", "tsx", "elastic", "--replicas=2")
    kubectl.run_well("delete", "tsx", "elastic")
    assert answer.code != 0
    assert "give replicas, or minReplicas and maxReplicas, not both" in answer.error


def test_status_is_apart_from_the_spec(kubectl: Kubectl, objects: None) -> None:
    """Writing a manifest can't write the status with it, and a new status doesn't raise the generation."""
    told = body("Meta", "shop", SPECS["Meta"]) | {"status": {"leader": "me"}}
    kubectl.run_well("replace", "-f", "-", manifest=told)
    set_status(kubectl, "tsm", {"term": 3})
    found = json.loads(kubectl.run_well("get", "tsm", "shop", "-o", "json"))
    assert found["status"] == {"term": 3}
    assert found["metadata"]["generation"] == 1


def test_a_second_condition_of_a_type_is_refused(kubectl: Kubectl, objects: None) -> None:
    """A second `Ready` is refused, and so is a type that the documents don't name."""
    twice = conditions("True", "Ready", "yes") + conditions("False", "Failed", "no")
    odd = [{**twice[0], "type": "Odd"}]
    for wrong, told in ((twice, "Duplicate value"), (odd, "Unsupported value")):
        patch = json.dumps({"status": {"conditions": wrong}})
        answer = kubectl("patch", "tss", "shop", "--subresource=status", "--type=merge", "-p", patch)
        assert answer.code != 0
        assert told in answer.error


def fields_without_text(schema: dict[str, Any], path: str) -> list[str]:
    """Fields of a published schema without a text."""
    found = []
    for name, field in schema.get("properties", {}).items():
        if (path, name) != ("", "metadata"):
            found += [] if field.get("description") else [f"{path}.{name}"]
            found += fields_without_text(field.get("items", field), f"{path}.{name}")
    return found


@pytest.mark.parametrize("kind", SPECS)
def test_every_field_is_explained(kubectl: Kubectl, kind: str) -> None:
    """What the server publishes, of which `kubectl explain` makes its text, describes every field."""
    published = json.loads(kubectl.run_well("get", "--raw", "/openapi/v3/apis/tussock.dev/v1alpha1"))
    schema = published["components"]["schemas"][f"dev.tussock.v1alpha1.{kind}"]
    assert schema["description"]
    assert fields_without_text(schema, "") == []


@pytest.mark.parametrize(
    ("path", "told"),
    [
        ("statestore.spec.objectStore", "exactly one of s3, gcs, azure, volume"),
        ("statestore.spec.objectStore.s3.credentialsSecret", "A Secret of the same namespace with a key pair."),
        ("statestore.spec.objectStore.s3.readerCredentialsSecret", "Meta nodes hand it to clients that may only read"),
        ("tsm.spec.config.leader.lease_seconds", "Seconds that a leader leads without renewing its lease"),
        ("tsc.spec.podTemplate", "as kubectl patch"),
        ("tsx.spec.executor.replicas", "kubectl scale and autoscalers change this field"),
        ("tsb.spec.retention", "one stays if count or seconds keeps it"),
        ("tss.status.conditions.reason", "The reason in one word"),
    ],
)
def test_kubectl_explain_knows_every_kind(kubectl: Kubectl, path: str, told: str) -> None:
    """`kubectl explain` describes long and short names, down to the last field."""
    assert told in " ".join(kubectl.run_well("explain", path).split())
