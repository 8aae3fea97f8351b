"""Carries out the actions of a plan, one after the other, against the API server.

Every action can be repeated: an operator that dies in the middle makes the same plan again, without the actions that
were done. `Seen` takes the server's answer at once, so the next pass does not repeat an action.
"""

from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from typing import Any, TypeAlias

from tussock.operator.cluster.api import Api
from tussock.operator.cluster.application import apply_child
from tussock.operator.cluster.errors import ApiConflict, ApiError, ApiNotFound, FieldsUnknown, TemplateFieldsUnknown
from tussock.operator.cluster.events import event_of
from tussock.operator.cluster.kinds import FINALIZER
from tussock.operator.cluster.seen import Seen
from tussock.operator.planning.words.conditions import Reason
from tussock.operator.planning.words.model import Annotate, Apply, Delete, Emit, Hold, Label, Manifest, Ref, Release
from tussock.operator.planning.words.ownership import holder_in, is_deletable
from tussock.operator.planning.words.template_fields import without_unknown
from tussock.operator.resources.common import API_VERSION
from tussock.statestore.base.logs import get_logger
from tussock.statestore.base.system import System

__all__ = ["Actor", "ClusterAction"]

log = get_logger("tussock.operator")

DELETE_ATTEMPTS = 3
"""If an object changes between the look at its owner and the deletion; after that the pass is repeated."""

ClusterAction: TypeAlias = Apply | Delete | Annotate | Label | Emit | Hold | Release


class Actor:
    """Acts on the cluster, on behalf of one resource at a time."""

    def __init__(self, api: Api, seen: Seen, system: System, identity: str) -> None:
        self._api = api
        self._seen = seen
        self._system = system
        self._identity = identity

    async def act(self, body: Manifest, action: ClusterAction) -> None:
        """Carry out one action for the resource with that body; raises `ApiError`."""
        namespace = body["metadata"]["namespace"]
        match action:
            case Apply(manifest):
                await self._apply(body, manifest)
            case Delete(ref):
                await self._delete(body, ref)
            case Annotate(ref, annotations):
                await self._note(namespace, ref, "annotations", annotations)
            case Label(ref, labels):
                await self._note(namespace, ref, "labels", labels)
            case Emit():
                await self._emit(body, action)
            case Hold():
                await self._set_finalizers(body, [*_finalizers(body), FINALIZER])
            case Release():
                await self._set_finalizers(body, [name for name in _finalizers(body) if name != FINALIZER])

    async def _apply(self, body: Manifest, manifest: Manifest) -> None:
        """Apply a child, without what the server does not know of a user's pod template, which it then reports."""
        kind, namespace, wanted = manifest["kind"], body["metadata"]["namespace"], manifest
        unknown: set[str] = set()
        while True:
            try:
                child = await apply_child(self._api, wanted, namespace, holder_in(body))
                break
            except FieldsUnknown as error:
                # Each round removes some; the server tells of those within lists only after the others.
                wanted, found = without_unknown(wanted, body["spec"], error.fields)
                if not found:
                    raise
                unknown.update(found)
        self._seen.put(kind, child)
        log.info("applied", kind=kind, namespace=namespace, name=manifest["metadata"]["name"])
        if not unknown:
            return
        about = f"{body['kind']} {namespace}/{body['metadata']['name']}"
        told = f"Kubernetes knows no field {', '.join(sorted(unknown))} ({about}): correct or remove it there"
        if kind != "Pod":
            raise TemplateFieldsUnknown(told, 400)
        # A pod is applied once, so no later pass would tell of it.
        await self._emit(body, Emit("Warning", Reason.APPLY_REFUSED, f"{told}. The pod starts without it."))

    async def write_status(self, body: Manifest, status: Mapping[str, Any]) -> None:
        """Make this the status of the resource; removes fields that it no longer has."""
        metadata = {"name": body["metadata"]["name"], "uid": body["metadata"]["uid"]}
        manifest = {"apiVersion": API_VERSION, "kind": body["kind"], "metadata": metadata, "status": dict(status)}
        answer = await self._api.apply(manifest, body["metadata"]["namespace"], "status")
        self._seen.put(body["kind"], answer)

    async def _delete(self, body: Manifest, ref: Ref) -> None:
        """Delete an object of the resource, in the very state in which it is the resource's own; leave any other.

        The only place that deletes, so that no plan can delete what belongs to somebody else.
        """
        namespace, about = body["metadata"]["namespace"], {"kind": ref.kind, "name": ref.name}
        known = self._seen.get(ref.kind, namespace, ref.name)
        for attempt in range(DELETE_ATTEMPTS):
            found = await self._api.look(ref.kind, namespace, ref.name) if known is not None else None
            if known is None or found is None or found["metadata"]["uid"] != known["metadata"]["uid"]:
                return  # the plan was about an object that is gone
            if not is_deletable(ref.kind, found, holder_in(body)):
                log.warning("left an object that is not the resource's own", namespace=namespace, **about)
                return
            try:
                await self._api.delete(ref.kind, namespace, ref.name, found["metadata"])
            except ApiConflict:
                # Such as a kubelet that reports the state of a pod.
                if attempt == DELETE_ATTEMPTS - 1:
                    raise
                continue
            log.info("deleted", namespace=namespace, **about)
            return

    async def _note(self, namespace: str, ref: Ref, field: str, values: Mapping[str, str | None]) -> None:
        """Merge into the annotations or the labels of an object."""
        known = self._seen.get(ref.kind, namespace, ref.name)
        if known is None:
            return
        # Only that very object: another one may have its name by now.
        metadata = {"uid": known["metadata"]["uid"], field: dict(values)}
        try:
            answer = await self._api.merge(ref.kind, namespace, ref.name, {"metadata": metadata})
        except (ApiNotFound, ApiConflict):
            # A pod that is gone by now needs none.
            return
        self._seen.put(ref.kind, answer)

    async def _emit(self, body: Manifest, emit: Emit) -> None:
        now = datetime.fromtimestamp(self._system.now_ms() / 1000, UTC)
        event = event_of(emit, body, self._identity, now, self._system.random_bytes(8).hex())
        try:
            await self._api.create(event, body["metadata"]["namespace"])
        except ApiError as error:
            # The status says the same; and no event can be made in a namespace that is being deleted.
            log.warning("could not post an event", reason=emit.reason, error=str(error))
        level = log.warning if emit.type == "Warning" else log.info
        about = {"kind": body["kind"], "namespace": body["metadata"]["namespace"], "name": body["metadata"]["name"]}
        level("event", reason=emit.reason, message=emit.message, **about)

    async def _set_finalizers(self, body: Manifest, finalizers: Sequence[str]) -> None:
        metadata = body["metadata"]
        # A list is replaced as a whole, so check that no other client has changed it.
        patch = {"metadata": {"finalizers": list(finalizers), "resourceVersion": metadata["resourceVersion"]}}
        try:
            answer = await self._api.merge(body["kind"], metadata["namespace"], metadata["name"], patch)
        except ApiNotFound:
            return
        if answer.get("kind") == body["kind"]:
            self._seen.put(body["kind"], answer)


def _finalizers(body: Manifest) -> list[str]:
    return [name for name in body["metadata"].get("finalizers") or [] if name != FINALIZER]
