"""Facts from outside the cluster's API, gathered beside the passes and kept for a while.

A pass never waits for a bucket or a meta node: it takes the newest fact, and a fact that is too old is renewed
meanwhile. If the new one differs, the resource that it is about is looked at again.
"""

import asyncio
import traceback
from collections.abc import Awaitable, Callable, Hashable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial
from pathlib import PurePath
from typing import Any, TypeVar

from tussock.operator.cluster.errors import ApiError
from tussock.operator.cluster.seen import Key
from tussock.statestore.base.logs import get_logger

__all__ = ["Probes"]

log = get_logger("tussock.operator")

PROBES_MAX = 32
"""Probes that run side by side, for all resources together; each may keep a thread busy."""
NAMESPACE_PROBES_MAX = 8
"""Of these, the probes of one namespace: even if its servers hang, the others get their turn."""
PROBE_SECONDS = 20.0
"""A probe that takes longer is given up; each has shorter limits, which make better messages."""
FORGET_SECONDS = 600.0
"""A fact that was not used for this time is forgotten."""

Fact = TypeVar("Fact")


@dataclass
class _Answer:
    fact: Any = None
    made: float = float("-inf")
    asked: float = 0.0
    task: asyncio.Task[None] | None = None


class Probes:
    """Facts by subject. All methods belong to one event loop."""

    def __init__(self, wake: Callable[[Key], None], probe_seconds: float = PROBE_SECONDS) -> None:
        """`wake` is called for who has a new fact; a probe that takes longer than `probe_seconds` is given up."""
        self._wake = wake
        self._probe_seconds = probe_seconds
        self._entries: dict[tuple[Key, Hashable], _Answer] = {}
        self._is_closing = False
        self._slots = asyncio.Semaphore(PROBES_MAX)
        self._of_namespace: dict[str, asyncio.Semaphore] = {}
        # A separate pool: asyncio's shared one has a few threads, which also look up names.
        self._threads = ThreadPoolExecutor(PROBES_MAX, thread_name_prefix="probe")

    def fact(
        self, owner: Key, about: Hashable, run: Callable[[], Awaitable[Fact]], every_seconds: float
    ) -> Fact | None:
        """The newest fact about something, `None` if there is none yet.

        Also returns a fact older than `every_seconds`, and starts `run` for a new one. `about` has everything that the
        fact depends on, such as the version of a secret, so that a fact found with another one is not used.
        """
        now = asyncio.get_running_loop().time()
        entry = self._entries.setdefault((owner, about), _Answer())
        entry.asked = now
        if entry.task is None and now - entry.made >= every_seconds:
            entry.task = asyncio.create_task(self._run(owner, entry, run))
            self._forget(now)
        return entry.fact

    async def call_in_thread(self, call: Callable[..., Fact], *arguments: Any, **named: Any) -> Fact:
        """Make a blocking call in a thread of the probes; it should end by itself within `PROBE_SECONDS`.

        One that does not keeps its probe's place until it ends: a thread cannot be stopped, and another one beside it
        would make two.
        """
        running = asyncio.get_running_loop().run_in_executor(self._threads, partial(call, *arguments, **named))
        try:
            return await asyncio.shield(running)
        except asyncio.CancelledError:
            if not self._is_closing:
                await asyncio.wait({running})
            raise

    def latest_fact(self, owner: Key, about: Hashable) -> Any:
        """The newest fact, however old; `None` if there is none yet."""
        entry = self._entries.get((owner, about))
        return None if entry is None else entry.fact

    async def close(self) -> None:
        """End what runs, except threads: those end by themselves."""
        self._is_closing = True
        tasks = [entry.task for entry in self._entries.values() if entry.task is not None]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        self._threads.shutdown(wait=False, cancel_futures=True)

    async def _run(self, owner: Key, entry: _Answer, run: Callable[[], Awaitable[Fact]]) -> None:
        try:
            # The namespace's turn first: a probe that waits for that takes no place from other namespaces.
            async with self._turn(owner.namespace), self._slots, asyncio.timeout(self._probe_seconds):
                fact = await run()
        except Exception as error:  # noqa: BLE001 - logged; the fact stays, and is asked for again
            told = str(error) if isinstance(error, ApiError) else _place_of(error)
            log.warning("a probe failed", kind=owner.kind, namespace=owner.namespace, name=owner.name, error=told)
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


def _place_of(error: Exception) -> str:
    """An unforeseen error without its text: nobody knows what that repeats, such as a key."""
    where = traceback.extract_tb(error.__traceback__)[-1]
    return f"{type(error).__name__} in line {where.lineno} of {PurePath(where.filename).name}"
