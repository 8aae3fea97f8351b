"""Making and changing a child, and nothing that only has its name.

Server-side apply makes an object or takes it over, and cannot be asked for just one of these. So what is not known to
be ours is looked for by its name. What is not there is created, which fails if somebody was faster; what is there must
be ours (`planning/words/ownership.py`), and is applied under its uid, so that it is that object and no other.

A create has a price: the server counts its fields as set by an update, and an apply takes none of those away later.
So they are declared ours by apply: at once, or, after an operator that died in between, before the next apply.
"""

from collections.abc import Mapping
from typing import Any

from tussock.operator.cluster.api import FIELD_MANAGER, Api
from tussock.operator.cluster.errors import NameInUse
from tussock.operator.planning.words.model import Manifest, ref_of
from tussock.operator.planning.words.ownership import Holder, belongs, is_of_former, name_in_use

__all__ = ["apply_child"]


async def apply_child(api: Api, manifest: Manifest, namespace: str, holder: Holder) -> Manifest:
    """Make the child as the manifest says, and answer what it is then; `ApiError`.

    `NameInUse` if an object that is not `holder`'s has its name.
    """
    ref = ref_of(manifest)
    # Asked for each time: watches tell only of objects with our labels, and a moment late.
    known = await api.look(ref.kind, namespace, ref.name)
    if known is None:
        return await _owned(api, ref.kind, namespace, await api.create(manifest, namespace))
    if not belongs(known, holder):
        raise NameInUse(name_in_use(ref, namespace, holder), ref, passes=is_of_former(known, holder))
    await _owned(api, ref.kind, namespace, known)
    metadata = {**manifest["metadata"], "uid": known["metadata"]["uid"]}
    return await api.apply({**manifest, "metadata": metadata}, namespace)


async def _owned(api: Api, kind: str, namespace: str, body: Manifest) -> Manifest:
    """The object, with what a create of ours has set declared as applied by us."""
    fields = _as_applied(body)
    if fields == body["metadata"].get("managedFields"):
        return body
    about = {"managedFields": fields, "uid": body["metadata"]["uid"]}
    return await api.merge(kind, namespace, body["metadata"]["name"], {"metadata": about})


def _as_applied(body: Mapping[str, Any]) -> list[dict[str, Any]]:
    """The fields of an object by manager, with what our create has set as set by an apply."""
    fields: list[dict[str, Any]] = body["metadata"].get("managedFields") or []
    if any(_is_ours(entry) and entry["operation"] == "Apply" for entry in fields):
        return fields
    return [{**entry, "operation": "Apply"} if _is_ours(entry) else entry for entry in fields]


def _is_ours(entry: Mapping[str, Any]) -> bool:
    return entry["manager"] == FIELD_MANAGER and not entry.get("subresource")
