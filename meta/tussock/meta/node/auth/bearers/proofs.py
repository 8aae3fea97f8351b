"""Proofs of bearer tokens: each costs a request or a signature, so they are made beside the calls and remembered.

The event loop asks `prove` before a call is admitted, and `find` tells afterwards what came of it. A proof is kept for
some seconds: that long a token that its issuer has taken back is still let in. A token is kept as its hash only.
"""

import asyncio
import contextlib
import threading
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from typing import Any, NamedTuple

from tussock.meta.node.wire.rate_limits import RateLimits
from tussock.statestore.base.system import System
from tussock.statestore.errors import RateLimited, Unauthenticated

__all__ = ["Proofs", "Proven"]

PROVEN_SECONDS = 30.0
REFUSED_SECONDS = 10.0
KEPT_MAX = 1024
"""Tokens whose proofs are kept before those that have ended are forgotten: more than there are new ones meanwhile."""
THREADS = 4
UNDER_WAY_MAX = 64
"""That wait for a thread or an answer: an issuer that is silent must not fill the memory with those that wait."""
AGAIN_MS = 500
ASKED_PER_SECOND = 20
ASKED_BURST = 100
"""Tokens of all callers together that are proven: a caller that makes them up must not flood the issuer through this
service."""


class Proven(NamedTuple):
    """What a token proves, or why it proves nothing."""

    claims: Mapping[str, Any]
    """What the token says, in the words of what proves it; nothing if it is no token."""
    refusal: str
    """Why it is none; empty if it is one."""
    until: float
    """By the monotonic clock."""


class Proofs:
    """Proofs of one kind. `prove` is for the event loop, the rest for any thread."""

    def __init__(self, system: System, check: Callable[[str], tuple[Mapping[str, Any], float]], what: str) -> None:
        """`check` proves a token, in a thread: returns what it says, and for how many seconds it does at most.

        It raises `Unauthenticated` for a token that is none, which is remembered, and `MetaUnavailable` if it cannot
        tell, which is not: nobody is let in then. `what` names the kind.
        """
        self._system = system
        self._check = check
        self._what = what
        self._limits = RateLimits(system, ASKED_PER_SECOND, ASKED_BURST, burst_in_flood=1)
        self._pool = ThreadPoolExecutor(THREADS, thread_name_prefix="tussock-proof")
        self._lock = threading.Lock()
        self._kept: dict[bytes, Proven] = {}
        self._under_way: dict[bytes, asyncio.Future[None]] = {}

    def find(self, digest: bytes) -> Proven | None:
        """What is known of the token with this SHA-256; `None` if nothing is, or not any more."""
        with self._lock:
            proven = self._kept.get(digest)
        return proven if proven is not None and self._system.monotonic() < proven.until else None

    async def prove(self, digest: bytes, token: str) -> None:
        """See to it that `find` knows the token, or raise `MetaUnavailable`, or `RateLimited` if there are too many."""
        if self.find(digest) is not None:
            return
        under_way = self._under_way.get(digest)
        if under_way is None:
            if len(self._under_way) >= UNDER_WAY_MAX:
                raise RateLimited(f"{len(self._under_way)} {self._what} are looked at; wait {AGAIN_MS} ms", AGAIN_MS)
            self._limits.check(self._what, "")
            under_way = asyncio.get_running_loop().run_in_executor(self._pool, self._prove, digest, token)
            self._under_way[digest] = under_way
            under_way.add_done_callback(lambda done: self._end(digest, done))
        # A caller that leaves must not take the answer from the others that wait for it.
        await asyncio.shield(under_way)

    def _end(self, digest: bytes, done: "asyncio.Future[None]") -> None:
        self._under_way.pop(digest, None)
        with contextlib.suppress(asyncio.CancelledError):
            done.exception()  # looked at, also where all that waited have left

    def _prove(self, digest: bytes, token: str) -> None:
        try:
            claims, seconds = self._check(token)
        except Unauthenticated as error:
            found = Proven({}, str(error), self._system.monotonic() + REFUSED_SECONDS)
        else:
            found = Proven(claims, "", self._system.monotonic() + min(seconds, PROVEN_SECONDS))
        with self._lock:
            if len(self._kept) >= KEPT_MAX:
                now = self._system.monotonic()
                self._kept = {key: one for key, one in self._kept.items() if one.until > now}
            self._kept[digest] = found
