"""The operator's memory of the cluster: the newest state of every object that it watches.

Watches fill it (`handlers/passes/watches.py`), and so do the answers to the operator's own writes: a watch reports
these a moment later, and a pass in between would repeat them. A pass reads only from here, so it costs no request.

Watches may lose changes: when one restarts after a long break, it does not report what was deleted meanwhile. `sweep`
compares with a fresh list, and also finds watches that stay silent although objects change.
"""

from collections import OrderedDict
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, NamedTuple

from tussock.operator.cluster.kinds import RESOURCES
from tussock.operator.manifests.labels import OWNER_KIND_LABEL, OWNER_LABEL
from tussock.operator.planning.words.model import Manifest, Ref

__all__ = ["Key", "Seen", "Swept", "key_of", "slim"]

TOMBSTONES_MAX = 4096
"""Objects whose deletion is remembered, so that a late answer does not bring them back."""


class Key(NamedTuple):
    """One of our resources; passes are queued by it."""

    kind: str
    namespace: str
    name: str


class Swept(NamedTuple):
    """What a list had that the watch of that kind had missed."""

    gone: list[Manifest]
    """Objects that were believed to exist; they are forgotten now."""
    stale: set[tuple[str, str]]
    """(uid, resource version) of objects that are newer than their known state."""


class Seen:
    """Objects by kind, namespace and name; children also by their owner."""

    def __init__(self) -> None:
        self._objects: dict[str, dict[tuple[str, str], Manifest]] = {}
        self._children: dict[Key, dict[Ref, Manifest]] = {}
        self._deleted: OrderedDict[str, int] = OrderedDict()
        self.changes = 0
        """Grows with each change: what was derived before still holds while it is the same."""

    def put(self, kind: str, body: Mapping[str, Any]) -> None:
        """Remember this state of an object, unless a newer one is known or the object was deleted after it."""
        metadata = body["metadata"]
        if self._is_over(body):
            return
        place = (metadata["namespace"], metadata["name"])
        of_kind = self._objects.setdefault(kind, {})
        known = of_kind.get(place)
        if known is not None and _version(known) > _version(body):
            return
        self.changes += 1
        if known is not None:
            self._disown(kind, known)
        of_kind[place] = kept = slim(kind, body)
        owner = owner_of(kept)
        if owner is not None:
            self._children.setdefault(owner, {})[Ref(kind, metadata["name"])] = kept

    def drop(self, kind: str, body: Mapping[str, Any]) -> None:
        """Forget an object that was deleted in this state; keeps a newer state and other objects of its name.

        A watch by labels reports the same for an object that has lost its labels, and that may get them back.
        """
        metadata = body["metadata"]
        self._deleted[metadata["uid"]] = max(_version(body), self._deleted.get(metadata["uid"], 0))
        self._deleted.move_to_end(metadata["uid"])
        while len(self._deleted) > TOMBSTONES_MAX:
            self._deleted.popitem(last=False)
        known = self.get(kind, metadata["namespace"], metadata["name"])
        if known is not None and known["metadata"]["uid"] == metadata["uid"] and self._is_over(known):
            self.changes += 1
            del self._objects[kind][metadata["namespace"], metadata["name"]]
            self._disown(kind, known)

    def get(self, kind: str, namespace: str, name: str) -> Manifest | None:
        """The newest state of an object; `None` if there is none."""
        return self._objects.get(kind, {}).get((namespace, name))

    def all_of(self, kind: str, namespace: str | None = None) -> Iterator[Manifest]:
        """All objects of a kind, in a namespace or in all."""
        for (found, _), body in self._objects.get(kind, {}).items():
            if namespace in (None, found):
                yield body

    def children(self, owner: Key) -> dict[Ref, Manifest]:
        """The objects that carry that owner's labels."""
        return dict(self._children.get(owner, {}))

    def resources(self) -> list[Key]:
        """All our resources."""
        return [Key(kind, *place) for kind in RESOURCES for place in self._objects.get(kind, {})]

    def sweep(self, kind: str, namespace: str | None, listed: Iterable[Mapping[str, Any]], before: set[str]) -> Swept:
        """Compare with a fresh list of a kind; `before` has the uids known before the list was requested.

        A known object that is not in the list is gone, unless it appeared after the list was requested.
        """
        by_uid = {body["metadata"]["uid"]: body for body in listed}
        gone, stale = [], set()
        for body in list(self.all_of(kind, namespace)):
            uid = body["metadata"]["uid"]
            if uid not in by_uid and uid in before:
                gone.append(body)
                self.drop(kind, body)
        known = {body["metadata"]["uid"]: body for body in self.all_of(kind, namespace)}
        for uid, found in by_uid.items():
            if self._is_over(found):
                continue
            if uid not in known or _version(known[uid]) < _version(found):
                stale.add((uid, found["metadata"]["resourceVersion"]))
        return Swept(gone, stale)

    def uids(self, kind: str) -> set[str]:
        """The uids of all known objects of a kind."""
        return {body["metadata"]["uid"] for body in self.all_of(kind)}

    def _is_over(self, body: Mapping[str, Any]) -> bool:
        """Whether a state is older than the deletion of its object."""
        deleted = self._deleted.get(body["metadata"].get("uid", ""))
        return deleted is not None and _version(body) <= deleted

    def _disown(self, kind: str, body: Manifest) -> None:
        owner = owner_of(body)
        if owner is not None and owner in self._children:
            self._children[owner].pop(Ref(kind, body["metadata"]["name"]), None)
            if not self._children[owner]:
                del self._children[owner]


def key_of(body: Mapping[str, Any]) -> Key:
    """The key of one of our resources."""
    return Key(body["kind"], body["metadata"]["namespace"], body["metadata"]["name"])


def owner_of(body: Mapping[str, Any]) -> Key | None:
    """The resource that a child belongs to, by its labels; `None` for an object without owner."""
    labels = body["metadata"].get("labels") or {}
    kind, name = labels.get(OWNER_KIND_LABEL), labels.get(OWNER_LABEL)
    return Key(kind, body["metadata"]["namespace"], name) if kind in RESOURCES and name else None


def slim(kind: str, body: Mapping[str, Any]) -> Manifest:
    """An object without what the operator never reads: managed fields, and the values of secrets."""
    kept = {**body, "kind": kind, "metadata": {**body["metadata"]}}
    kept["metadata"].pop("managedFields", None)
    if kind == "Secret":
        kept["data"] = dict.fromkeys(body.get("data") or {}, "")
        # `kubectl apply` keeps a copy of its input there.
        annotations = {**(kept["metadata"].get("annotations") or {})}
        annotations.pop("kubectl.kubernetes.io/last-applied-configuration", None)
        kept["metadata"]["annotations"] = annotations
    return kept


def _version(body: Mapping[str, Any]) -> int:
    """A number that grows with each change of an object.

    The API promises that resource versions of one kind can be compared in this way (KEP-5504, Kubernetes 1.35); all
    servers that keep them in etcd do.
    """
    version = str(body["metadata"].get("resourceVersion") or "0")
    return int(version) if version.isdigit() else 0
