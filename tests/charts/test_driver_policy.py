"""The chart's policy at a real API server: a driver's account may make executors of its job and no other pod."""

import copy
import json
from collections.abc import Callable
from typing import Any

import pytest

from support.kubernetes.helm import Helm
from support.kubernetes.kubectl import Kubectl
from support.operator.compute_cases import ADDRESSES, CASES, compute_with
from support.operator.process import eventually
from support.operator.resources import DEFAULTS
from tussock.operator.manifests.compute.conf import EXECUTOR_POD_FILE
from tussock.operator.manifests.compute.job import compute_manifests
from tussock.operator.resources.compute import Compute
from tussock.operator.resources.store import StoreResource

Pod = dict[str, Any]
NAMESPACE = "data"
DRIVER, SHARED = "orders-driver", "bucket-user"

WITH_SECRETS, WITH_IDENTITY = CASES["production"][0], CASES["identity"][0]
JOBS: dict[str, tuple[StoreResource, Compute]] = {
    "orders": (WITH_SECRETS, compute_with("orders", env=CASES["production"][1].spec.env)),
    "totals": (WITH_SECRETS, compute_with("totals", env=[])),
    "left": (WITH_IDENTITY, compute_with("left")),
    "right": (WITH_IDENTITY, compute_with("right")),
}


def manifests(job: str) -> list[dict[str, Any]]:
    store, compute = JOBS[job]
    found = copy.deepcopy(compute_manifests(compute, store, ADDRESSES, DEFAULTS).manifests)
    for one in found:
        one["metadata"].pop("ownerReferences", None)
    return list(found)


def executor(job: str) -> Pod:
    """A pod as Spark makes it: by the template, with a name, a command and variables."""
    [files] = [one["data"] for one in manifests(job) if one["kind"] == "ConfigMap"]
    pod = json.loads(files[EXECUTOR_POD_FILE])
    pod["metadata"]["name"] = "orders-exec-1"
    pod["spec"]["containers"][0]["args"] = ["executor"]
    pod["spec"]["containers"][0]["env"].append({"name": "SPARK_EXECUTOR_ID", "value": "1"})
    return pod


@pytest.fixture(scope="module")
def kubectl(cluster: tuple[Helm, Kubectl]) -> Kubectl:
    """The policy in force, with the rights of four jobs, two of which share an account."""
    helm, kubectl = cluster
    values = {"crds": {"install": False}}
    helm.run_well("upgrade", "--install", "p", str(helm.chart), "-n", "policy", "--create-namespace", values=values)
    kubectl.run_well("create", "namespace", NAMESPACE)
    rights = [one for job in JOBS for one in manifests(job) if one["kind"] in ("Role", "RoleBinding")]
    kubectl.run_well("apply", "--server-side", "-n", NAMESPACE, "-f", "-", manifest=rights)
    eventually("a policy in force", lambda: refusal(kubectl, DRIVER, {**executor("orders"), "metadata": {"name": "x"}}))
    return kubectl


def refusal(kubectl: Kubectl, account: str, pod: Pod) -> str:
    """Why the API server refuses a pod that an account makes; empty if it admits it. No pod is created."""
    who = f"--as=system:serviceaccount:{NAMESPACE}:{account}" if account else ""
    asked = ["create", "--dry-run=server", "-n", NAMESPACE, "-f", "-", *([who] if who else [])]
    return kubectl(*asked, manifest=pod).error


@pytest.mark.parametrize("job", JOBS)
def test_executors_of_a_job_pass(kubectl: Kubectl, job: str) -> None:
    account = JOBS[job][0].spec.object_store.backend.service_account or f"{job}-driver"
    assert refusal(kubectl, account, executor(job)) == ""


def _volume(**source: Any) -> Callable[[Pod], None]:
    def change(pod: Pod) -> None:
        pod["spec"]["volumes"].append({"name": "more", **source})

    return change


def _container(**fields: Any) -> Callable[[Pod], None]:
    def change(pod: Pod) -> None:
        pod["spec"]["containers"].append({"name": "more", "image": "any", **fields})

    return change


def _first(**fields: Any) -> Callable[[Pod], None]:
    def change(pod: Pod) -> None:
        pod["spec"]["initContainers"] = [{"name": "more", "image": "any", **fields}]

    return change


def _spec(**fields: Any) -> Callable[[Pod], None]:
    return lambda pod: pod["spec"].update(fields)


def _labels(**labels: str | None) -> Callable[[Pod], None]:
    def change(pod: Pod) -> None:
        for key, value in labels.items():
            name = f"tussock.dev/{key}" if key != "component" else "app.kubernetes.io/component"
            pod["metadata"]["labels"].pop(name)
            pod["metadata"]["labels"] |= {name: value} if value else {}

    return change


