"""Decides to whom an object with a child's name belongs: names are ordinary, and others may have taken them first.

An object that does not provably belong to a resource is neither changed nor used nor deleted. The proof is an owner
reference with the resource's uid; or our labels with its kind and name, since claims that outlive their owner have no
such reference, and cert-manager writes secrets with just the labels that we ask for.

A copy of a child has its labels, too. So what is deleted needs the reference (`is_deletable`): every child has it from
its first apply on, also one that was handed over by labels.
"""

from collections.abc import Iterable, Iterator, Mapping
from typing import Any, NamedTuple

from tussock.operator.manifests.labels import MANAGED_BY, MANAGED_BY_LABEL, OWNER_KIND_LABEL, OWNER_LABEL
from tussock.operator.planning.words.conditions import Reason, Verdict, problem_verdict, progress_verdict
from tussock.operator.planning.words.model import Delete, Manifest, Ref
from tussock.operator.resources.common import API_VERSION, Resource

__all__ = [
    "Holder",
    "belongs",
    "deletes",
    "foreign_object_verdict",
    "holder_in",
    "holder_of",
    "is_deletable",
    "is_of_former",
    "name_in_use_message",
    "own_child",
    "owns",
    "uses",
]

_ISSUED_FOR = "cert-manager.io/certificate-name"
"""Annotation of a Secret that cert-manager has written: the name of its Certificate."""
_NAMED = {"claimName": "PersistentVolumeClaim", "secretName": "Secret", "serviceAccountName": "ServiceAccount"}
"""Fields of a pod whose value is the name of an object."""
_HOLDS = {
    "configMap": "ConfigMap",
    "configMapKeyRef": "ConfigMap",
    "configMapRef": "ConfigMap",
    "secret": "Secret",
    "secretKeyRef": "Secret",
    "secretRef": "Secret",
}
"""Fields whose value has the name of an object in `name`."""


class Holder(NamedTuple):
    """One of our resources, as the owner of children."""

    kind: str
    name: str
    uid: str


def holder_in(body: Mapping[str, Any]) -> Holder:
    """The resource with that body."""
    return Holder(body["kind"], body["metadata"]["name"], body["metadata"]["uid"])


def holder_of(resource: Resource) -> Holder:
    """A parsed resource."""
    return Holder(resource.kind, resource.name, resource.metadata.uid)


def belongs(found: Mapping[str, Any], holder: Holder) -> bool:
    """Whether an object is provably a child of the resource; false for one that had the name before."""
    if owns(holder, found):
        return True
    return _is_labelled(found, holder) and not is_of_former(found, holder)


def owns(holder: Holder, found: Mapping[str, Any]) -> bool:
    """Whether an object names the resource as an owner, by its uid: all that the operator makes do, except claims."""
    return any(reference.get("uid") == holder.uid for reference in _references(found))


def is_deletable(kind: str, found: Mapping[str, Any], holder: Holder) -> bool:
    """Whether an object of that kind may be deleted for the resource: it names its uid as that of an owner.

    Or it is a Secret that cert-manager wrote for a request of the resource, with the name of that request; a copy has
    another name.
    """
    if owns(holder, found) or kind != "Secret":
        return owns(holder, found)
    issued_for = (found["metadata"].get("annotations") or {}).get(_ISSUED_FOR)
    return issued_for == found["metadata"]["name"] and belongs(found, holder)


def own_child(children: Mapping[Ref, Manifest], ref: Ref, holder: Holder) -> Manifest | None:
    """The child of that name that the operator has made; `None` if there is none, or only one of somebody else."""
    found = children.get(ref)
    return found if found is not None and owns(holder, found) else None


def deletes(children: Mapping[Ref, Manifest], refs: Iterable[Ref], holder: Holder) -> tuple[Delete, ...]:
    """A `Delete` for each of the children `refs` that is there, may be deleted, and is not being deleted yet."""
    return tuple(
        Delete(ref)
        for ref in refs
        if ref in children
        and is_deletable(ref.kind, children[ref], holder)
        and not children[ref]["metadata"].get("deletionTimestamp")
    )


def is_of_former(found: Mapping[str, Any], holder: Holder) -> bool:
    """Whether it is the child of a resource of the same kind and name that is gone: it goes, and makes room."""
    return any(
        (reference.get("apiVersion"), reference.get("kind"), reference.get("name")) == (API_VERSION, *holder[:2])
        and reference.get("uid") != holder.uid
        for reference in _references(found)
    )


def name_in_use_message(ref: Ref, namespace: str, holder: Holder) -> str:
    """A message that an object which is not the resource's has the name of a child, and what to do."""
    labels = f"{MANAGED_BY_LABEL}={MANAGED_BY} {OWNER_KIND_LABEL}={holder.kind} {OWNER_LABEL}={holder.name}"
    return (
        f"There is a {ref.kind} {ref.name} in namespace {namespace} that does not belong to {holder.kind} "
        f"{holder.name}, which needs the name. The operator does not touch it. Delete it, or create it again under "
        f"another name; or create {holder.kind} {holder.name} again under another name. To hand it over for good, "
        f"label it {labels}."
    )


def foreign_object_verdict(ref: Ref, found: Mapping[str, Any], namespace: str, holder: Holder) -> Verdict:
    """The verdict if an object with the name of a child does not belong to the resource; `found` is its body."""
    if is_of_former(found, holder):
        # It goes with that resource; a person who is asked to delete it could delete the next object with that name.
        told = f"Waiting until Kubernetes has deleted what a former resource of this name owned: {ref.kind} {ref.name}."
        return progress_verdict(Reason.RECONCILING, told)
    return problem_verdict(Reason.NAME_IN_USE, name_in_use_message(ref, namespace, holder))


def uses(manifest: Manifest, ref: Ref) -> bool:
    """Whether one of our objects would use the one that `ref` names: mount it, run under it, or give it rights."""
    if manifest["kind"] == "RoleBinding":
        granted = {(subject["kind"], subject["name"]) for subject in manifest.get("subjects") or ()}
        return tuple(ref) in {("Role", manifest["roleRef"]["name"]), *granted}
    return ref in set(_used_refs(manifest.get("spec")))


def _used_refs(part: Any) -> Iterator[Ref]:
    if isinstance(part, Mapping):
        for field, value in part.items():
            if field in _NAMED and isinstance(value, str):
                yield Ref(_NAMED[field], value)
            elif field in _HOLDS and isinstance(value, Mapping) and "name" in value:
                yield Ref(_HOLDS[field], value["name"])
            yield from _used_refs(value)
    elif isinstance(part, list | tuple):
        for entry in part:
            yield from _used_refs(entry)


def _is_labelled(found: Mapping[str, Any], holder: Holder) -> bool:
    labels = found["metadata"].get("labels") or {}
    wanted = {MANAGED_BY_LABEL: MANAGED_BY, OWNER_KIND_LABEL: holder.kind, OWNER_LABEL: holder.name}
    return bool(wanted.items() <= labels.items())


def _references(found: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    return found["metadata"].get("ownerReferences") or []
