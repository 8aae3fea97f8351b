"""A job in another namespace than its store, at a real API server with a real operator."""

import base64
from pathlib import Path
from typing import Any

import pytest
from cryptography import x509

from support.operator.kubelet import Kubelet, job
from support.operator.process import Body, Objects, OperatorProcess, eventually
from support.operator.stores_in_cluster import serving, unprobed_store
from tussock.operator.certificates.issue import certificates_in

pytestmark = pytest.mark.timeout(180)
KINDS = ("Pod", "Secret", "ConfigMap", "Role", "RoleBinding", "Service", "NetworkPolicy", "PersistentVolumeClaim")


def file_of(objects: Objects, store: str) -> str:
    return str((objects.get("ConfigMap", f"{store}-meta") or {})["data"]["clients.toml"])


def uris(secret: Body) -> list[str]:
    leaf = certificates_in(base64.b64decode(secret["data"]["tls.crt"]).decode())[0]
    names = leaf.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    return names.get_values_for_type(x509.UniformResourceIdentifier)


def made_in(objects: Objects) -> set[tuple[str, str]]:
    """All that the operator has made there."""
    return {
        (kind, one["metadata"]["name"])
        for kind in KINDS
        for one in objects.list(kind)
        if (one["metadata"].get("labels") or {}).get("app.kubernetes.io/managed-by") == "tussock-operator"
    }


def test_a_job_of_another_namespace_comes_and_goes_with_the_grant(
    name: str, objects: Objects, definitions: Path, tmp_path: Path
) -> None:
    """What it needs is made beside it, and no key of the store's; without the grant its driver stops."""
    far = Objects(definitions, f"{objects.namespace}-far")
    far.make_namespace()
    # The store's workload identity, which pods find by its name in their own namespace.
    far.apply({"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": "buckets"}})
    operator = OperatorProcess(definitions, tmp_path, objects.namespace, far.namespace, lease=objects.namespace)
    operator.keep()
    platform = serving(objects, unprobed_store(name, tls={"mode": "managed"}))
    spec: dict[str, Any] = {"storeRef": {"name": platform, "namespace": objects.namespace}}
    far.apply(job(platform, "totals", **spec))
    assert far.namespace in far.await_reason("Compute", "totals", "StoreNotGranted")["message"]
    assert made_in(far) == set()

    objects.patch("StateStore", platform, {"spec": {"allowedNamespaces": [far.namespace]}})
    kubelet = Kubelet(far, "totals")
    first = kubelet.uid()
    secrets = {one["metadata"]["name"]: one for one in far.list("Secret")}
    assert set(secrets) == {"totals-driver-tls", "totals-spark"}
    assert uris(secrets["totals-driver-tls"]) == [
        f"tussock://{objects.namespace}/{platform}/job/{far.namespace}/totals"
    ]
    assert f'[clients."compute/{far.namespace}/totals"]' in file_of(objects, platform)
    pod = kubelet.pod()
    assert pod is not None
    labels = pod["metadata"]["labels"]
    assert "tussock.dev/store" not in labels
    assert labels["tussock.dev/far-store"] == platform
    assert labels["tussock.dev/far-store-namespace"] == objects.namespace
    env = {one["name"]: one.get("value") for one in pod["spec"]["containers"][0]["env"]}
    assert env["TUSSOCK_STORE"] == f"tussock://{platform}-meta.{objects.namespace}.svc:7370"
    kubelet.runs()
    far.await_reason("Compute", "totals", "Ready")
    eventually(
        "the store's count",
        lambda: (objects.get("StateStore", platform) or {})["status"]["compute"] == {"total": 1, "ready": 1},
    )

    objects.patch("StateStore", platform, {"spec": {"allowedNamespaces": []}})
    far.await_reason("Compute", "totals", "StoreNotGranted")
    assert "totals" not in file_of(objects, platform)
    eventually("no driver", lambda: kubelet.pod() is None)
    objects.patch("StateStore", platform, {"spec": {"allowedNamespaces": [far.namespace]}})
    kubelet.another(first)

    far.delete("Compute", "totals")
    eventually("the object gone", lambda: far.get("Compute", "totals") is None)
    assert "totals" not in file_of(objects, platform)
    for kind, made in made_in(far):
        # Here no controller deletes what has lost its owner.
        owners = (far.get(kind, made) or {})["metadata"].get("ownerReferences") or []
        assert [one["kind"] for one in owners] == ["Compute"], (kind, made)
    assert operator.stop() == 0
    assert "Traceback" not in operator.log()


def test_a_store_that_is_deleted_waits_for_its_jobs_elsewhere(
    name: str, objects: Objects, definitions: Path, tmp_path: Path
) -> None:
    """Their drivers stop first; a job that stays behind has no store, and nothing of it is started."""
    far = Objects(definitions, f"{objects.namespace}-far")
    far.make_namespace()
    far.apply({"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": "buckets"}})
    operator = OperatorProcess(definitions, tmp_path, objects.namespace, far.namespace, lease=objects.namespace)
    operator.keep()
    body = unprobed_store(name, tls={"mode": "managed"}, allowedNamespaces=[far.namespace], deletionDeadlineSeconds=30)
    platform = serving(objects, body)
    far.apply(job(platform, "totals", storeRef={"name": platform, "namespace": objects.namespace}))
    kubelet = Kubelet(far, "totals")
    kubelet.uid()
    kubelet.runs()
    far.await_reason("Compute", "totals", "Ready")
    far.bind(kubelet.pod_name, "node")
    objects.delete("StateStore", platform)
    far.await_reason("Compute", "totals", "Deleting")
    message = objects.await_reason("StateStore", platform, "Draining")["message"]
    assert f"{far.namespace}/{kubelet.pod_name}" in message
    assert objects.get("Meta", platform) is not None
    kubelet.ends(143)
    kubelet.delete_pod()
    eventually("no more waiting", lambda: reason_of(objects, platform) != "Draining")
    assert operator.stop() == 0
    assert "Traceback" not in operator.log()


def reason_of(objects: Objects, store: str) -> str:
    conditions = ((objects.get("StateStore", store) or {}).get("status") or {}).get("conditions") or []
    return next((str(one["reason"]) for one in conditions if one["type"] == "Ready"), "")
