"""How long a dead leader keeps the Lease, which servers cost a living one its Lease, and that never two lead.

In virtual time, at Leases in memory whose server takes some time to act, and some more to answer.
"""

import asyncio
from collections.abc import Callable, Iterator
from itertools import count, repeat
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from support.virtual_time import run_in_virtual_time
from tussock.operator.cluster.errors import ApiConflict, ApiNotFound, ApiUnavailable
from tussock.operator.cluster.lease import DEADLINE_SECONDS, Lease
from tussock.statestore.base.system import RealSystem

TAKEN_SECONDS_MAX = 7.2
"""From a leader's death to the next one: of the ten seconds to the first work of that one, the rest is its start."""
LOST = (0.0, 1e6)
"""The delays of a request that has its effect, and no answer."""
DEAD = (1e6, 0.0)
REFUSED = (-1.0, 0.0)
"""A server that is busy says so at once."""


class Clock(RealSystem):
    """The loop's."""

    def monotonic(self) -> float:
        return asyncio.get_running_loop().time()


class Leases:
    """One Lease; `delays` has the seconds before each request has its effect, and from then to its answer."""

    def __init__(self, delays: Iterator[tuple[float, float]]) -> None:
        self.delays = delays
        self.requests: list[str] = []
        self._body: dict[str, Any] | None = None
        self._versions = count(1)

    async def get(self, kind: str, namespace: str, name: str) -> dict[str, Any]:
        return await self._answer("get", lambda: self._body)

    async def create(self, body: dict[str, Any], namespace: str) -> dict[str, Any]:
        return await self._answer("create", lambda: self._write(body, None))

    async def replace(self, body: dict[str, Any], namespace: str) -> dict[str, Any]:
        return await self._answer("replace", lambda: self._write(body, body["metadata"]["resourceVersion"]))

    def _write(self, body: dict[str, Any], version: str | None) -> dict[str, Any]:
        if (self._body["metadata"]["resourceVersion"] if self._body else None) != version:
            raise ApiConflict("the Lease has changed", 409)
        self._body = {**body, "metadata": {**body["metadata"], "resourceVersion": str(next(self._versions))}}
        return self._body

    async def _answer(self, verb: str, act: Callable[[], dict[str, Any] | None]) -> dict[str, Any]:
        self.requests.append(verb)
        before, after = next(self.delays)
        if (before, after) == REFUSED:
            raise ApiUnavailable("too many requests", 429)
        await asyncio.sleep(before)
        found = act()
        await asyncio.sleep(after)
        if found is None:
            raise ApiNotFound("no Lease", 404)
        return {**found, "spec": {**found["spec"]}}


def replica(leases: Any, identity: str) -> Lease:
    return Lease(leases, Clock(), "n", "tussock", identity, lambda: None)


@pytest.mark.parametrize("lived", [10 + tenths / 10 for tenths in range(11)])
def test_a_killed_leader_is_replaced_within_the_lease_and_two_looks(lived: float) -> None:
    """At whatever moment between two renewals it dies."""

    async def test() -> None:
        leases = Leases(repeat((0.01, 0.01)))
        one, two = replica(leases, "one"), replica(leases, "two")
        await one.acquire()
        leading, waiting = asyncio.create_task(one.keep()), asyncio.create_task(two.acquire())
        await asyncio.sleep(lived)
        leading.cancel()
        assert not waiting.done()
        await asyncio.wait_for(waiting, TAKEN_SECONDS_MAX)

    run_in_virtual_time(test())


@pytest.mark.parametrize("seconds", [0.02, 0.3, 1.0, 2.0])
def test_a_slow_server_costs_no_leader_its_lease(seconds: float) -> None:
    """Even one that takes two seconds for every request, for ten minutes."""

    async def test() -> None:
        leases = Leases(repeat((seconds / 2, seconds / 2)))
        one, two = replica(leases, "one"), replica(leases, "two")
        await one.acquire()
        leading, waiting = asyncio.create_task(one.keep()), asyncio.create_task(two.acquire())
        await asyncio.wait((leading, waiting), timeout=600)
        assert not leading.done()
        assert not waiting.done()

    run_in_virtual_time(test())


@pytest.mark.parametrize("failure", [LOST, DEAD, REFUSED])
def test_one_lost_request_costs_no_leader_its_lease(failure: tuple[float, float]) -> None:
    """Nor one that has taken the Lease from another: it reads the Lease again, and finds that it still has it."""

    async def test() -> None:
        leases = Leases(repeat((0.01, 0.01)))
        await replica(leases, "dead").acquire()
        one = replica(leases, "one")
        await one.acquire()
        leading = asyncio.create_task(one.keep())
        for _ in range(5):
            leases.delays = iter([failure, *[(0.01, 0.01)] * 100])
            await asyncio.sleep(10)
        assert not leading.done()

    run_in_virtual_time(test())


def test_a_renewal_is_one_write_and_a_look_one_read() -> None:
    """What replicas cost the API server while nothing happens: a write and two reads a second."""

    async def test() -> None:
        leases = Leases(repeat((0.0, 0.001)))
        one, two = replica(leases, "one"), replica(leases, "two")
        await one.acquire()
        before = len(leases.requests)
        await asyncio.wait((asyncio.create_task(one.keep()), asyncio.create_task(two.acquire())), timeout=100)
        assert leases.requests.count("replace") in range(98, 102)
        assert leases.requests[before:].count("get") in range(195, 203)

    run_in_virtual_time(test())


DELAYS = st.sampled_from([0.0, 0.01, 0.5, 1.5, 4.0, 9.0])


@settings(deadline=None, max_examples=150)
@given(delays=st.lists(st.tuples(DELAYS, DELAYS), min_size=1, max_size=60))
def test_two_never_lead_at_once(delays: list[tuple[float, float]]) -> None:
    """However late the answers, and their effects, are: a leader stops before another one begins."""

    async def test() -> None:
        leases = Leases(iter([*delays, *[(0.01, 0.01)] * 2000]))
        leaders: set[str] = set()

        async def live(name: str) -> None:
            while True:
                lease = replica(leases, name)
                await lease.acquire()
                assert not leaders, (leaders, name)
                leaders.add(name)
                await lease.keep()
                leaders.remove(name)

        living = [asyncio.create_task(live(name)) for name in ("one", "two", "three")]
        done, _ = await asyncio.wait(living, timeout=120, return_when=asyncio.FIRST_EXCEPTION)
        for task in done:
            task.result()
        for task in living:
            task.cancel()

    run_in_virtual_time(test())


def test_a_leader_without_server_stops_at_the_deadline() -> None:
    async def test() -> None:
        leases = Leases(repeat((0.0, 0.0)))
        one = replica(leases, "one")
        await one.acquire()
        leases.delays = repeat(DEAD)
        await asyncio.wait_for(one.keep(), DEADLINE_SECONDS + 0.01)

    run_in_virtual_time(test())
