"""The rules of the profile `restricted` of Kubernetes' Pod Security Standards, as a function of a pod's spec.

Written by the table of the standard's documentation, fields of Windows and of kernels' security modules aside: those
are refused whatever they say, since no pod of Tussock has them.
"""

from collections.abc import Iterator, Mapping
from typing import Any

__all__ = ["violations"]

_VOLUMES = {
    *("configMap", "csi", "downwardAPI", "emptyDir", "ephemeral", "persistentVolumeClaim", "projected", "secret")
}


def violations(spec: Mapping[str, Any]) -> list[str]:
    """What the profile forbids in a pod's spec, as paths with a reason; empty for an admissible pod."""
    return [
        *_pod(spec),
        *(found for path, container in _containers(spec) for found in _container(path, container, spec)),
    ]


def _pod(spec: Mapping[str, Any]) -> Iterator[str]:
    for name in ("hostNetwork", "hostPID", "hostIPC"):
        if spec.get(name):
            yield f"{name}: shares a namespace of the node"
    for volume in spec.get("volumes", ()):
        for kind in set(volume) - {"name"} - _VOLUMES:
            yield f"volumes[{volume['name']}]: is a {kind}"
    security = spec.get("securityContext", {})
    for name in ("sysctls", "seLinuxOptions", "windowsOptions", "appArmorProfile"):
        if security.get(name):
            yield f"securityContext.{name}: is set"
    if security.get("runAsUser") == 0:
        yield "securityContext.runAsUser: is root"


def _containers(spec: Mapping[str, Any]) -> Iterator[tuple[str, Mapping[str, Any]]]:
    for group in ("initContainers", "containers", "ephemeralContainers"):
        for container in spec.get(group, ()):
            yield f"{group}[{container['name']}]", container


def _container(path: str, container: Mapping[str, Any], spec: Mapping[str, Any]) -> Iterator[str]:
    own, pod = container.get("securityContext", {}), spec.get("securityContext", {})
    if own.get("privileged"):
        yield f"{path}: is privileged"
    if own.get("allowPrivilegeEscalation") is not False:
        yield f"{path}: may escalate its privileges"
    capabilities = own.get("capabilities", {})
    if "ALL" not in capabilities.get("drop", ()):
        yield f"{path}: does not drop all capabilities"
    if set(capabilities.get("add", ())) - {"NET_BIND_SERVICE"}:
        yield f"{path}: adds capabilities"
    if not own.get("runAsNonRoot", pod.get("runAsNonRoot", False)):
        yield f"{path}: may run as root"
    if own.get("runAsUser", pod.get("runAsUser")) == 0:
        yield f"{path}: runs as root"
    profile = own.get("seccompProfile", pod.get("seccompProfile", {})).get("type")
    if profile not in ("RuntimeDefault", "Localhost"):
        yield f"{path}: has the seccomp profile {profile}"
    if own.get("procMount", "Default") != "Default":
        yield f"{path}: unmasks /proc"
    for name in ("seLinuxOptions", "windowsOptions", "appArmorProfile"):
        if own.get(name):
            yield f"{path}: sets {name}"
    if any("hostPort" in port for port in container.get("ports", ())):
        yield f"{path}: takes a port of the node"
