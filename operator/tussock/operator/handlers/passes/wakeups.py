"""The resources to look at when an object changes: its owner, and those whose plans depend on it.

The plans of a store's resources depend on each other (compactors wait for the meta nodes), so a change of one wakes all
of that store. There are few of them, and a pass over an unchanged one costs a fraction of a millisecond.
"""

from collections.abc import Iterator, Mapping
from typing import Any

from tussock.operator.cluster.kinds import RESOURCES
from tussock.operator.cluster.seen import Key, Seen, owner_of
from tussock.operator.resources.common import store_place

__all__ = ["concerned_keys", "secrets_of"]


def concerned_keys(seen: Seen, kind: str, body: Mapping[str, Any]) -> set[Key]:
    """The resources to look at after the object `body` of `kind` was added, changed or deleted."""
    namespace, name = body["metadata"]["namespace"], body["metadata"]["name"]
    if kind in RESOURCES:
        return {Key(kind, namespace, name), *_keys_of_store(seen, store_place({**body, "kind": kind}))}
    found = set()
    owner = owner_of(body)
    if owner is not None:
        found.add(owner)
    if kind == "Secret":
        for key in seen.resources():
            resource = seen.get(*key)
            if key.namespace == namespace and resource and (key == owner or name in secrets_of(resource["spec"])):
                found |= {key, *_keys_of_store(seen, store_place(resource))}
    return found


def secrets_of(spec: Any) -> set[str]:
    """The names of all secrets that a spec refers to, at any place."""
    return set(_secrets_of(spec))


def _secrets_of(part: Any) -> Iterator[str]:
    if isinstance(part, Mapping):
        for field, value in part.items():
            if field == "secretName" and isinstance(value, str):
                yield value
            elif field in ("credentialsSecret", "readerCredentialsSecret", "secretKeyRef", "secretRef") and isinstance(
                value, Mapping
            ):
                yield value.get("name", "")
            else:
                yield from _secrets_of(value)
    elif isinstance(part, list | tuple):
        for entry in part:
            yield from _secrets_of(entry)


def _keys_of_store(seen: Seen, store: tuple[str, str]) -> set[Key]:
    return {key for key in seen.resources() if (body := seen.get(*key)) is not None and store_place(body) == store}
