"""The restricted security profile: what our pods set, and how pods from users' templates are made to comply.

The rules are those of Kubernetes' Pod Security Standards, profile `restricted`; a namespace that enforces it accepts
all our pods.
"""

from collections.abc import Mapping
from typing import Any

__all__ = ["CONTAINER_SECURITY", "POD_SECURITY", "UID", "restrict"]

UID = 10001
"""User and group of all our processes; no other user on any image or node has them."""

POD_SECURITY: dict[str, Any] = {
    "runAsNonRoot": True,
    "runAsUser": UID,
    "runAsGroup": UID,
    "fsGroup": UID,
    # Otherwise a volume with millions of objects would be traversed at each start.
    "fsGroupChangePolicy": "OnRootMismatch",
    "seccompProfile": {"type": "RuntimeDefault"},
}
CONTAINER_SECURITY: dict[str, Any] = {
    "allowPrivilegeEscalation": False,
    "capabilities": {"drop": ["ALL"]},
    "readOnlyRootFilesystem": True,
}

_POD_SECURITY_EXTRA = {"supplementalGroups", "supplementalGroupsPolicy"}
"""What a user may add: volumes of file servers need it, and it gives no more power."""
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
    """A pod's spec without what the profile forbids, and the paths at which something was removed.

    Our containers keep their security context; others may choose their user (not root), and whether they write to
    their root file system.
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
