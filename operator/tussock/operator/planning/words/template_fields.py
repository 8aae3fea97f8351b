"""Fields of a user's pod template that the API server does not know: where the user wrote them, and an object without.

The server names a field by its path in the object, such as `.spec.template.spec.containers[name="meta"].imagePullPolcy`
or `spec.template.spec.containers[0].imagePullPolcy`; a user knows it by its path in the spec of the resource.
"""

import re
from collections.abc import Mapping, Sequence
from typing import Any

from tussock.operator.planning.words.model import Manifest

__all__ = ["without_unknown"]

_TEMPLATES = (
    ("podTemplate",),
    ("driver", "podTemplate"),
    ("meta", "podTemplate"),
    ("objectStore", "managed", "podTemplate"),
)
"""Where in a spec a pod template can be."""
_ITEM = re.compile(r"\[([^\]]*)\]")
_KEY = re.compile(r'([A-Za-z]+)="?([^",]*)"?')

Step = str | int
"""A name in an object, or a place in a list."""


def without_unknown(
    manifest: Manifest, spec: Mapping[str, Any], fields: Sequence[str]
) -> tuple[Manifest, tuple[str, ...]]:
    """`manifest` without those of the unknown `fields` that come from a pod template in `spec`, and their paths there.

    `fields` are paths in the manifest, as the server writes them; `spec` is that of the resource. The manifest itself
    and no paths if none is a user's, such as with a server that is older than this operator.
    """
    root: tuple[Step, ...] = () if manifest["kind"] == "Pod" else ("spec", "template")
    left, found = manifest, set()
    for field in fields:
        steps = _steps(manifest, field.lstrip("."))
        path = _path_in(spec, manifest, steps, len(root)) if steps[: len(root)] == root else ""
        if path and path not in found:
            left = _without(left, steps)
            found.add(path)
    return left, tuple(sorted(found))


def _steps(node: Any, path: str) -> tuple[Step, ...]:
    """The way to a field; empty if the object has no such field. Names may have dots in them."""
    if isinstance(node, Mapping):
        names = [name for name in node if path == name or path.startswith((f"{name}.", f"{name}["))]
        step: Step = max(names, key=len, default="")
        rest = path[len(str(step)) :].lstrip(".")
    else:
        item = _ITEM.match(path)
        place = _place(node, item[1]) if item and isinstance(node, list) else None
        step, rest = ("", "") if item is None or place is None else (place, path[item.end() :].lstrip("."))
    if step == "" or not rest:
        return () if step == "" else (step,)
    below = _steps(node[step], rest)
    return (step, *below) if below else ()


def _place(items: Sequence[Any], text: str) -> int | None:
    """The place of the item that the server calls `0`, or `name="x"` by one or more of its keys."""
    if text.isdigit():
        return int(text) if int(text) < len(items) else None
    keys = dict(_KEY.findall(text))
    for place, item in enumerate(items):
        # A key that is absent has its default.
        if isinstance(item, Mapping) and all(str(item.get(key, value)) == value for key, value in keys.items()):
            return place
    return None


def _path_in(spec: Mapping[str, Any], manifest: Manifest, steps: Sequence[Step], skipped: int) -> str:
    """The path of the field in the user's template; empty if none has it. `skipped` steps lead to ours."""
    if not steps:
        return ""
    for place in _TEMPLATES:
        user: Any = spec
        for name in place:
            user = (user or {}).get(name) if isinstance(user, Mapping) else None
        ours, path = manifest, "spec." + ".".join(place)
        for number, step in enumerate(steps):
            ours_parent, ours = ours, ours[step]  # type: ignore[index]
            if number < skipped:
                continue
            user, shown = _item_of(user, ours) if isinstance(ours_parent, list) else _field_of(user, step)
            path += shown
        if user is not None:
            return path
    return ""


def _field_of(user: Any, name: Step) -> tuple[Any, str]:
    return (user.get(name) if isinstance(user, Mapping) else None), f".{name}"


def _item_of(user: Any, ours: Any) -> tuple[Any, str]:
    """The user's entry of a list that became `ours`: that of the same name, or the very same one."""
    entries = user if isinstance(user, list) else []
    if isinstance(ours, Mapping) and "name" in ours:
        same = [entry for entry in entries if isinstance(entry, Mapping) and entry.get("name") == ours["name"]]
        return (same[0] if same else None), f"[{ours['name']}]"
    if ours in entries:
        return ours, f"[{entries.index(ours)}]"
    return None, "[]"


def _without(node: Any, steps: Sequence[Step]) -> Any:
    """A copy of `node` without the field to which the steps lead."""
    step = steps[0]
    copy: Any = dict(node) if isinstance(node, Mapping) else list(node)
    if len(steps) == 1:
        del copy[step]
    else:
        copy[step] = _without(copy[step], steps[1:])
    return copy
