"""Compares a child with its manifest: every field that we set must have our value, whatever others have added.

An apply that would change nothing is left out, so a pass over an unchanged resource costs no request. There are two
questions: is the manifest the one that we applied last (a digest in an annotation shows it, so that a field that we no
longer set is noticed), and does the object still have it (a comparison of our fields with the observed ones). A claim
may be larger than its manifest: volumes grow, by hand or by an autoscaler, and never shrink.

The server stores some values in another form: quantities (`1000m` is `1`), and empty fields (left out). Those compare
as equal. If there is another such form, the cost is an apply at each resync that changes nothing, and not a loop:
without a change there is no event.
"""

import hashlib
import json
import re
from collections.abc import Mapping, Sequence
from decimal import Decimal
from typing import Any

from tussock.operator.planning.words.model import Apply, Delete, Manifest, Ref, ref_of
from tussock.operator.planning.words.ownership import Holder, deletes

__all__ = ["APPLIED", "applies", "differences", "digest", "mark", "prunes"]

APPLIED = "tussock.dev/applied"
"""Annotation of every child: the digest of the manifest that we applied last."""

# The field by which the server identifies the entries of a list, in the order of preference.
_KEYS = ("name", "containerPort", "port", "mountPath", "ip", "topologyKey", "type", "uid", "key")
# Fields in which `false` or 0 differs from no value.
_NOT_EMPTY_BY_DEFAULT = {
    "allowPrivilegeEscalation",
    "automountServiceAccountToken",
    "enableServiceLinks",
    "maxSurge",
    "maxUnavailable",
    "minAvailable",
    "replicas",
    "revisionHistoryLimit",
    "terminationGracePeriodSeconds",
}
_QUANTITY = re.compile(r"([+-]?[0-9.]+)([numkMGTPE]i?|[eE][+-]?[0-9]+|Ki)?")
_SUFFIXES = {
    "": Decimal(1),
    "n": Decimal("1e-9"),
    "u": Decimal("1e-6"),
    "m": Decimal("1e-3"),
    **{suffix: Decimal(1000) ** power for power, suffix in enumerate("kMGTPE", 1)},
    **{suffix + "i": Decimal(1024) ** power for power, suffix in enumerate("KMGTPE", 1)},
}


def digest(manifest: Mapping[str, Any]) -> str:
    """Sixteen hex digits that identify the content of a manifest, whatever the order of its fields."""
    text = json.dumps(manifest, sort_keys=True, separators=(",", ":"))
    return hashlib.sha256(text.encode()).hexdigest()[:16]


def mark(manifest: Manifest) -> Manifest:
    """Mark a manifest, as it is applied, with its own digest in an annotation; returns a copy."""
    metadata = manifest["metadata"]
    annotations = {**metadata.get("annotations", {}), APPLIED: digest(manifest)}
    return {**manifest, "metadata": {**metadata, "annotations": annotations}}


def applies(wanted: Sequence[Manifest], children: Mapping[Ref, Manifest]) -> tuple[Apply, ...]:
    """An `Apply` for each of the wanted children that is missing, was made by other code or was edited."""
    found = []
    for manifest in map(mark, wanted):
        child = children.get(ref_of(manifest))
        if child is None:
            found.append(Apply(manifest))
            continue
        fitting = _grow(manifest, child)
        if differences(fitting, child):
            found.append(Apply(fitting))
    return tuple(found)


def _grow(manifest: Manifest, child: Manifest) -> Manifest:
    """Make a wanted claim as large as it is, if a client has made that larger: no server shrinks it."""
    if manifest["kind"] != "PersistentVolumeClaim":
        return manifest
    has = ((child.get("spec") or {}).get("resources") or {}).get("requests", {}).get("storage")
    wanted = manifest["spec"]["resources"]["requests"]["storage"]
    sizes = _quantity(wanted), _quantity(has)
    if sizes[0] is None or sizes[1] is None or sizes[1] <= sizes[0]:
        return manifest
    return {**manifest, "spec": {**manifest["spec"], "resources": {"requests": {"storage": has}}}}


def prunes(wanted: Sequence[Manifest], children: Mapping[Ref, Manifest], holder: Holder) -> tuple[Delete, ...]:
    """A `Delete` for each child that was applied once and is no longer wanted. Never a claim: it holds data."""
    refs = {ref_of(manifest) for manifest in wanted}
    gone = [
        ref
        for ref, child in sorted(children.items())
        if ref not in refs
        and ref.kind != "PersistentVolumeClaim"
        and APPLIED in (child["metadata"].get("annotations") or {})
    ]
    return deletes(children, gone, holder)


def differences(ours: Any, theirs: Any, path: str = "") -> list[str]:
    """The fields that we set and that the observed object lacks or has with other values; empty if it matches."""
    if isinstance(ours, Mapping):
        if not ours:
            return [] if theirs is None or isinstance(theirs, Mapping) else [path]
        if not isinstance(theirs, Mapping):
            return [path]
        return [
            found
            for name, value in ours.items()
            for found in differences(value, theirs.get(name), f"{path}.{name}" if path else name)
        ]
    if isinstance(ours, list | tuple):
        return _list_differences(ours, theirs, path)
    return [] if _is_same(ours, theirs, path.rpartition(".")[2]) else [path]


def _list_differences(ours: Sequence[Any], theirs: Any, path: str) -> list[str]:
    if not ours:
        return [] if not theirs else [path]
    if not isinstance(theirs, list | tuple):
        return [path]
    key = next((key for key in _KEYS if all(isinstance(entry, Mapping) and key in entry for entry in ours)), None)
    if key is None:
        # A list without keys belongs as a whole to the manager that applied it.
        if len(ours) != len(theirs):
            return [path]
        pairs = list(zip(ours, theirs, strict=True))
        return [found for place, pair in enumerate(pairs) for found in differences(*pair, f"{path}[{place}]")]
    by_key: dict[Any, list[Any]] = {}
    for entry in theirs:
        if isinstance(entry, Mapping):
            by_key.setdefault(entry.get(key), []).append(entry)
    return [
        found
        for entry in ours
        # Several entries may share a key, such as TCP and UDP of one port: any match is enough.
        for found in min(
            (differences(entry, other, f"{path}[{entry[key]}]") for other in by_key.get(entry[key], [None])), key=len
        )
    ]


def _is_same(ours: Any, theirs: Any, name: str) -> bool:
    if ours == theirs and isinstance(ours, bool) == isinstance(theirs, bool):
        return True
    if theirs is None:
        # The server left it out because it is the default, or a client removed it.
        return not ours and name not in _NOT_EMPTY_BY_DEFAULT
    if isinstance(ours, bool) or isinstance(theirs, bool):
        return False
    left, right = _quantity(ours), _quantity(theirs)
    return left is not None and left == right


def _quantity(value: Any) -> Decimal | None:
    """The number that a quantity stands for, such as 1000 for `1k`; `None` if it is not a quantity."""
    found = _QUANTITY.fullmatch(str(value))
    if not found:
        return None
    number, suffix = found[1], found[2] or ""
    try:
        if suffix[:1] in ("e", "E") and suffix[1:]:
            return Decimal(number + suffix)
        return Decimal(number) * _SUFFIXES[suffix]
    except (ArithmeticError, KeyError):
        return None
