"""Plain manifests of pods as strict clusters admit them: the restricted profile, and a root that can't be written."""

from collections.abc import Mapping, Sequence
from typing import Any

USER = 10001
SECURITY = {
    "runAsNonRoot": True,
    "readOnlyRootFilesystem": True,
    "allowPrivilegeEscalation": False,
    "capabilities": {"drop": ["ALL"]},
    "seccompProfile": {"type": "RuntimeDefault"},
}


def pod(
    name: str,
    image: str,
    *,
    arguments: Sequence[str] = (),
    command: Sequence[str] = (),
    environment: Mapping[str, str] | None = None,
    secrets: Sequence[str] = (),
    ready: tuple[int, str] | None = None,
    volumes: Mapping[str, Mapping[str, Any]] | None = None,
    service_account: str | None = None,
    restart: str = "Never",
) -> dict[str, Any]:
    """A pod of one container; its label `app` is its name, and only /tmp and `volumes` (by path) can be written.

    `secrets` become the environment; `ready` is port and path of the readiness probe.
    """
    mounts = {"/tmp": {"emptyDir": {}}, **(volumes or {})}
    container: dict[str, Any] = {
        "name": "main",
        "image": image,
        "imagePullPolicy": "IfNotPresent",
        "args": list(arguments),
        "env": [{"name": key, "value": value} for key, value in (environment or {}).items()],
        "envFrom": [{"secretRef": {"name": secret}} for secret in secrets],
        "securityContext": SECURITY,
        "volumeMounts": [{"name": f"v{number}", "mountPath": path} for number, path in enumerate(mounts)],
    }
    if command:
        container["command"] = list(command)
    if ready:
        probe = {"httpGet": {"port": ready[0], "path": ready[1]}, "periodSeconds": 1, "failureThreshold": 120}
        container["readinessProbe"] = probe
    spec: dict[str, Any] = {
        "restartPolicy": restart,
        "automountServiceAccountToken": service_account is not None,
        # The image says nothing of the group, and a volume belongs to root until it is given to one.
        "securityContext": {"fsGroup": USER},
        "terminationGracePeriodSeconds": 5,
        "containers": [container],
        "volumes": [{"name": f"v{number}", **source} for number, source in enumerate(mounts.values())],
    }
    if service_account:
        spec["serviceAccountName"] = service_account
    return {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name, "labels": {"app": name}}, "spec": spec}


def service(name: str, *ports: int, headless: bool = False) -> dict[str, Any]:
    """The service of the pods with the label `app` of this name."""
    spec = {"selector": {"app": name}, "ports": [{"name": f"p{port}", "port": port} for port in ports]}
    if headless:
        # An executor has to find its driver before that is ready.
        spec |= {"clusterIP": "None", "publishNotReadyAddresses": True}
    return {"apiVersion": "v1", "kind": "Service", "metadata": {"name": name}, "spec": spec}


def claim(name: str, size: str = "1Gi") -> dict[str, Any]:
    """A claim for a volume of the cluster's default class."""
    spec = {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": size}}}
    return {"apiVersion": "v1", "kind": "PersistentVolumeClaim", "metadata": {"name": name}, "spec": spec}


def secret(name: str, values: Mapping[str, str]) -> dict[str, Any]:
    """A secret of texts."""
    return {"apiVersion": "v1", "kind": "Secret", "metadata": {"name": name}, "stringData": dict(values)}
