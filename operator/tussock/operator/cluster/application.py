"""Creates and changes children, and never an object that only has the name of one.

Server-side apply creates an object or takes it over, and cannot be limited to one of the two. So an object that is not
known to be ours is looked up by its name. If it is missing, it is created, which fails if another client was faster; if
it exists, it must be ours (`planning/words/ownership.py`) and is applied with its uid, so that no other object is
touched.

A create has a price: the server counts its fields as set by an update, and no later apply removes them. So they are
declared ours by an apply: at once, or, if the operator died in between, before the next apply.
"""

from collections.abc import Mapping
from typing import Any

from tussock.operator.cluster.api import FIELD_MANAGER, Api
from tussock.operator.cluster.errors import NameInUse
from tussock.operator.planning.words.model import RUN_PODS, Manifest, ref_of
from tussock.operator.planning.words.ownership import Holder, belongs, is_of_former, name_in_use_message

__all__ = ["apply_child"]


async def apply_child(api: Api, manifest: Manifest, namespace: str, holder: Holder) -> Manifest:
    """Bring the child to the manifest, and return it as it is then; raises `ApiError`.

    `NameInUse` if the object of this name does not belong to `holder`; `FieldsUnknown` if it runs pods and the server
    does not know fields of it.
    """
    ref = ref_of(manifest)
    # A user's misspelt field is reported, and not dropped; of our own kinds an older definition may lack some.
    strict = ref.kind in RUN_PODS
    # Asked each time: watches see only objects with our labels, and a moment late.
    known = await api.look(ref.kind, namespace, ref.name)
    if known is None:
        return await _take_ownership(api, ref.kind, namespace, await api.create(manifest, namespace, strict=strict))
    if not belongs(known, holder):
        raise NameInUse(name_in_use_message(ref, namespace, holder), ref, passes=is_of_former(known, holder))
    await _take_ownership(api, ref.kind, namespace, known)
    metadata = {**manifest["metadata"], "uid": known["metadata"]["uid"]}
    return await api.apply({**manifest, "metadata": metadata}, namespace, strict=strict)


async def _take_ownership(api: Api, kind: str, namespace: str, body: Manifest) -> Manifest:
    """Declare the fields of our create as applied by us; returns the object."""
    fields = _applied_fields(body)
    if fields == body["metadata"].get("managedFields"):
        return body
    about = {"managedFields": fields, "uid": body["metadata"]["uid"]}
    return await api.merge(kind, namespace, body["metadata"]["name"], {"metadata": about})


def _applied_fields(body: Mapping[str, Any]) -> list[dict[str, Any]]:
    """The managed fields of an object, with those of our create as fields of an apply."""
    fields: list[dict[str, Any]] = body["metadata"].get("managedFields") or []
    if any(_is_ours(entry) and entry["operation"] == "Apply" for entry in fields):
        return fields
    return [{**entry, "operation": "Apply"} if _is_ours(entry) else entry for entry in fields]


def _is_ours(entry: Mapping[str, Any]) -> bool:
    return entry["manager"] == FIELD_MANAGER and not entry.get("subresource")
