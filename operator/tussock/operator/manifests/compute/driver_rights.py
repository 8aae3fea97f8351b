"""The rights of a driver's account: it may handle pods, and create only its own job's executors.

Kubernetes' roles cannot limit which pods an account may create, and a pod can mount any Secret of its namespace: that
of a CA, of an admin's certificate, of the bucket. So the chart has an admission policy (`templates/driver_policy.yaml`)
that accepts from a driver's account only pods which run as executors do and refer to what executors need. It finds the
account, and what is allowed, in the RoleBinding that is made here; only the operator has to know the jobs.

An account that several jobs share (`serviceAccount` of the store) has a binding for each. A pod's labels name its job;
the verb `drive`, which the Role gives for this job alone, shows whether the job belongs to the account.
"""

from collections.abc import Iterator, Mapping
from typing import Any

from tussock.operator.manifests.bucket_access import client_access
from tussock.operator.manifests.compute.pods import driver_name
from tussock.operator.manifests.labels import Manifest, metadata
from tussock.operator.resources.compute import Compute
from tussock.operator.resources.store import StoreResource

__all__ = ["ACCOUNT_ANNOTATION", "CLAIMS_ANNOTATION", "SECRETS_ANNOTATION", "driver_rights"]

ACCOUNT_ANNOTATION = "tussock.dev/executor-account"
"""On the RoleBinding: the account of the executors."""
SECRETS_ANNOTATION = "tussock.dev/executor-secrets"
"""The Secrets that they may refer to, separated by commas."""
CLAIMS_ANNOTATION = "tussock.dev/executor-claims"
"""The claims that they may mount, separated by commas."""

_VERBS = ("create", "get", "list", "watch", "delete", "deletecollection")
_SETTINGS = "spark.kubernetes.executor."


def driver_rights(
    compute: Compute, store: StoreResource, executor: Manifest, conf: Mapping[str, str]
) -> list[Manifest]:
    """Account, Role and binding of a driver whose executors come from the template `executor` and Spark's `conf`.

    Without the account if the store has a workload identity, which brings one.
    """
    identity = client_access(store).service_account
    name = driver_name(compute.name)
    meta = metadata(compute, name, store.name, "compute")
    rbac = "rbac.authorization.k8s.io"
    role: Manifest = {
        "apiVersion": f"{rbac}/v1",
        "kind": "Role",
        "metadata": meta,
        "rules": [
            {"apiGroups": [""], "resources": ["pods"], "verbs": list(_VERBS)},
            {
                "apiGroups": ["tussock.dev"],
                "resources": ["computes"],
                "resourceNames": [compute.name],
                "verbs": ["drive"],
            },
        ],
    }
    told = {
        ACCOUNT_ANNOTATION: _account(executor, conf),
        SECRETS_ANNOTATION: ",".join(sorted(_secrets(executor["spec"], conf))),
        CLAIMS_ANNOTATION: ",".join(sorted(_claims(executor["spec"], conf))),
    }
    binding: Manifest = {
        "apiVersion": f"{rbac}/v1",
        "kind": "RoleBinding",
        "metadata": {**meta, "annotations": told},
        "roleRef": {"apiGroup": rbac, "kind": "Role", "name": name},
        "subjects": [{"kind": "ServiceAccount", "name": identity or name, "namespace": compute.namespace}],
    }
    account: Manifest = {
        "apiVersion": "v1",
        "kind": "ServiceAccount",
        "metadata": meta,
        "automountServiceAccountToken": False,
    }
    return [role, binding] if identity else [account, role, binding]


def _account(executor: Manifest, conf: Mapping[str, str]) -> str:
    """The account that Spark chooses, or the API server's default."""
    keys = [f"spark.kubernetes.authenticate.{role}.serviceAccountName" for role in ("executor", "driver")]
    named = [conf[key] for key in keys if key in conf]
    return str(executor["spec"].get("serviceAccountName") or (*named, "default")[0])


def _secrets(spec: Manifest, conf: Mapping[str, str]) -> set[str]:
    found = {volume["secret"].get("secretName", "") for volume in spec.get("volumes", ()) if "secret" in volume}
    for volume in spec.get("volumes", ()):
        sources = volume.get("projected", {}).get("sources", ())
        found |= {source["secret"].get("name", "") for source in sources if "secret" in source}
        found.add(volume.get("csi", {}).get("nodePublishSecretRef", {}).get("name", ""))
    for container in _containers(spec):
        found |= {
            entry.get("valueFrom", {}).get("secretKeyRef", {}).get("name", "") for entry in container.get("env", ())
        }
        found |= {entry.get("secretRef", {}).get("name", "") for entry in container.get("envFrom", ())}
    # Spark mounts Secrets by settings, too: `secrets.NAME=PATH` and `secretKeyRef.VARIABLE=NAME:KEY`.
    for key, value in conf.items():
        if key.startswith(f"{_SETTINGS}secrets."):
            found.add(key.removeprefix(f"{_SETTINGS}secrets."))
        elif key.startswith(f"{_SETTINGS}secretKeyRef."):
            found.add(value.partition(":")[0])
    return found - {""}


def _claims(spec: Manifest, conf: Mapping[str, str]) -> set[str]:
    volumes = spec.get("volumes", ())
    found = {volume["persistentVolumeClaim"]["claimName"] for volume in volumes if "persistentVolumeClaim" in volume}
    prefix = f"{_SETTINGS}volumes.persistentVolumeClaim."
    return found | {
        value for key, value in conf.items() if key.startswith(prefix) and key.endswith(".options.claimName")
    }


def _containers(spec: Manifest) -> Iterator[dict[str, Any]]:
    yield from spec.get("containers", ())
    yield from spec.get("initContainers", ())
