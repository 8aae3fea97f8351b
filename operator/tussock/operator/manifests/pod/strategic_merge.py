"""Merges the user's part of a pod template over ours: a strategic merge, then the fields that must hold.

The merge follows Kubernetes' strategic merge patch: maps are merged, lists of named things (containers, volumes,
variables) are merged by their names, other lists are replaced, and `null` removes a field. `insist` then puts back what
a user cannot change, and returns the paths at which that undid something, so that an event can report them.
"""

from collections.abc import Mapping, Sequence
from typing import Any

__all__ = ["MERGE_KEYS", "insist", "strategic_merge"]

MERGE_KEYS = {
    "containers": "name",
    "initContainers": "name",
    "volumes": "name",
    "imagePullSecrets": "name",
    "env": "name",
    "ports": "containerPort",
    "volumeMounts": "mountPath",
    "volumeDevices": "devicePath",
    "hostAliases": "ip",
    "topologySpreadConstraints": "topologyKey",
}
"""The key that identifies the items of a list, as in the API's own types; a list that is not here is one value."""


_WHOLE_ITEMS = {"env", "ports", "volumeMounts", "volumes"}
"""Lists whose items are entirely ours or not at all: a mix of our and a user's half would be no valid item."""
_WHOLE_FIELDS = {"livenessProbe", "readinessProbe", "securityContext", "startupProbe"}
"""Fields that are entirely ours: what a user adds inside them is removed, too."""


def strategic_merge(base: Mapping[str, Any], patch: Mapping[str, Any]) -> dict[str, Any]:
    """`base` with `patch` over it; changes neither. Ignores directives (`$patch`)."""
    merged = dict(base)
    for name, value in patch.items():
        if name.startswith("$"):
            continue
        if value is None:
            merged.pop(name, None)
        else:
            merged[name] = _merge_value(name, merged.get(name), value)
    return merged


def _merge_value(name: str, base: Any, value: Any) -> Any:
    if isinstance(value, Mapping):
        return strategic_merge(base if isinstance(base, Mapping) else {}, value)
    if isinstance(value, Sequence) and name in MERGE_KEYS and _is_keyed(value, MERGE_KEYS[name]):
        return _merge_list(base if isinstance(base, list) else [], value, MERGE_KEYS[name])
    return value


def _merge_list(base: Sequence[Mapping[str, Any]], patch: Sequence[Mapping[str, Any]], key: str) -> list[Any]:
    """Ours first and in our order, then what is new."""
    left = {item[key]: item for item in patch}
    merged = [strategic_merge(item, left.pop(item[key], {})) for item in base]
    return merged + [strategic_merge({}, item) for item in left.values()]


def insist(
    merged: Mapping[str, Any], ours: Mapping[str, Any], path: str = ""
) -> tuple[dict[str, Any], tuple[str, ...]]:
    """`merged` with every value of `ours` restored, and the paths at which it differed."""
    result = dict(merged)
    kept: list[str] = []
    for name, value in ours.items():
        here = f"{path}.{name}" if path else name
        found = result.get(name)
        if isinstance(value, Mapping) and name not in _WHOLE_FIELDS:
            result[name], below = insist(found if isinstance(found, Mapping) else {}, value, here)
            kept += below
        elif name in MERGE_KEYS and isinstance(value, list) and _is_keyed(value, MERGE_KEYS[name]):
            items = found if isinstance(found, list) else []
            result[name], below = _insist_list(items, value, MERGE_KEYS[name], name in _WHOLE_ITEMS, here)
            kept += below
        elif found != value:
            result[name] = value
            kept.append(here)
    return result, tuple(kept)


def _insist_list(
    found: Sequence[Mapping[str, Any]], ours: Sequence[Mapping[str, Any]], key: str, whole: bool, path: str
) -> tuple[list[Any], tuple[str, ...]]:
    insisted = {item[key]: item for item in ours}
    result: list[Any] = []
    kept: list[str] = []
    for item in found:
        mine = insisted.pop(item[key], None)
        if mine is None:
            result.append(item)
            continue
        here = f"{path}[{item[key]}]"
        if whole:
            put_right = dict(mine)
            below: tuple[str, ...] = () if item == mine else (here,)
        else:
            put_right, below = insist(item, mine, here)
        result.append(put_right)
        kept += below
    for name, item in insisted.items():
        result.append(dict(item))
        kept.append(f"{path}[{name}]")
    return result, tuple(kept)


def _is_keyed(items: Sequence[Any], key: str) -> bool:
    return all(isinstance(item, Mapping) and key in item for item in items)
