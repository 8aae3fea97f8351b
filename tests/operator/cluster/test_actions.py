"""Actions are about the very object that was seen, and one that is gone meanwhile is no failure."""

import asyncio
from typing import Any

import pytest

from tussock.operator.cluster.actions import Actor
from tussock.operator.cluster.errors import ApiConflict, ApiError, ApiNotFound
from tussock.operator.cluster.seen import Seen
from tussock.operator.planning.words.model import Annotate, Ref
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
