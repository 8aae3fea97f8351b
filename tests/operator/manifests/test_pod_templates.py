"""A user's pod template merged into the operator's: what it can change, and what it cannot."""

from typing import Any

import pytest

from support.operator.resources import DEFAULTS, meta_with, store_with
from tussock.operator.manifests.backup.restore import restore_manifests
from tussock.operator.manifests.meta import meta_manifests
from tussock.operator.manifests.pod.strategic_merge import insist, strategic_merge
from tussock.operator.manifests.store import store_manifests
from tussock.operator.planning.words.model import workload_in

STORE = store_with({"managed": {}})


def render(template: dict[str, Any]) -> tuple[dict[str, Any], tuple[str, ...]]:
    """The pod template of a `Meta` merged with the user's, and the overruled paths."""
    found = meta_manifests(meta_with(podTemplate=template), STORE, DEFAULTS)
    return workload_in(found.manifests)["spec"]["template"], found.kept


OURS, _ = render({})


def container(**fields: Any) -> dict[str, Any]:
    return {"spec": {"containers": [{"name": "meta", **fields}]}}


def test_lists_of_named_things_are_merged_by_name() -> None:
    """The operator's items stay first and in order, the user's are added, `null` removes a field."""
    base = {"env": [{"name": "A", "value": "1"}, {"name": "B", "value": "2"}], "args": ["x"], "gone": 1}
    patch = {"env": [{"name": "C", "value": "3"}, {"name": "A", "value": "9"}], "args": ["y"], "gone": None}
    assert strategic_merge(base, patch) == {
        "env": [{"name": "A", "value": "9"}, {"name": "B", "value": "2"}, {"name": "C", "value": "3"}],
        "args": ["y"],
    }
    assert base["gone"] == 1


def test_patch_directives_are_ignored() -> None:
    """`$patch: replace` would remove the operator's containers."""
    assert strategic_merge({"a": {"b": 1}}, {"$patch": "replace", "a": {"$patch": "delete", "c": 2}}) == {
        "a": {"b": 1, "c": 2}
    }


def test_a_value_equal_to_the_operators_is_not_reported() -> None:
    """A user may repeat the operator's own values."""
    result, kept = insist({"a": {"b": 1, "c": 2}, "env": [{"name": "A", "value": "1"}]}, {"a": {"b": 1}})
    assert (result["a"], kept) == ({"b": 1, "c": 2}, ())


@pytest.mark.parametrize(
    ("template", "path"),
    [
        (container(livenessProbe=None), "spec.containers[meta].livenessProbe"),
        (container(readinessProbe={"periodSeconds": 3600}), "spec.containers[meta].readinessProbe"),
        (container(startupProbe={"exec": {"command": ["true"]}}), "spec.containers[meta].startupProbe"),
        (container(ports=[{"containerPort": 7370, "name": "other"}]), "spec.containers[meta].ports[7370]"),
        (container(securityContext={"readOnlyRootFilesystem": False}), "spec.containers[meta].securityContext"),
        (container(image="mine"), "spec.containers[meta].image"),
        (container(args=["sleep"]), "spec.containers[meta].args"),
        (container(env=[{"name": "POD_IP", "value": "1.2.3.4"}]), "spec.containers[meta].env[POD_IP]"),
        (
            container(volumeMounts=[{"mountPath": "/etc/tussock/tls", "name": "mine"}]),
            "spec.containers[meta].volumeMounts[/etc/tussock/tls]",
        ),
        ({"spec": {"containers": None}}, "spec.containers[meta]"),
        ({"spec": {"volumes": [{"name": "tls", "secret": {"secretName": "mine"}}]}}, "spec.volumes[tls]"),
        ({"spec": {"securityContext": {"runAsUser": 0}}}, "spec.securityContext.runAsUser"),
        ({"spec": {"securityContext": None}}, "spec.securityContext"),
        ({"spec": {"serviceAccountName": "admin"}}, "spec.serviceAccountName"),
        ({"spec": {"automountServiceAccountToken": True}}, "spec.automountServiceAccountToken"),
        ({"spec": {"terminationGracePeriodSeconds": 0}}, "spec.terminationGracePeriodSeconds"),
        ({"metadata": {"labels": {"tussock.dev/store": "other"}}}, "metadata.labels.tussock.dev/store"),
        (
            {"metadata": {"annotations": {"tussock.dev/config-hash": "0"}}},
            "metadata.annotations.tussock.dev/config-hash",
        ),
    ],
)
def test_values_of_the_operator_win_and_the_path_is_reported(template: dict[str, Any], path: str) -> None:
    """A probe, a port, security, the command, volumes, labels: each is as without the user's template."""
    found, kept = render(template)
    assert kept == (path,)
    if template != {"spec": {"containers": None}}:
        assert found == OURS
    assert found["spec"]["containers"][0]["livenessProbe"] == OURS["spec"]["containers"][0]["livenessProbe"]


