"""The queue of passes: one pass for many wishes, never two at a time, later after each failure."""

import asyncio
from collections.abc import Awaitable, Callable, Coroutine
from typing import Any

import pytest

from support.virtual_time import run_in_virtual_time
from tussock.operator.cluster.seen import Key
from tussock.operator.handlers.passes.queue import PASSES_MAX, Queue, backoff_seconds
from tussock.operator.metrics import OperatorMetrics

A, B = Key("StateStore", "n", "a"), Key("StateStore", "n", "b")


def in_loop(test: Callable[[], Coroutine[Any, Any, None]]) -> Callable[[], None]:
    """Run a test as a coroutine, in which pauses take no time."""

    def run() -> None:
        run_in_virtual_time(test())

    run.__doc__ = test.__doc__
    return run


async def working(run: Callable[[Key], Awaitable[float | None]]) -> tuple[Queue, "asyncio.Task[None]"]:
    queue = Queue(run, OperatorMetrics())
    return queue, asyncio.create_task(queue.work())


@in_loop
async def test_many_wishes_are_one_pass() -> None:
    passes: list[Key] = []

    async def run(key: Key) -> None:
        passes.append(key)

    queue, task = await working(run)
    for _ in range(10):
        queue.wake(A)
        queue.wake(B)
    await asyncio.sleep(0.2)
    assert sorted(passes) == [A, B]
    task.cancel()


@in_loop
async def test_a_resource_never_has_two_passes_at_once() -> None:
    """A wish during a pass causes another pass after it, so no change is lost."""
    running = most = passes = 0

    async def run(_: Key) -> None:
        nonlocal running, most, passes
        running += 1
        most, passes = max(most, running), passes + 1
        await asyncio.sleep(0.1)
        running -= 1

    queue, task = await working(run)
    queue.wake(A, 0)
    await asyncio.sleep(0.05)
    queue.wake(A, 0)
    queue.wake(A, 0)
    await asyncio.sleep(0.5)
    assert (most, passes) == (1, 2)
    task.cancel()


@in_loop
async def test_other_resources_go_on_while_one_waits() -> None:
    """As many passes at once as allowed, and no more."""
    running = most = 0

    async def run(_: Key) -> None:
        nonlocal running, most
        running += 1
        most = max(most, running)
        await asyncio.sleep(0.1)
        running -= 1

    queue, task = await working(run)
    for number in range(3 * PASSES_MAX):
        queue.wake(Key("Meta", "n", str(number)), 0)
    await asyncio.sleep(0.5)
    assert most == PASSES_MAX
    assert running == 0
    task.cancel()


@in_loop
async def test_a_pass_returns_the_time_of_the_next() -> None:
    times: list[float] = []

    async def run(_: Key) -> float | None:
        times.append(asyncio.get_running_loop().time())
        return 0.2 if len(times) < 3 else None

    queue, task = await working(run)
    queue.wake(A, 0)
    await asyncio.sleep(0.9)
    assert len(times) == 3
    assert times == pytest.approx([0, 0.2, 0.4])
    task.cancel()


@in_loop
async def test_a_wish_brings_the_next_pass_forward() -> None:
    passes = 0

    async def run(_: Key) -> float:
        nonlocal passes
        passes += 1
        return 60.0

    queue, task = await working(run)
    queue.wake(A, 0)
    await asyncio.sleep(0.1)
    queue.wake(A)
    await asyncio.sleep(0.2)
    assert passes == 2
    task.cancel()


@in_loop
async def test_a_failed_pass_is_repeated_without_harm_to_others() -> None:
    failures = good = 0

    async def run(key: Key) -> None:
        nonlocal failures, good
        if key == A:
            failures += 1
            raise RuntimeError("a bug")
        good += 1

    queue, task = await working(run)
    queue.wake(A, 0)
    queue.wake(B, 0)
    await asyncio.sleep(1.5)
    assert failures == 2
    assert good == 1
    assert not task.done()
    task.cancel()


@in_loop
async def test_at_the_end_running_passes_end_and_no_more_begin() -> None:
    began: list[Key] = []
    ended: list[Key] = []

    async def run(key: Key) -> None:
        began.append(key)
        await asyncio.sleep(0.2)
        ended.append(key)

    queue, task = await working(run)
    queue.wake(A, 0)
    await asyncio.sleep(0.05)
    queue.wake(B, 0.05)
    await queue.drain(2)
    assert began == ended == [A]
    task.cancel()


@pytest.mark.parametrize(("failures", "seconds"), [(1, 1.0), (2, 2.0), (5, 16.0), (7, 60.0), (50, 60.0), (5_000, 60.0)])
def test_pauses_grow_to_a_minute(failures: int, seconds: float) -> None:
    assert backoff_seconds(failures) == seconds
