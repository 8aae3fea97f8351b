"""Releases of the chart in a real API server: install, upgrade, uninstall, and what the operator may then do."""

from collections.abc import Sequence
from typing import Any

import pytest
import yaml

from support.kubernetes.helm import Helm
from support.kubernetes.kubectl import Kubectl
from support.waiting import eventually
from tussock.operator.cluster.kinds import CHILDREN, KINDS, RESOURCES

Cluster = tuple[Helm, Kubectl]
CHILD_VERBS = ("get", "list", "watch", "create", "patch", "delete")


def install(cluster: Cluster, namespace: str, **values: object) -> None:
    cluster[0].run_well(
        "upgrade", "--install", "r", str(cluster[0].chart), "-n", namespace, "--create-namespace", values=values
    )


@pytest.fixture(scope="module")
def release(cluster: Cluster) -> Cluster:
    install(cluster, "wide")
    return cluster


def denied_verbs(kubectl: Kubectl, who: str, asked: Sequence[tuple[str, str]], namespace: str) -> list[tuple[str, str]]:
    """The (verb, resource) pairs that the API server denies `who`."""
    reviews = []
    for verb, what in asked:
        resource, _, subresource = what.partition("/")
        plural, _, group = resource.partition(".")
        attributes = {"verb": verb, "resource": plural, "group": group, "subresource": subresource}
        reviews.append(
            {
                "apiVersion": "authorization.k8s.io/v1",
                "kind": "SubjectAccessReview",
                "spec": {"user": who, "resourceAttributes": {**attributes, "namespace": namespace}},
            }
        )
    answers = kubectl.run_well("create", "-o", "yaml", "-f", "-", manifest=reviews)
    items = list(yaml.safe_load_all(answers))
    assert len(items) == len(asked)
    return [need for need, answer in zip(asked, items, strict=True) if not answer["status"]["allowed"]]


def read(kubectl: Kubectl, *arguments: str) -> dict[str, Any]:
    return yaml.safe_load(kubectl.run_well("get", "-o", "yaml", *arguments))


def needs() -> list[tuple[str, str]]:
    """Everything that the operator asks the API server for: (verb, resource)."""
    named = {name: f"{kind.plural}.{kind.group}".rstrip(".") for name, kind in KINDS.items()}
    wanted = [(verb, named[name]) for name in (*CHILDREN, *RESOURCES, "Secret") for verb in CHILD_VERBS]
    wanted += [("patch", f"{named[name]}/status") for name in RESOURCES]
    wanted += [("create", named["Event"]), ("deletecollection", "pods"), ("get", named["Namespace"])]
    return wanted


def test_the_operator_has_the_rights_that_it_needs(release: Cluster) -> None:
    who = "system:serviceaccount:wide:r-operator"
    # The API server's own watch brings it new roles, a moment after they were made.
    eventually(lambda: not denied_verbs(release[1], who, needs(), "anywhere"))
    assert denied_verbs(release[1], who, [("list", "namespaces"), ("get", "secrets")], "anywhere") == []
    assert denied_verbs(release[1], who, [("create", "leases.coordination.k8s.io")], "wide") == []


def test_the_operator_may_do_nothing_else(release: Cluster) -> None:
    beyond = [
        ("create", "leases.coordination.k8s.io"),
        ("create", "pods/exec"),
        ("get", "pods/log"),
        ("delete", "namespaces"),
        ("create", "clusterroles.rbac.authorization.k8s.io"),
        ("bind", "roles.rbac.authorization.k8s.io"),
        ("escalate", "roles.rbac.authorization.k8s.io"),
        ("delete", "events.events.k8s.io"),
        ("impersonate", "users"),
    ]
    assert denied_verbs(release[1], "system:serviceaccount:wide:r-operator", beyond, "anywhere") == beyond


def test_with_named_namespaces_the_operator_has_no_rights_elsewhere(release: Cluster) -> None:
    helm, kubectl = release
    for name in ("mine", "yours"):
        kubectl.run_well("create", "namespace", name)
    helm.run_well(
        *("install", "n", str(helm.chart), "-n", "narrow", "--create-namespace"),
        values={"watchNamespaces": ["mine"], "crds": {"install": False}},
    )
    who = "system:serviceaccount:narrow:n-operator"
    eventually(lambda: not denied_verbs(kubectl, who, needs(), "mine"))
    assert denied_verbs(kubectl, who, needs(), "yours") == needs()
    assert denied_verbs(kubectl, who, [("list", "namespaces")], "mine") == [("list", "namespaces")]


def test_editors_of_a_namespace_may_have_a_store_there(release: Cluster) -> None:
    """The roles join those of Kubernetes by aggregation, which needs a controller, so only the labels are checked."""
    labels = read(release[1], "clusterrole", "wide-r-operator-edit")["metadata"]["labels"]
    assert labels["rbac.authorization.k8s.io/aggregate-to-edit"] == "true"


def test_an_upgrade_changes_images_and_keeps_the_rest(cluster: Cluster) -> None:
    _, kubectl = cluster
    install(cluster, "wide")
    before = read(kubectl, "deployment", "r-operator", "-n", "wide")
    install(cluster, "wide", image={"tag": "next"})
    after = read(kubectl, "deployment", "r-operator", "-n", "wide")
    assert after["metadata"]["uid"] == before["metadata"]["uid"]
    assert after["spec"]["selector"] == before["spec"]["selector"]
    assert after["spec"]["template"]["spec"]["containers"][0]["image"] == "tussock-operator:next"


def test_an_uninstall_leaves_the_definitions_and_resources(cluster: Cluster) -> None:
    """A release that is uninstalled by mistake deletes no store."""
    helm, kubectl = cluster
    install(cluster, "wide")
    kubectl.run_well("wait", "--for=condition=Established", "--timeout=30s", "crd/statestores.tussock.dev")
    store = {
        "apiVersion": "tussock.dev/v1alpha1",
        "kind": "StateStore",
        "metadata": {"name": "s", "namespace": "default"},
        "spec": {"objectStore": {"managed": {}}},
    }
    kubectl.run_well("apply", "--server-side", "-f", "-", manifest=store)
    helm.run_well("uninstall", "r", "-n", "wide")
    assert read(kubectl, "statestore", "s", "-n", "default")["metadata"]["name"] == "s"
    assert "not found" in kubectl("get", "deployment", "r-operator", "-n", "wide").error
    assert "not found" in kubectl("get", "clusterrole", "wide-r-operator").error
    install(cluster, "wide")
