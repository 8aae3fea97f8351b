"""Actions are about the very object that was seen, and one that is gone meanwhile is no failure."""

import asyncio
from typing import Any

import pytest

from tussock.operator.cluster.actions import DELETE_ATTEMPTS, Actor
from tussock.operator.cluster.errors import ApiConflict, ApiError, ApiNotFound
from tussock.operator.cluster.seen import Seen
from tussock.operator.planning.words.model import Annotate, Delete, Label, Ref
from tussock.statestore.base.system import RealSystem

OWNER = {"kind": "Meta", "metadata": {"name": "m", "namespace": "n", "uid": "1"}}
POD = {"metadata": {"name": "p", "namespace": "n", "uid": "of-p", "resourceVersion": "3"}}


class Server:
    """An API server that notes patches, and answers each with the pod or an error."""

    def __init__(self, error: ApiError | None) -> None:
        self.patches: list[Any] = []
        self._error = error

    async def merge(self, _kind: str, _namespace: str, _name: str, patch: Any) -> Any:
        self.patches.append(patch)
        if self._error is not None:
            raise self._error
        return POD


@pytest.mark.parametrize("error", [None, ApiNotFound("gone", 404), ApiConflict("another uid", 409)])
def test_an_annotation_is_for_the_object_that_was_seen(error: ApiError | None) -> None:
    """Another pod may have the name by now, which is none of the resource's."""
    seen, server = Seen(), Server(error)
    actor = Actor(server, seen, RealSystem(), "x")  # type: ignore[arg-type]
    annotate = Annotate(Ref("Pod", "p"), {"a": "1"})
    asyncio.run(actor.act(OWNER, annotate))
    assert server.patches == []
    seen.put("Pod", POD)
    asyncio.run(actor.act(OWNER, annotate))
    assert server.patches == [{"metadata": {"uid": "of-p", "annotations": {"a": "1"}}}]
    asyncio.run(actor.act(OWNER, Label(Ref("Pod", "p"), {"b": None})))
    assert server.patches[1:] == [{"metadata": {"uid": "of-p", "labels": {"b": None}}}]


OWN_REFERENCE = [{"uid": "1"}]
OWN_LABELS = {
    "app.kubernetes.io/managed-by": "tussock-operator",
    "tussock.dev/owner-kind": "Meta",
    "tussock.dev/owner": "m",
}


class Deleting:
    """An API server that has an object, in states that follow each other, and notes which state was deleted."""

    def __init__(self, *states: dict[str, Any] | None) -> None:
        self.deleted: list[tuple[str, str]] = []
        self.looks = 0
        self._states = states

    async def look(self, *_: str) -> Any:
        self.looks += 1
        return self._state()

    async def delete(self, _kind: str, _namespace: str, _name: str, metadata: Any) -> None:
        now = self._state()
        assert now is not None
        if len(self._states) > self.looks:
            raise ApiConflict("it has changed", 409)
        self.deleted.append((metadata["uid"], metadata["resourceVersion"]))

    def _state(self) -> dict[str, Any] | None:
        return self._states[min(self.looks, len(self._states)) - 1]


def state(version: int = 3, uid: str = "of-p", **metadata: Any) -> dict[str, Any]:
    return {"metadata": {"name": "p", "namespace": "n", "uid": uid, "resourceVersion": str(version), **metadata}}


def deleted(kind: str, server: Deleting) -> list[tuple[str, str]]:
    """What an actor deletes that has seen the object as its own."""
    seen = Seen()
    seen.put(kind, state(2, ownerReferences=OWN_REFERENCE))
    actor = Actor(server, seen, RealSystem(), "x")  # type: ignore[arg-type]
    asyncio.run(actor.act(OWNER, Delete(Ref(kind, "p"))))
    return server.deleted


KINDS_DELETED = ("Meta", "Compactor", "Deployment", "Pod", "Service", "Certificate", "Secret")
FOREIGN: dict[str, dict[str, Any]] = {
    "no label": {},
    "two labels": {"labels": {**OWN_LABELS, "app.kubernetes.io/managed-by": "alice"}},
    "three labels": {"labels": OWN_LABELS},
    "another owner": {"labels": OWN_LABELS, "ownerReferences": [{"uid": "another"}]},
    "a former owner": {"ownerReferences": [{"apiVersion": "tussock.dev/v1alpha1", "kind": "Meta", "uid": "0"}]},
    "a request of another name": {"labels": OWN_LABELS, "annotations": {"cert-manager.io/certificate-name": "q"}},
    "a request, and no labels": {"annotations": {"cert-manager.io/certificate-name": "p"}},
}


@pytest.mark.parametrize("kind", KINDS_DELETED)
@pytest.mark.parametrize("metadata", FOREIGN.values(), ids=FOREIGN)
def test_nothing_is_deleted_that_does_not_belong_to_the_resource(kind: str, metadata: dict[str, Any]) -> None:
    """Whatever a plan says, and whatever the object was like when the plan was made."""
    assert deleted(kind, Deleting(state(**metadata))) == []


@pytest.mark.parametrize("kind", KINDS_DELETED)
def test_an_own_object_is_deleted_in_the_state_in_which_that_was_checked(kind: str) -> None:
    assert deleted(kind, Deleting(state(7, ownerReferences=OWN_REFERENCE))) == [("of-p", "7")]


def test_a_secret_that_cert_manager_wrote_for_the_resource_is_deleted() -> None:
    """It has no owner, but the labels that the request asked for, and the name of the request."""
    issued = state(labels=OWN_LABELS, annotations={"cert-manager.io/certificate-name": "p"})
    assert deleted("Secret", Deleting(issued)) == [("of-p", "3")]
    assert deleted("Pod", Deleting(issued)) == []


def test_an_object_that_changes_is_looked_at_again() -> None:
    """A user may take it over in the moment between the look and the deletion."""
    own = [state(version, ownerReferences=OWN_REFERENCE) for version in range(3, 3 + DELETE_ATTEMPTS)]
    assert deleted("Pod", Deleting(*own)) == [("of-p", str(2 + DELETE_ATTEMPTS))]
    assert deleted("Pod", Deleting(own[0], state(4, labels=OWN_LABELS))) == []
    with pytest.raises(ApiConflict):
        deleted("Pod", Deleting(*own, own[-1]))


@pytest.mark.parametrize("now", [None, state(uid="another", ownerReferences=OWN_REFERENCE)])
def test_only_the_object_that_was_seen_is_deleted(now: dict[str, Any] | None) -> None:
    """Another one of that name is nothing that the plan knows of."""
    assert deleted("Pod", Deleting(now)) == []
