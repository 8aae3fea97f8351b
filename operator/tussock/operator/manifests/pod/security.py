"""The restricted security profile: what our pods set, and how pods of users' templates are brought to it.

The rules are those of Kubernetes' Pod Security Standards, profile `restricted`; a namespace that enforces it takes all
our pods.
"""

from collections.abc import Mapping
from typing import Any

__all__ = ["CONTAINER_SECURITY", "POD_SECURITY", "UID", "restrict"]

UID = 10001
"""User and group of all our processes; nobody else's on any image or node."""

POD_SECURITY: dict[str, Any] = {
    "runAsNonRoot": True,
    "runAsUser": UID,
    "runAsGroup": UID,
    "fsGroup": UID,
    # A volume with millions of objects would be walked through at each start.
    "fsGroupChangePolicy": "OnRootMismatch",
    "seccompProfile": {"type": "RuntimeDefault"},
}
CONTAINER_SECURITY: dict[str, Any] = {
    "allowPrivilegeEscalation": False,
    "capabilities": {"drop": ["ALL"]},
    "readOnlyRootFilesystem": True,
}

_POD_SECURITY_EXTRA = {"supplementalGroups", "supplementalGroupsPolicy"}
"""What a user may add: needed for volumes of file servers, and no more power."""
_HOST_FIELDS = ("hostNetwork", "hostPID", "hostIPC")
_VOLUME_KINDS = {
    "configMap",
    "csi",
    "downwardAPI",
    "emptyDir",
    "ephemeral",
    "persistentVolumeClaim",
    "projected",
    "secret",
}


def restrict(spec: Mapping[str, Any]) -> tuple[dict[str, Any], tuple[str, ...]]:
    """A pod's spec with what the profile forbids taken out, and the paths at which something was.

    A container that is ours keeps its security context; another one may choose its user (not root), and whether it
    writes to its root file system.
    """
    result = dict(spec)
    kept = [f"spec.{name}" for name in _HOST_FIELDS if result.pop(name, False)]
    found = result.get("securityContext", {})
    kept += [] if found else ["spec.securityContext"]
    result["securityContext"] = {
        **POD_SECURITY,
        **{name: value for name, value in found.items() if name in _POD_SECURITY_EXTRA},
    }
    kept += [
        f"spec.securityContext.{name}"
        for name, value in found.items()
        if name not in _POD_SECURITY_EXTRA and value != POD_SECURITY.get(name)
    ]
    volumes = result.get("volumes", [])
    result["volumes"] = [volume for volume in volumes if _kinds(volume) <= _VOLUME_KINDS]
    kept += [f"spec.volumes[{volume['name']}]" for volume in volumes if not _kinds(volume) <= _VOLUME_KINDS]
    for group in ("initContainers", "containers"):
        if group in result:
            pairs = [_container(container, f"spec.{group}[{container['name']}]") for container in result[group]]
            result[group] = [container for container, _ in pairs]
            kept += [path for _, paths in pairs for path in paths]
    return result, tuple(kept)


def _kinds(volume: Mapping[str, Any]) -> set[str]:
    return set(volume) - {"name"}


def _container(container: Mapping[str, Any], path: str) -> tuple[dict[str, Any], list[str]]:
    result = dict(container)
    found = result.get("securityContext", {})
    allowed: dict[str, Any] = {
        name: found[name]
        for name in ("runAsUser", "runAsGroup", "readOnlyRootFilesystem")
        if name in found and not (name == "runAsUser" and found[name] == 0)
    }
    result["securityContext"] = {
        **allowed,
        "allowPrivilegeEscalation": False,
        "capabilities": CONTAINER_SECURITY["capabilities"],
    }
    effective = {**POD_SECURITY, **result["securityContext"]}
    kept = [f"{path}.securityContext.{name}" for name in found if found[name] != effective.get(name)]
    if any("hostPort" in port for port in result.get("ports", ())):
        result["ports"] = [{key: port[key] for key in port if key != "hostPort"} for port in result["ports"]]
        kept.append(f"{path}.ports.hostPort")
    return result, kept