@pytest.mark.parametrize(
    "template",
    [
        {"metadata": {"labels": {"team": "streams"}, "annotations": {"a": "b"}}},
        {"spec": {"nodeSelector": {"disk": "fast"}, "tolerations": [{"operator": "Exists"}]}},
        {"spec": {"priorityClassName": "high", "dnsPolicy": "None", "dnsConfig": {"nameservers": ["1.1.1.1"]}}},
        {"spec": {"affinity": {"podAntiAffinity": None, "nodeAffinity": {}}}},
        {"spec": {"topologySpreadConstraints": [{"topologyKey": "rack", "maxSkew": 2}]}},
        {"spec": {"volumes": [{"name": "mine", "configMap": {"name": "x"}}]}},
        container(env=[{"name": "MINE", "valueFrom": {"secretKeyRef": {"name": "s", "key": "k"}}}]),
        container(resources={"limits": {"cpu": "2"}}),
        container(lifecycle={"preStop": {"sleep": {"seconds": 5}}}),
    ],
)
def test_other_fields_are_the_users(template: dict[str, Any]) -> None:
    """The user's value is there, nothing is reported, and fields that it does not mention stay."""
    found, kept = render(template)
    assert kept == ()
    assert found != OURS
    assert strategic_merge(found, template) == found


def test_a_template_never_changes_other_manifests() -> None:
    """Manifests share no parts that a merge could change."""
    before = meta_manifests(meta_with(), STORE, DEFAULTS)
    render(container(env=[{"name": "MINE", "value": "1"}], livenessProbe=None))
    assert meta_manifests(meta_with(), STORE, DEFAULTS) == before


NOT_READY, UNREACHABLE = "node.kubernetes.io/not-ready", "node.kubernetes.io/unreachable"
LEAVING = [
    {"key": key, "operator": "Exists", "effect": "NoExecute", "tolerationSeconds": 5}
    for key in (NOT_READY, UNREACHABLE)
]
STAYING = [{**LEAVING[1], "tolerationSeconds": 900}]


@pytest.mark.parametrize(
    ("given", "added"),
    [
        ([], LEAVING),
        (None, LEAVING),
        ([{"key": "spot", "operator": "Exists"}], LEAVING),
        # Of what a user says of one of the two taints, nothing changes; the other one is ours.
        (STAYING, LEAVING[:1]),
        ([{"key": NOT_READY, "operator": "Exists"}], LEAVING[1:]),
        ([{"operator": "Exists"}], []),
        ([{"operator": "Exists", "effect": "NoExecute", "tolerationSeconds": 60}], []),
        # Such a taint evicts nobody.
        ([{"key": UNREACHABLE, "operator": "Exists", "effect": "NoSchedule"}], LEAVING),
        ([{"operator": "Exists", "effect": "NoSchedule"}], LEAVING),
    ],
)
def test_pods_leave_lost_nodes_unless_a_user_says_when(given: Any, added: list[dict[str, Any]]) -> None:
    """Within seconds, not after the five minutes that Kubernetes gives pods which say nothing of it."""
    found, kept = render({"spec": {"tolerations": given}})
    assert found["spec"]["tolerations"] == [*(given or []), *added]
    assert kept == ()


def test_what_nothing_may_replace_stays_on_a_lost_node() -> None:
    """A StatefulSet makes no other server before it is gone, and an eviction would end one that comes back."""
    found = store_manifests(store_with({"managed": {}}), ["shop"], DEFAULTS, "7")
    [workload] = [manifest for manifest in found.manifests if manifest["kind"] == "StatefulSet"]
    assert "tolerations" not in workload["spec"]["template"]["spec"]


PLACING = {"nodeSelector": {"pool": "disks"}, "tolerations": [{"key": "disks", "operator": "Exists"}]}


def test_the_server_of_a_managed_object_store_takes_a_template() -> None:
    """It is placed as the user asks; its disk and its command stay, and that is reported."""
    stranger = {"name": "minio", "command": ["sh"]}
    template = {"spec": {**PLACING, "containers": [stranger]}}
    found = store_manifests(store_with({"managed": {"podTemplate": template}}), ["shop"], DEFAULTS, "7")
    [workload] = [manifest for manifest in found.manifests if manifest["kind"] == "StatefulSet"]
    spec = workload["spec"]["template"]["spec"]
    assert {name: spec[name] for name in PLACING} == PLACING
    assert spec["containers"][0]["command"] == ["minio"]
    assert found.kept == ("spec.containers[minio].command",)


def test_a_restore_runs_where_the_meta_nodes_may() -> None:
    """It takes no other part of their template: it is another program."""
    template = {"spec": {**PLACING, "containers": [{"name": "shipper", "image": "x"}]}}
    store = store_with({"managed": {}}, "copy", meta={"podTemplate": template})
    _, pod = restore_manifests(store, STORE, "nightly", DEFAULTS)
    assert pod["spec"]["nodeSelector"] == PLACING["nodeSelector"]
    assert pod["spec"]["tolerations"] == [*PLACING["tolerations"], *LEAVING]
    assert [container["name"] for container in pod["spec"]["containers"]] == ["restore"]
