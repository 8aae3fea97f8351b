"""One replica holds the Lease; no other one does before it was released or has ended."""

import asyncio
import time
from typing import Any

import pytest
from kubernetes.aio import client as kubernetes

from support.buckets.minio import free_port
from support.operator.process import WAIT_SECONDS_MAX, Objects, with_api
from tussock.operator.cluster.api import Api
from tussock.operator.cluster.lease import DEADLINE_SECONDS, LEASE_SECONDS, RENEW_SECONDS, Lease
from tussock.statestore.base.system import RealSystem


class Clock(RealSystem):
    """A machine's clock, which the test moves."""

    seconds = 0.0

    def monotonic(self) -> float:
        return self.seconds


def lease_of(api: Api, objects: Objects, identity: str, clock: Clock | None = None) -> Lease:
    return Lease(api, clock or Clock(), objects.namespace, "tussock", identity, lambda: None)


async def take(*leases: Lease) -> None:
    """Wait until one of the candidates has the lease, and check that no other one takes it within a second."""
    tasks = [asyncio.create_task(lease.acquire()) for lease in leases]
    done, _ = await asyncio.wait(tasks, timeout=WAIT_SECONDS_MAX, return_when=asyncio.FIRST_COMPLETED)
    assert done, "nobody has taken the Lease"
    if len(tasks) > 1:
        await asyncio.sleep(1)
    assert sum(task.done() for task in tasks) == 1
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)


async def is_refused(lease: Lease) -> bool:
    """Make one attempt; returns whether it failed."""
    return not await lease.attempt()


def holder(objects: Objects) -> Any:
    return (objects.get("Lease", "tussock") or {})["spec"]["holderIdentity"]


def test_a_lease_has_one_holder_until_it_is_released(objects: Objects, monkeypatch: pytest.MonkeyPatch) -> None:
    async def test(api: Api) -> None:
        one, two = lease_of(api, objects, "one"), lease_of(api, objects, "two")
        await take(one)
        assert await is_refused(two)
        assert holder(objects) == "one"
        await two.release()
        assert holder(objects) == "one"
        await one.release()
        await take(two)
        assert holder(objects) == "two"

    with_api(objects, monkeypatch, test)


def test_of_several_candidates_at_once_one_succeeds(objects: Objects, monkeypatch: pytest.MonkeyPatch) -> None:
    async def test(api: Api) -> None:
        leases = [lease_of(api, objects, f"number-{number}") for number in range(8)]
        await take(*leases)

    with_api(objects, monkeypatch, test)


def test_a_holder_that_falls_silent_is_replaced(objects: Objects, monkeypatch: pytest.MonkeyPatch) -> None:
    """A candidate takes over after `LEASE_SECONDS` without a renewal by its own clock; a renewal restarts that."""

    async def test(api: Api) -> None:
        clock = Clock()
        one, two = lease_of(api, objects, "one"), lease_of(api, objects, "two", clock)
        await take(one)
        assert await is_refused(two)
        clock.seconds = LEASE_SECONDS - 3
        assert await is_refused(two)
        await take(one)
        clock.seconds += LEASE_SECONDS - 3
        assert await is_refused(two)
        clock.seconds += LEASE_SECONDS
        await take(two)
        assert (objects.get("Lease", "tussock") or {})["spec"]["leaseTransitions"] == 1

    with_api(objects, monkeypatch, test)


def test_a_holder_that_was_replaced_stops(objects: Objects, monkeypatch: pytest.MonkeyPatch) -> None:
    """Such as one that slept for a minute: its next attempt stops it, and never overwrites another holder."""

    async def test(api: Api) -> None:
        one = lease_of(api, objects, "one")
        await take(one)
        objects.patch("Lease", "tussock", {"spec": {"holderIdentity": "two"}})
        await asyncio.wait_for(one.keep(), WAIT_SECONDS_MAX)  # its own clock never says that it is over
        assert holder(objects) == "two"

    with_api(objects, monkeypatch, test)


def test_a_holder_without_api_server_stops_before_others_may_begin() -> None:
    async def run() -> float:
        nowhere = kubernetes.Configuration(host=f"http://127.0.0.1:{free_port()}")
        async with Api(kubernetes.ApiClient(nowhere)) as api:
            lease = Lease(api, RealSystem(), "n", "tussock", "one", lambda: None)
            began = time.monotonic()
            await asyncio.wait_for(lease.keep(), LEASE_SECONDS)
            return time.monotonic() - began

    assert DEADLINE_SECONDS - RENEW_SECONDS < asyncio.run(run()) < LEASE_SECONDS
