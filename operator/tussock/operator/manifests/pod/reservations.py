"""What a user's pod template cannot add to our pods, beside the values that it cannot change (`strategic_merge.py`).

A value that we set is put back there. This is about fields that we leave out, where any value would undo a setting:
another command, a variable that overrides the file of settings, a mount over our files.
"""

import posixpath
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from tussock.operator.manifests.pod.strategic_merge import MERGE_KEYS
from tussock.operator.resources.common import InvalidResource

__all__ = ["check_shape", "without_reserved"]

_POD_FIELDS = ("hostname", "hostnameOverride", "serviceAccount", "serviceAccountName", "shareProcessNamespace")
"""Nodes take their names from their hosts, have no rights by an account, and show no container their files."""
_CONTAINER_FIELDS = ("command", "restartPolicy", "restartPolicyRules", "terminationMessagePath", "workingDir")
_VARIABLES = {
    "meta": ("TUSSOCK_",),
    "compactor": ("TUSSOCK_",),
    "restore": ("TUSSOCK_",),
    "backup": ("TUSSOCK_",),
    "compute": ("TUSSOCK_", "SPARK_"),
    "minio": ("MINIO_",),
}
"""Beginnings of the names of the operator's variables, by the container."""
_FREE = {
    "TUSSOCK_COMPACTOR_DEADLINE",
    "TUSSOCK_COMPACTOR_LOG_FORMAT",
    "TUSSOCK_COMPACTOR_LOG_LEVEL",
    "TUSSOCK_SERVE_LIMITS__CONVERSATIONS",
    "TUSSOCK_SERVE_LIMITS__CONVERSATION_OUTSTANDING",
    "TUSSOCK_SERVE_LIMITS__IDENTITY_OUTSTANDING",
    "TUSSOCK_SERVE_LIMITS__MESSAGE_BYTES",
    "TUSSOCK_SERVE_LIMITS__OUTSTANDING",
    "TUSSOCK_SERVE_LIMITS__OUTSTANDING_BYTES",
    "TUSSOCK_SERVE_LOG__FORMAT",
    "TUSSOCK_SERVE_LOG__LEVEL",
}
"""Settings of nodes for which no spec has a field, and which cannot do harm."""
_SCRATCH = "/tmp"  # noqa: S108 - the pod's own
"""Our only volume in which users may mount theirs: it holds nothing that lasts."""


def check_shape(user: Mapping[str, Any], path: str = "") -> None:
    """Check the parts of a pod template that are merged by a key; `InvalidResource` with the path of the first misfit.

    The API server does not: to it a `podTemplate.spec` is any object.
    """
    for name, value in user.items():
        here = f"{path}.{name}" if path else name
        if value is None:
            continue
        if name == "securityContext" and not isinstance(value, Mapping):
            raise InvalidResource(f"the pod template has something at {here} that is no object; correct it")
        if name in MERGE_KEYS or name == "envFrom":
            _check_list(value, MERGE_KEYS.get(name, ""), here)
        elif isinstance(value, Mapping) and name not in ("labels", "annotations", "nodeSelector"):
            check_shape(value, here)


def _check_list(value: Any, key: str, path: str) -> None:
    if not isinstance(value, list):
        raise InvalidResource(f"the pod template has something at {path} that is no list; correct it")
    for place, item in enumerate(value):
        if not isinstance(item, Mapping):
            raise InvalidResource(f"the pod template has something at {path}[{place}] that is no object; correct it")
        if key and not isinstance(item.get(key), str | int):
            raise InvalidResource(f"the pod template has an entry without {key} at {path}[{place}]; add one")
        check_shape(item, f"{path}[{item[key] if key else place}]")


def without_reserved(spec: Mapping[str, Any], ours: Mapping[str, Any]) -> tuple[dict[str, Any], tuple[str, ...]]:
    """A merged pod's spec without what only `ours` may have, and the paths at which something was removed.

    `ours` is the same spec without the user's part; its first container is the node.
    """
    result, kept = _without(spec, ours, _POD_FIELDS, "spec")
    node = ours["containers"][0]
    first = [one for one in result.get("initContainers", ()) if one["name"] != node["name"]]
    if len(first) < len(result.pop("initContainers", ())):
        kept.append(f"spec.initContainers[{node['name']}]")
    if first:
        result["initContainers"] = first
    containers = []
    for container in result["containers"]:
        if container["name"] == node["name"]:
            container, found = _node_container(container, node)
            kept += found
        containers.append(container)
    return {**result, "containers": containers}, tuple(kept)


def _without(
    merged: Mapping[str, Any], ours: Mapping[str, Any], fields: Sequence[str], path: str
) -> tuple[dict[str, Any], list[str]]:
    added = [name for name in fields if name in merged and name not in ours]
    return {name: merged[name] for name in merged if name not in added}, [f"{path}.{name}" for name in added]


def _node_container(container: Mapping[str, Any], ours: Mapping[str, Any]) -> tuple[dict[str, Any], list[str]]:
    """The node's own container without what would change how the node runs."""
    path = f"spec.containers[{ours['name']}]"
    result, kept = _without(container, ours, _CONTAINER_FIELDS, path)
    reserved = _VARIABLES[ours["name"]]
    variables = {entry["name"] for entry in ours["env"]} | _FREE
    ports = {entry["containerPort"]: entry["name"] for entry in ours["ports"]}
    rules: dict[str, Callable[[Mapping[str, Any]], bool]] = {
        "env": lambda entry: entry["name"] in variables or not entry["name"].startswith(reserved),
        "ports": lambda entry: entry["containerPort"] in ports or entry.get("name") not in ports.values(),
        "volumeMounts": lambda entry: entry in ours["volumeMounts"] or not _hides(entry, ours["volumeMounts"]),
        # A job's program belongs to the user, with all that is in its environment.
        "envFrom": lambda entry: ours["name"] == "compute" or _is_apart(str(entry.get("prefix") or ""), reserved),
    }
    keys = {"env": "name", "ports": "containerPort", "volumeMounts": "mountPath"}
    for name, is_allowed in rules.items():
        entries = result.get(name) or []
        verdicts = [is_allowed(entry) for entry in entries]
        if not all(verdicts):
            result[name] = [entry for entry, allowed in zip(entries, verdicts, strict=True) if allowed]
            if not result[name] and name not in ours:
                del result[name]
            places = [place for place, allowed in enumerate(verdicts) if not allowed]
            kept += [f"{path}.{name}[{entries[place].get(keys.get(name, ''), place)}]" for place in places]
    return result, kept


def _hides(mount: Mapping[str, Any], ours: Sequence[Mapping[str, Any]]) -> bool:
    """Whether a mount lies on or in one that we set, however its path is written."""
    path = posixpath.normpath(f"/{mount['mountPath']}").replace("//", "/", 1)
    places = [str(one["mountPath"]) for one in ours]
    return any(path == place or (place != _SCRATCH and path.startswith(f"{place}/")) for place in places)


def _is_apart(prefix: str, reserved: Sequence[str]) -> bool:
    """Whether no variable whose name begins with `prefix` can be one of the operator's."""
    return bool(prefix) and not any(prefix.startswith(ours) or ours.startswith(prefix) for ours in reserved)
