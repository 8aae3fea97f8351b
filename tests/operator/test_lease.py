"""One replica holds the Lease; nobody else does before it has let go, or could have."""

import asyncio
import time
from typing import Any

import pytest
from kubernetes.aio import client as kubernetes

from support.minio import free_port
from support.operators import Objects, with_api
from tussock.operator.cluster.api import Api
from tussock.operator.cluster.lease import DEADLINE_SECONDS, LEASE_SECONDS, Lease
from tussock.statestore.system import RealSystem


class Clock(RealSystem):
    """A machine whose clock is ahead by as much as a test says."""

    ahead = 0.0

    def monotonic(self) -> float:
        return super().monotonic() + self.ahead


def lease_of(api: Api, objects: Objects, identity: str, clock: Clock | None = None) -> Lease:
    return Lease(api, clock or Clock(), objects.namespace, "tussock", identity, lambda: None)


async def takes(lease: Lease, seconds: float = 1.0) -> bool:
    try:
        async with asyncio.timeout(seconds):
            await lease.acquire()
    except TimeoutError:
        return False
    return True


def holder(objects: Objects) -> Any:
    return (objects.get("Lease", "tussock") or {})["spec"]["holderIdentity"]


def test_a_lease_has_one_holder_until_it_is_given_back(objects: Objects, monkeypatch: pytest.MonkeyPatch) -> None:
    async def test(api: Api) -> None:
        one, two = lease_of(api, objects, "one"), lease_of(api, objects, "two")
        assert await takes(one)
        assert not await takes(two)
        assert holder(objects) == "one"
        await two.release()
        assert holder(objects) == "one"
        await one.release()
        assert await takes(two)
        assert holder(objects) == "two"

    with_api(objects, monkeypatch, test)


def test_of_several_that_come_at_once_one_succeeds(objects: Objects, monkeypatch: pytest.MonkeyPatch) -> None:
    async def test(api: Api) -> None:
        leases = [lease_of(api, objects, f"number-{number}") for number in range(8)]
        assert sum(await asyncio.gather(*map(takes, leases))) == 1

    with_api(objects, monkeypatch, test)


def test_a_holder_that_falls_silent_is_replaced(objects: Objects, monkeypatch: pytest.MonkeyPatch) -> None:
    """By whoever has seen no renewal for as long as the Lease lasts, on its own clock; any renewal begins that anew."""

    async def test(api: Api) -> None:
        clock = Clock()
        one, two = lease_of(api, objects, "one"), lease_of(api, objects, "two", clock)
        assert await takes(one)
        assert not await takes(two)
        clock.ahead = LEASE_SECONDS - 3
        assert not await takes(two)
        assert await takes(one)
        clock.ahead += LEASE_SECONDS - 3
        assert not await takes(two)
        clock.ahead += LEASE_SECONDS
        assert await takes(two)
        assert (objects.get("Lease", "tussock") or {})["spec"]["leaseTransitions"] == 1

    with_api(objects, monkeypatch, test)


def test_a_holder_that_was_replaced_stops(objects: Objects, monkeypatch: pytest.MonkeyPatch) -> None:
    """Such as one that slept for a minute: at its next look, and it never writes its name over another one's."""

    async def test(api: Api) -> None:
        one = lease_of(api, objects, "one")
        assert await takes(one)
        objects.patch("Lease", "tussock", {"spec": {"holderIdentity": "two"}})
        await asyncio.wait_for(one.keep(), DEADLINE_SECONDS / 2)
        assert holder(objects) == "two"

    with_api(objects, monkeypatch, test)


def test_a_holder_that_reaches_nobody_stops_before_others_may_begin() -> None:
    async def run() -> float:
        nowhere = kubernetes.Configuration(host=f"http://127.0.0.1:{free_port()}")
        async with Api(kubernetes.ApiClient(nowhere)) as api:
            lease = Lease(api, RealSystem(), "n", "tussock", "one", lambda: None)
            began = time.monotonic()
            await asyncio.wait_for(lease.keep(), LEASE_SECONDS)
            return time.monotonic() - began

    assert asyncio.run(run()) < DEADLINE_SECONDS + 1 < LEASE_SECONDS
