"""The sweep: compares the operator's memory every few minutes with lists from the API server.

kopf's watches miss two things: deletions during a break after which a watch had to restart, and everything,
if a watch has ended unnoticed. The sweep repairs the first. It reports the second to the liveness probe, since only a
new process gets new watches.
"""

import asyncio
from collections.abc import Mapping, Sequence

from tussock.operator.cluster.errors import ApiError
from tussock.operator.cluster.kinds import Kind, selectors_of
from tussock.operator.handlers.passes.wakeups import concerned_keys
from tussock.operator.handlers.world import World
from tussock.operator.health import Health
from tussock.statestore.base.logs import get_logger

__all__ = ["SWEEP_SECONDS", "Sweeper"]

log = get_logger("tussock.operator")

SWEEP_SECONDS = 300.0


class Sweeper:
    """Sweeps all watched kinds, and remembers what was stale at the last sweep."""

    def __init__(self, world: World, kinds: Mapping[str, Kind], namespaces: Sequence[str], health: Health) -> None:
        """`namespaces`: the watched ones; none for all of them."""
        self._world = world
        self._kinds = kinds
        self._namespaces: Sequence[str | None] = namespaces or [None]
        self._health = health
        self._stale: dict[tuple[str, str | None], set[tuple[str, str]]] = {}

    async def work(self, every_seconds: float = SWEEP_SECONDS) -> None:
        """Sweep for ever."""
        while True:
            await asyncio.sleep(every_seconds)
            for kind in self._kinds:
                for namespace in self._namespaces:
                    try:
                        await self.sweep(kind, namespace)
                    except ApiError as error:
                        log.warning("a sweep failed", kind=kind, error=str(error))
            self._health.beat()

    async def sweep(self, kind: str, namespace: str | None) -> None:
        """Compare the objects of one kind."""
        seen = self._world.seen
        before = seen.uids(kind)
        listed = await self._world.api.list_metadata(kind, namespace, *selectors_of(kind))
        found = seen.sweep(kind, namespace, listed, before)
        for body in found.gone:
            log.warning("a watch missed a deletion", kind=kind, **_names(body["metadata"]))
            for key in concerned_keys(seen, kind, body):
                self._world.wake(key)
        # A change that was just made is on its way; one that is still missing after a sweep will never come.
        lost = found.stale & self._stale.get((kind, namespace), set())
        self._stale[kind, namespace] = found.stale
        if lost:
            log.error("a watch is dead; the process has to restart", kind=kind, objects=len(lost))
            self._health.fail(f"the watch of {kind} objects has missed changes of {len(lost)} of them")


def _names(metadata: Mapping[str, str]) -> dict[str, str]:
    return {"namespace": metadata["namespace"], "name": metadata["name"]}
