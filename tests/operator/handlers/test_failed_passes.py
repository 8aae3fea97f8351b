"""Passes that fail, by a conflict or an error that nobody foresaw: the status tells of it, as users read no log."""

import asyncio
from typing import Any

import pytest

from tussock.operator.cluster.errors import ApiConflict, ApiUnavailable
from tussock.operator.cluster.seen import Key, Seen
from tussock.operator.handlers.passes.reconciler import CONFLICTS_TOLD, RESYNC_SECONDS, Reconciler
from tussock.operator.handlers.world import Controller, World
from tussock.operator.planning.words.model import Hold, Observed, Plan
from tussock.operator.resources.store import parse_store

KEY = Key("StateStore", "n", "s")


class Server:
    """An API server that notes statuses and events; when told to, it is away or refuses changes of finalizers."""

    def __init__(self, seen: Seen) -> None:
        self.is_away = self.conflicts = False
        self.statuses: list[dict[str, Any]] = []
        self.events: list[dict[str, Any]] = []
        self._seen = seen

    async def apply(self, manifest: Any, namespace: str, subresource: str = "") -> Any:
        assert subresource == "status"
        if self.is_away:
            raise ApiUnavailable("no answer")
        self.statuses.append(manifest["status"])
        known = self._seen.get(manifest["kind"], namespace, manifest["metadata"]["name"])
        return {**(known or {}), "status": manifest["status"]}

    async def merge(self, kind: str, namespace: str, name: str, _: Any) -> Any:
        if self.conflicts:
            raise ApiConflict("patch StateStore n/s: 409: the object has been modified", 409)
        return self._seen.get(kind, namespace, name)

    async def create(self, event: Any, _: str) -> None:
        self.events.append(event)


class Clock:
    """It stands still."""

    def now_ms(self) -> int:
        return 1_700_000_000_000

    def monotonic(self) -> float:
        return 0.0

    def random_bytes(self, count: int) -> bytes:
        return bytes(count)


class Case:
    """A store whose plan raises an error, as long as there is one."""

    def __init__(self, plan: Plan, error: Exception | None) -> None:
        self.error, self._made = error, plan
        seen = Seen()
        metadata = {"name": "s", "namespace": "n", "uid": "1", "resourceVersion": "1", "generation": 4}
        body = {"apiVersion": "tussock.dev/v1alpha1", "kind": "StateStore", "metadata": metadata}
        seen.put("StateStore", {**body, "spec": {"objectStore": {"managed": {}}}, "status": {"prefixHeld": True}})
        self.server = Server(seen)
        parts = {"probes": None, "wake": None, "metrics": None, "identity": "x", "defaults": None}
        world: Any = World(api=self.server, seen=seen, system=Clock(), has_cert_manager=False, **parts)  # type: ignore[arg-type]
        controller: Any = Controller(
            kind="StateStore", parse=parse_store, observe=lambda *_: Observed(None, {}, {}), plan=self._plan
        )
        self.reconciler = Reconciler(world, [controller])

    def _plan(self, *_: Any) -> Plan:
        if self.error is not None:
            raise self.error
        return self._made


def failing(error: Exception) -> Case:
    return Case(Plan((), {"observedGeneration": 4}), error)


SECRET = ValueError("a key: sEcReT")


def test_a_lasting_conflict_is_tried_ever_more_rarely_and_told() -> None:
    """Story: it was tried each second for ever, and the status said nothing of it."""
    case = Case(Plan((Hold(),), {"observedGeneration": 4}), None)
    case.server.conflicts = True

    async def passes(count: int) -> list[float | None]:
        return [await case.reconciler.run(KEY) for _ in range(count)]

    async def body() -> None:
        assert await passes(CONFLICTS_TOLD - 1) == [1.0, 2.0]
        assert case.server.statuses == []
        assert await passes(7) == [4.0, 8.0, 16.0, 32.0, 60.0, 60.0, 60.0]
        told = case.server.statuses[0]["conditions"][0]
        assert told["reason"] == "ApplyRefused"
        assert "the object has been modified" in told["message"]
        case.server.conflicts = False
        assert await passes(1) == [RESYNC_SECONDS]
        case.server.conflicts = True
        assert await passes(1) == [1.0]

    asyncio.run(body())


def test_an_unforeseen_error_is_told_once_and_raised() -> None:
    """Its class and place, and not its text, which may repeat anything; the rest of the status stays."""
    case = failing(SECRET)

    async def passes() -> None:
        for _ in range(3):
            with pytest.raises(ValueError, match="sEcReT"):
                await case.reconciler.run(KEY)

    asyncio.run(passes())
    (status,) = case.server.statuses
    (event,) = case.server.events
    ready, _, degraded = status["conditions"]
    assert (ready["status"], ready["reason"], degraded["status"]) == ("False", "OperatorFailed", "True")
    assert "ValueError in line " in ready["message"]
    assert "of test_failed_passes.py" in ready["message"]
    assert "n/s" in ready["message"]
    assert (status["prefixHeld"], status["observedGeneration"]) == (True, 4)
    assert (event["type"], event["reason"]) == ("Warning", "OperatorFailed")
    assert "sEcReT" not in str([status, event])


def test_the_status_is_remade_when_a_pass_succeeds() -> None:
    case = failing(SECRET)
    with pytest.raises(ValueError, match="sEcReT"):
        asyncio.run(case.reconciler.run(KEY))
    case.error = None
    assert asyncio.run(case.reconciler.run(KEY)) == RESYNC_SECONDS
    assert case.server.statuses[-1] == {"observedGeneration": 4}


@pytest.mark.parametrize("error", [ValueError("x"), ApiUnavailable("no answer")])
def test_the_first_error_is_raised_while_the_server_is_away(error: Exception) -> None:
    case = failing(error)
    case.server.is_away = True
    with pytest.raises(type(error)):
        asyncio.run(case.reconciler.run(KEY))
    assert case.server.statuses == []
