"""Facts that only somebody outside the cluster's API knows, gathered beside the passes and kept for a while.

A pass never waits for a bucket or a meta node: it takes the newest fact, and what is too old is asked for meanwhile.
When the answer is another one than before, the resource that the fact is about is looked at again.
"""

import asyncio
from collections.abc import Awaitable, Callable, Hashable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial
from typing import Any, TypeVar

from tussock.operator.cluster.seen import Key
from tussock.statestore.base.logs import get_logger

__all__ = ["Probes"]

log = get_logger("tussock.operator")

PROBES_MAX = 32
"""Probes that run side by side, of all resources together; each may keep a thread busy."""
NAMESPACE_PROBES_MAX = 8
"""Of them those of one namespace: whatever servers its stores name, the others' turn comes."""
PROBE_SECONDS = 20.0
"""A probe that takes longer is given up; each has shorter limits of its own, which make better messages."""
FORGET_SECONDS = 600.0
"""A fact that nobody has asked for during so long is forgotten."""

Fact = TypeVar("Fact")


@dataclass
class _Answer:
    fact: Any = None
    made: float = float("-inf")
    asked: float = 0.0
    task: asyncio.Task[None] | None = None


class Probes:
    """Facts by what they are about. All methods are for one event loop."""

    def __init__(self, wake: Callable[[Key], None]) -> None:
        self._wake = wake
        self._entries: dict[tuple[Key, Hashable], _Answer] = {}
        self._is_closing = False
        self._slots = asyncio.Semaphore(PROBES_MAX)
        self._of_namespace: dict[str, asyncio.Semaphore] = {}
        # Of our own: the one that asyncio shares has a few threads, which also look up names.
        self._threads = ThreadPoolExecutor(PROBES_MAX, thread_name_prefix="probe")

    def fact(
        self, owner: Key, about: Hashable, run: Callable[[], Awaitable[Fact]], every_seconds: float
    ) -> Fact | None:
        """The newest fact about something, `None` if there is none yet.

        One that is older than `every_seconds` is answered too, and `run` is started for a new one. `about` has all
        that the answer depends on, such as the version of a secret, so what was found with another one is not taken.
        """
        now = asyncio.get_running_loop().time()
        entry = self._entries.setdefault((owner, about), _Answer())
        entry.asked = now
        if entry.task is None and now - entry.made >= every_seconds:
            entry.task = asyncio.create_task(self._run(owner, entry, run))
            self._forget(now)
        return entry.fact

    async def in_thread(self, call: Callable[..., Fact], *arguments: Any, **named: Any) -> Fact:
        """Make a call that blocks, in a thread of the probes; it should end by itself within `PROBE_SECONDS`.

        One that does not keeps its probe's place until it ends: nobody can end a thread, and another one beside it
        would make two.
        """
        running = asyncio.get_running_loop().run_in_executor(self._threads, partial(call, *arguments, **named))
        try:
            return await asyncio.shield(running)
        except asyncio.CancelledError:
            if not self._is_closing:
                await asyncio.wait({running})
            raise

    def latest(self, owner: Key, about: Hashable) -> Any:
        """The newest fact, however old; `None` if there is none yet."""
        entry = self._entries.get((owner, about))
        return None if entry is None else entry.fact

    async def close(self) -> None:
        """End what runs, but for threads: those end by themselves."""
        self._is_closing = True
        tasks = [entry.task for entry in self._entries.values() if entry.task is not None]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        self._threads.shutdown(wait=False, cancel_futures=True)

    async def _run(self, owner: Key, entry: _Answer, run: Callable[[], Awaitable[Fact]]) -> None:
        try:
            # Its namespace's first: who waits for that one keeps none of the others'.
            async with self._turn(owner.namespace), self._slots, asyncio.timeout(PROBE_SECONDS):
                fact = await run()
        except Exception as error:  # noqa: BLE001 - logged; the fact stays, and is asked for again
            log.warning("a probe failed", kind=owner.kind, namespace=owner.namespace, name=owner.name, error=str(error))
            fact = entry.fact
        finally:
            entry.task = None
            entry.made = asyncio.get_running_loop().time()
        if fact != entry.fact:
            entry.fact = fact
            self._wake(owner)

    def _turn(self, namespace: str) -> asyncio.Semaphore:
        return self._of_namespace.setdefault(namespace, asyncio.Semaphore(NAMESPACE_PROBES_MAX))

    def _forget(self, now: float) -> None:
        for about in [about for about, entry in self._entries.items() if now - entry.asked > FORGET_SECONDS]:
            if self._entries[about].task is None:
                del self._entries[about]
        asking = {owner.namespace for owner, _ in self._entries}
        for namespace in self._of_namespace.keys() - asking:
            del self._of_namespace[namespace]
