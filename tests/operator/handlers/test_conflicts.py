"""A conflict ends a pass: the next one looks again, later each time, and at last the status tells of it."""

import asyncio
from typing import Any

from tussock.operator.cluster.errors import ApiConflict
from tussock.operator.cluster.seen import Key, Seen
from tussock.operator.handlers.passes.reconciler import CONFLICTS_TOLD, RESYNC_SECONDS, Reconciler
from tussock.operator.handlers.world import Controller, World
from tussock.operator.planning.words.model import Hold, Observed, Plan
from tussock.operator.resources.store import parse_store

KEY = Key("StateStore", "n", "s")


class Server:
    """An API server that refuses each change of the finalizers, as long as it is told to."""

    def __init__(self, seen: Seen) -> None:
        self.conflicts = True
        self.statuses: list[dict[str, Any]] = []
        self._seen = seen

    async def merge(self, kind: str, namespace: str, name: str, _: Any) -> Any:
        if self.conflicts:
            raise ApiConflict("patch StateStore n/s: 409: the object has been modified", 409)
        return self._seen.get(kind, namespace, name)

    async def apply(self, manifest: Any, namespace: str, subresource: str = "") -> Any:
        assert subresource == "status"
        self.statuses.append(manifest["status"])
        known = self._seen.get(manifest["kind"], namespace, manifest["metadata"]["name"])
        return {**(known or {}), "status": manifest["status"]}

    async def create(self, *_: Any) -> Any:
        """An event."""


class Clock:
    """It stands still."""

    def now_ms(self) -> int:
        return 1_700_000_000_000

    def monotonic(self) -> float:
        return 0.0

    def random_bytes(self, count: int) -> bytes:
        return bytes(count)


def test_a_lasting_conflict_is_tried_ever_more_rarely_and_told() -> None:
    """Story: it was tried each second for ever, and the status said nothing of it."""
    seen = Seen()
    metadata = {"name": "s", "namespace": "n", "uid": "1", "resourceVersion": "1", "generation": 1}
    seen.put(
        "StateStore",
        {
            "apiVersion": "tussock.dev/v1alpha1",
            "kind": "StateStore",
            "metadata": metadata,
            "spec": {"objectStore": {"managed": {}}},
        },
    )
    server = Server(seen)
    parts = {"probes": None, "wake": None, "metrics": None, "identity": "x", "defaults": None}
    world: Any = World(api=server, seen=seen, system=Clock(), has_cert_manager=False, **parts)  # type: ignore[arg-type]
    controller: Any = Controller(
        kind="StateStore",
        parse=parse_store,
        observe=lambda *_: Observed(None, {}, {}),
        plan=lambda *_: Plan((Hold(),), {"observedGeneration": 1}),
    )
    reconciler = Reconciler(world, [controller])

    async def passes(count: int) -> list[float | None]:
        return [await reconciler.run(KEY) for _ in range(count)]

    async def body() -> None:
        assert await passes(CONFLICTS_TOLD - 1) == [1.0, 2.0]
        assert server.statuses == []
        assert await passes(7) == [4.0, 8.0, 16.0, 32.0, 60.0, 60.0, 60.0]
        told = server.statuses[0]["conditions"][0]
        assert told["reason"] == "ApplyRefused"
        assert "the object has been modified" in told["message"]
        server.conflicts = False
        assert await passes(1) == [RESYNC_SECONDS]
        server.conflicts = True
        assert await passes(1) == [1.0]

    asyncio.run(body())
