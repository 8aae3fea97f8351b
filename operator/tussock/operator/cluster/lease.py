"""Leader election: of several replicas of the operator, the one that holds a Lease does the work.

The protocol is that of Kubernetes' own components (client-go, `tools/leaderelection`): the holder renews the Lease; a
candidate that has seen no renewal for `LEASE_SECONDS`, by its own clock, writes its own name over it, with the
resource version that it read, so only one of several succeeds. A holder that could not renew for `DEADLINE_SECONDS`
gives up before any other replica can take over. Clocks of machines are never compared.

The work is safe without the Lease too: applying twice has the same effect as once. The Lease keeps two versions of the
operator from undoing each other's changes while both run.
"""

import asyncio
import contextlib
from collections.abc import Awaitable, Callable
from datetime import UTC, datetime
from typing import Any

from tussock.operator.cluster.api import Api
from tussock.operator.cluster.errors import ApiConflict, ApiError, ApiNotFound
from tussock.statestore.base.logs import get_logger
from tussock.statestore.base.system import System

__all__ = ["DEADLINE_SECONDS", "LEASE_SECONDS", "Lease"]

log = get_logger("tussock.operator")

LEASE_SECONDS = 6
"""Any replica may take a Lease that was not renewed for this time.

A dead leader's work is taken up within this time, two polls and the start of the new leader, which lists everything:
below 10 s in sum. As long as a renewal is one request, a server that takes a second for each leaves time for three.
"""
DEADLINE_SECONDS = 4.5
"""A holder that could not renew for this time gives up: earlier than others take over, as a margin for slow clocks."""
RENEW_SECONDS = 1.0
"""From the beginning of one renewal to that of the next, if the server answers in time."""
PAUSE_SECONDS = 0.25
"""The least pause between the holder's requests."""
POLL_SECONDS = 0.5
"""The pause between a candidate's looks at the Lease: one read each, no write."""
ATTEMPT_SECONDS = 2.5
"""A renewal without an answer after this time is given up, so that one lost connection leaves time for another try."""


class Lease:
    """One replica's hold on a Lease, or its attempt to get it."""

    def __init__(
        self, api: Api, system: System, namespace: str, name: str, identity: str, turned: Callable[[], None]
    ) -> None:
        """`identity` names this replica; calls `turned` after each attempt to take or renew the Lease."""
        self._turned = turned
        self._api = api
        self._system = system
        self._namespace = namespace
        self._name = name
        self._identity = identity
        self._seen: tuple[Any, float] = (None, 0.0)
        """The Lease's resource version, and when this replica first saw it."""
        self._holder = ""
        """The holder at the last read or write."""
        self._renewed: dict[str, Any] | None = None
        """The Lease as this replica last wrote it; `None` if it may be another one by now."""
        self._renewed_at = system.monotonic()
        """When the last successful renewal was sent: others may see it, and begin to count, before its answer."""

    async def acquire(self) -> None:
        """Wait until this replica holds the Lease."""
        log.info("waiting for the lease", lease=f"{self._namespace}/{self._name}", identity=self._identity)
        # An answer that came too late says nothing of who holds the Lease now.
        while not await self.attempt() or self._left() <= 0:
            await asyncio.sleep(POLL_SECONDS)
        log.info("leading", lease=f"{self._namespace}/{self._name}", identity=self._identity)

    async def keep(self) -> None:
        """Renew the Lease until that fails for too long, or another replica has it; then return."""
        began = self._renewed_at
        while (left := self._left()) > 0:
            pause = max(PAUSE_SECONDS, began + RENEW_SECONDS - self._system.monotonic())
            await asyncio.sleep(min(pause, left))
            began = self._system.monotonic()
            # An attempt that outlived the deadline would renew a Lease that another replica may hold by then.
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(min(ATTEMPT_SECONDS, self._left())):
                    if not await self.attempt() and self._holder not in ("", self._identity):
                        break
        log.error("lost the lease", lease=f"{self._namespace}/{self._name}", identity=self._identity)

    def _left(self) -> float:
        """Seconds until the last renewal is too old to lead by."""
        return self._renewed_at + DEADLINE_SECONDS - self._system.monotonic()

    async def release(self) -> None:
        """Give the Lease back at once, so that another replica need not wait; a failure is only logged."""
        try:
            body = await self._api.get("Lease", self._namespace, self._name)
            if body["spec"].get("holderIdentity") == self._identity:
                body["spec"] |= {"holderIdentity": "", "leaseDurationSeconds": 1}
                await self._api.replace(body, self._namespace)
        except ApiError as error:
            log.warning("could not release the lease; other replicas wait until it expires", error=str(error))

    async def attempt(self) -> bool:
        """Take or renew the Lease if possible; returns whether this replica holds it now.

        A renewal is one request, a replacement of what this replica wrote last. Only if that has changed, or if the
        answer was lost, it reads the Lease first.
        """
        known, self._renewed = self._renewed, None
        try:
            if known is not None:
                with contextlib.suppress(ApiConflict, ApiNotFound):
                    self._renewed = await self._write(self._api.replace, known)
                    return True
            self._renewed = await self._take()
        except ApiConflict:
            return False
        except ApiError as error:
            log.warning("could not take or renew the lease", error=str(error))
            return False
        finally:
            self._turned()
        return self._renewed is not None

    async def _take(self) -> dict[str, Any] | None:
        """The Lease with this replica as its holder; `None` if another one has it."""
        try:
            body = await self._api.get("Lease", self._namespace, self._name)
        except ApiNotFound:
            return await self._write(self._api.create, {})
        return await self._write(self._api.replace, body) if self._may_take(body) else None

    async def _write(
        self, write: Callable[[dict[str, Any], str], Awaitable[dict[str, Any]]], old: dict[str, Any]
    ) -> dict[str, Any]:
        sent = self._system.monotonic()
        written = await write(self._renewal(old), self._namespace)
        self._renewed_at, self._holder = sent, self._identity
        return written

    def _may_take(self, body: dict[str, Any]) -> bool:
        spec, version = body.get("spec") or {}, body["metadata"]["resourceVersion"]
        self._holder = spec.get("holderIdentity") or ""
        if version != self._seen[0]:
            self._seen = (version, self._system.monotonic())
        if self._holder in (self._identity, ""):
            return True
        return self._system.monotonic() - self._seen[1] >= (spec.get("leaseDurationSeconds") or LEASE_SECONDS)

    def _renewal(self, body: dict[str, Any]) -> dict[str, Any]:
        now = datetime.fromtimestamp(self._system.now_ms() / 1000, UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ")
        old = body.get("spec") or {}
        ours = old.get("holderIdentity") == self._identity
        return {
            "apiVersion": "coordination.k8s.io/v1",
            "kind": "Lease",
            "metadata": body.get("metadata") or {"name": self._name, "namespace": self._namespace},
            "spec": {
                "holderIdentity": self._identity,
                "leaseDurationSeconds": LEASE_SECONDS,
                "acquireTime": old.get("acquireTime") if ours else now,
                "renewTime": now,
                "leaseTransitions": (old.get("leaseTransitions") or 0) + (0 if ours or not body else 1),
            },
        }
