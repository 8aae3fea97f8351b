"""The API server accepts every golden manifest, and admits each of their pods to a restricted namespace."""

import json
from pathlib import Path
from typing import Any

import pytest
from kubernetes import client, config, dynamic

from support.operator import compute_cases
from support.operator.backups.restore_cases import RESTORE_CASES
from support.operator.services.service_cases import SERVICE_CASES, service_manifests_of
from support.operator.store_cases import CASES, manifests_of, pod_templates
from tussock.operator.planning.words.comparison import differences

NAMESPACE = "data"
MANIFESTS = {
    **{case: manifests_of(case) for case in CASES},
    **{f"compute-{case}": compute_cases.manifests_of(case) for case in compute_cases.CASES},
    **{f"service-{case}": service_manifests_of(case) for case in SERVICE_CASES},
}
NOT_BUILT_IN = {"cert-manager.io/v1"}
"""Groups whose definitions a bare API server does not have."""


def namespace_of(manifest: dict[str, Any]) -> str:
    """Where it belongs; that of the store, unless it is of a job elsewhere."""
    return str(manifest["metadata"].get("namespace", NAMESPACE))


@pytest.fixture(scope="module")
def api(api_server: Path) -> dynamic.DynamicClient:
    found = dynamic.DynamicClient(config.new_client_from_config(str(api_server)))
    labels = {"pod-security.kubernetes.io/enforce": "restricted"}
    bodies: list[dict[str, Any]] = [
        *(
            {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name, "labels": labels}}
            for name in sorted({namespace_of(one) for case in MANIFESTS.values() for one in case})
        ),
        # One that the templates of users in the cases name.
        {
            "apiVersion": "scheduling.k8s.io/v1",
            "kind": "PriorityClass",
            "metadata": {"name": "important"},
            "value": 10,
        },
    ]
    for body in bodies:
        resource = found.resources.get(api_version=body["apiVersion"], kind=body["kind"])
        resource.server_side_apply(body=body, field_manager="tests")
    return found


def apply(api: dynamic.DynamicClient, manifest: dict[str, Any]) -> Any:
    """Server-side apply with strict validation that stores nothing."""
    resource = api.resources.get(api_version=manifest["apiVersion"], kind=manifest["kind"])
    options = {"dry_run": "All", "field_manager": "tussock-operator", "field_validation": "Strict"}
    return resource.server_side_apply(body=manifest, namespace=namespace_of(manifest), force_conflicts=True, **options)


@pytest.mark.parametrize("case", MANIFESTS)
def test_manifests_are_accepted(api: dynamic.DynamicClient, case: str) -> None:
    """Strictly: no unknown field, none twice. Requests to cert-manager are left out, which is missing here."""
    taken = 0
    for manifest in MANIFESTS[case]:
        if manifest["apiVersion"] not in NOT_BUILT_IN:
            found = apply(api, manifest)
            assert found.metadata.name == manifest["metadata"]["name"]
            taken += 1
    assert taken >= 5


@pytest.mark.parametrize("case", CASES)
def test_pods_are_admitted(api: dynamic.DynamicClient, case: str) -> None:
    """A namespace that enforces the restricted profile admits each pod."""
    for name, template in pod_templates(case).items():
        metadata = {**template["metadata"], "name": name.rpartition("/")[2]}
        pod = {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": template["spec"]}
        assert apply(api, pod).spec.containers[0].securityContext.readOnlyRootFilesystem is True


@pytest.mark.parametrize("case", RESTORE_CASES)
def test_manifests_of_restores_are_accepted(api: dynamic.DynamicClient, case: str) -> None:
    """The restricted namespace accepts settings and pods of a restore, and the API server keeps every field."""
    for manifest in RESTORE_CASES[case]:
        found = apply(api, manifest).to_dict()
        assert differences(manifest, found) == []


@pytest.mark.parametrize("case", compute_cases.CASES)
def test_executors_are_admitted(api: dynamic.DynamicClient, case: str) -> None:
    """By the template as Spark reads it; what Spark adds does not concern security."""
    (found,) = [one["data"] for one in compute_cases.manifests_of(case) if one["kind"] == "ConfigMap"]
    pod = json.loads(found["executor-pod.json"])
    named = {**pod, "metadata": {**pod["metadata"], "name": "executor"}}
    assert apply(api, named).spec.containers[0].securityContext.readOnlyRootFilesystem is True


@pytest.mark.parametrize("case", SERVICE_CASES)
def test_pods_of_services_are_admitted(api: dynamic.DynamicClient, case: str) -> None:
    """Node and workers, whatever a user's template asks for."""
    for workload in service_manifests_of(case):
        if "template" in workload["spec" if "spec" in workload else "metadata"]:
            template = workload["spec"]["template"]
            pod = {"apiVersion": "v1", "kind": "Pod", **template, "metadata": {**template["metadata"], "name": "pod"}}
            assert apply(api, pod).spec.containers[0].securityContext.readOnlyRootFilesystem is True


def test_admission_refuses_an_unrestricted_pod(api: dynamic.DynamicClient) -> None:
    """The test above can therefore fail."""
    spec = dict(pod_templates("minimal")["Deployment/shop-meta"]["spec"])
    pod = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "open"}, "spec": {**spec, "hostNetwork": True}}
    with pytest.raises(client.ApiException, match="violates PodSecurity"):
        apply(api, pod)


@pytest.mark.parametrize("case", MANIFESTS)
def test_the_server_keeps_what_is_applied(api: dynamic.DynamicClient, case: str) -> None:
    """No value comes back in another form, which would look like an edit and be applied for ever."""
    for manifest in MANIFESTS[case]:
        if manifest["apiVersion"] not in NOT_BUILT_IN:
            assert differences(manifest, apply(api, manifest).to_dict()) == []