_COPY = {"spec": {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}}}}
_OF_CLAIM = {"kind": "PersistentVolumeClaim", "name": "shop-store"}
_ENV = [{"name": "KEY", "valueFrom": {"secretKeyRef": {"name": "shop-ca", "key": "tls.key"}}}]
FORBIDDEN: dict[str, tuple[Callable[[Pod], None], str]] = {
    "CA": (_volume(secret={"secretName": "shop-ca"}), "Secrets"),
    "admin": (_volume(secret={"secretName": "shop-client-admin-tls"}), "Secrets"),
    "bucket": (_volume(projected={"sources": [{"secret": {"name": "bucket-keys"}}]}), "Secrets"),
    "driver": (_volume(csi={"driver": "d", "nodePublishSecretRef": {"name": "bucket-keys"}}), "Secrets"),
    "variable": (_container(env=_ENV), "Secrets"),
    "variables": (_container(envFrom=[{"secretRef": {"name": "shop-client-admin-tls"}}]), "Secrets"),
    "first container": (_first(env=_ENV), "Secrets"),
    "file server": (_volume(azureFile={"secretName": "shop-ca", "shareName": "s"}), "kinds"),
    "node": (_volume(hostPath={"path": "/"}), "volume of the node"),
    "claim": (_volume(persistentVolumeClaim={"claimName": "shop-store"}), "claims"),
    "copy": (
        _volume(ephemeral={"volumeClaimTemplate": {"spec": {**_COPY["spec"], "dataSource": _OF_CLAIM}}}),
        "claims",
    ),
    "network": (_spec(hostNetwork=True), "namespace of the node"),
    "processes": (_spec(hostPID=True), "namespace of the node"),
    "privileged": (_container(securityContext={"privileged": True}), "privileges"),
    "privileged first": (_first(securityContext={"privileged": True}), "privileges"),
    "account": (_spec(serviceAccountName="tussock-operator"), "run as the account default"),
    "its own account": (_spec(serviceAccountName=DRIVER), "run as the account default"),
    "no job": (_labels(owner=None), "labels"),
    "meta": (_labels(component="meta"), "labels"),
    "driver's label": (_labels(role="driver"), "labels"),
    "another job": (_labels(owner="totals"), "does not drive Compute totals"),
    "no such job": (_labels(owner="none"), "does not drive Compute none"),
}


@pytest.mark.parametrize("case", FORBIDDEN)
def test_other_pods_of_a_driver_are_refused(kubectl: Kubectl, case: str) -> None:
    """Each pod would give the driver's program more than it has; other accounts may make the same pod."""
    change, told = FORBIDDEN[case]
    pod = executor("orders")
    change(pod)
    said = refusal(kubectl, DRIVER, pod)
    assert "p-operator-drivers" in said
    assert told in said
    assert refusal(kubectl, "", pod) == ""


def test_secrets_that_the_job_has_anyhow_pass(kubectl: Kubectl) -> None:
    """The writer's certificate and the variables' sources pass, as in the job's template; another job's do not."""
    pod = executor("orders")
    _volume(secret={"secretName": "kafka"})(pod)
    assert refusal(kubectl, DRIVER, pod) == ""
    other = executor("totals")
    _volume(secret={"secretName": "kafka"})(other)
    assert "Secrets" in refusal(kubectl, "totals-driver", other)


def test_jobs_that_share_an_account_are_distinguished(kubectl: Kubectl) -> None:
    """The policy holds each pod to the needs of its job, and lets pass nothing that no job of the account has."""
    for job in ("left", "right"):
        pod = executor(job)
        assert refusal(kubectl, SHARED, pod) == ""
        _volume(secret={"secretName": "shop-ca"})(pod)
        assert "Secrets" in refusal(kubectl, SHARED, pod)
    assert "does not drive" in refusal(kubectl, SHARED, executor("orders"))


def test_the_policy_can_be_left_out(render: Callable[..., dict[tuple[str, str], dict]]) -> None:
    """For installers without rights on the cluster; with named namespaces it holds in these alone."""
    binding = "ValidatingAdmissionPolicyBinding", "system-r-operator-drivers"
    assert not [kind for kind, _ in render(driverPolicy=False) if "Admission" in kind]
    assert "matchResources" not in render()[binding]["spec"]
    [named] = render(watchNamespaces=["a"])[binding]["spec"]["matchResources"]["namespaceSelector"]["matchExpressions"]
    assert named["values"] == ["a"]
