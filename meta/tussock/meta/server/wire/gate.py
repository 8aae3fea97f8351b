"""The gate that every call goes through: it gets an id, its caller is known and may do this, and its end is told.

One line is logged a call, when it has ended, at a level that says whether somebody should look: `debug` if it was
answered or sent to another replica, `info` if the caller made a mistake, `warning` if the caller was refused or the
store is in trouble, `error` if the service itself failed. Nothing else logs the same failure again.
"""

import contextlib
import contextvars
import logging
import re
from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

import structlog

from tussock.meta.node.auth.authentication import Authenticator, Presented, authorize
from tussock.meta.node.auth.caller import ANYONE, Caller
from tussock.meta.node.auth.certificates import certificate_names
from tussock.meta.node.wire.rate_limits import ClientRates, RateLimits, Who
from tussock.meta.rpc.errors import clip, status_of, status_of_kind
from tussock.meta.rpc.methods import KEEPING_ALIVE, OLDEST_PROTOCOL, PROTOCOL_VERSION, Method, common_protocol
from tussock.meta.server.status.counters import CallMetrics
from tussock.statestore.base.logs import get_logger
from tussock.statestore.base.system import System
from tussock.statestore.errors import ProtocolMismatch, RateLimited, TussockError, Unauthenticated

__all__ = ["PROTOCOL_METADATA", "REQUEST_METADATA", "Arrival", "Gate", "WireCall"]

log = get_logger("tussock.meta")

PROTOCOL_METADATA = "tussock-protocol"
REQUEST_METADATA = "tussock-request-id"
"""What the caller calls this request; without it, or if it is odd, the service draws an id. Sent back either way."""

_REQUEST_ID = re.compile(r"[A-Za-z0-9._:-]{1,64}", re.ASCII)
REFUSALS_PER_SECOND = 5
REFUSALS_BURST = 100
"""Calls of one host with wrong credentials that are answered as such, and logged."""

LINES_PER_SECOND = 10
LINES_BURST = 200
"""Refused calls of one caller on one host that stand in the log each; the others are counted."""
UNTOLD_SECONDS = 10.0
ERROR_BYTES_MAX = 2048
_SESSION_DIGITS = 8
"""Of a session's id in log lines: it is also what proves whose pins are whose."""

FAULTS_PER_SECOND = 20
FAULTS_BURST = 500
"""Calls of one caller on one host that are the caller's mistake: no client that works makes that many."""

_FAULTS = {"INVALID_ARGUMENT", "PERMISSION_DENIED"}
_QUIET = {"OK", "CANCELLED", "RESOURCE_EXHAUSTED"}
_LOUD = {"UNAUTHENTICATED", "PERMISSION_DENIED", "UNAVAILABLE", "DATA_LOSS"}


class Arrival(NamedTuple):
    """What gRPC tells of a call."""

    peer: str
    """Such as `ipv4:10.0.0.7:41234`."""
    metadata: Iterable[tuple[str, str | bytes]]
    auth_context: Mapping[str, Sequence[bytes]]


class WireCall:
    """One call on its way. Used by the event loop only."""

    def __init__(self, gate: "Gate", method: Method, arrival: Arrival) -> None:
        self.method = method
        self._gate = gate
        self._metadata = {key: value for key, value in arrival.metadata if isinstance(value, str)}
        self._presented = Presented(self._metadata.get("authorization"), certificate_names(arrival.auth_context))
        self._peer = arrival.peer
        self._session = ""
        self._began = gate.system.monotonic()
        asked = self._metadata.get(REQUEST_METADATA, "")
        self.request_id = asked if _REQUEST_ID.fullmatch(asked) else gate.system.random_bytes(8).hex()
        self.caller = ANYONE._replace(roles=ANYONE.roles & ~ANYONE.roles)
        self._revoked = ""
        gate.metrics.begin(method)

    async def prove(self) -> None:
        """Find out about a token that somebody else has signed; each costs a request, so a flood of them waits."""
        gate = self._gate
        if not gate.authenticator.has_to_prove(self._presented):
            return
        host = self.host[1]
        if wait_ms := gate.refusals.wait_ms(host):
            raise RateLimited(f"too many unknown tokens came from {host}; wait {wait_ms} ms", wait_ms, host)
        await gate.authenticator.prove(self._presented)

    def admit(self) -> Caller:
        """The caller, if it may call this now; else `ProtocolMismatch`, `Unauthenticated`, `AccessDenied` and so on."""
        spoken = self._metadata.get(PROTOCOL_METADATA, "")
        known = int(spoken) if spoken.isascii() and spoken.isdigit() and len(spoken) < 9 else -1
        if common_protocol(known, known) is None:
            raise ProtocolMismatch(
                f"the client speaks protocol {spoken[:20]!r} and this meta service {OLDEST_PROTOCOL} to "
                f"{PROTOCOL_VERSION}: upgrade the older of the two",
                spoken[:20],
                PROTOCOL_VERSION,
                OLDEST_PROTOCOL,
            )
        gate = self._gate
        presented = self._presented
        try:
            caller = gate.authenticator.authenticate(presented)
        except Unauthenticated:
            # In the log only: what limits a stranger goes by the host.
            self._revoked = gate.authenticator.revoked_identity(presented)
            gate.refusals.check(self.host[1], self.method.name)
            raise
        self.caller = caller._replace(request_id=self.request_id, host=self.host[1])
        if gate.limits.is_on and (wait_ms := gate.faults.wait_ms(self.host)):
            raise RateLimited(
                f"{caller.identity!r} makes more than {FAULTS_PER_SECOND} calls a second that are refused; wait "
                f"{wait_ms} ms",
                wait_ms,
                caller.identity,
            )
        # All jobs of a store may have one certificate: one that calls too often is told from the others by its host.
        gate.limits.check(self.host, self.method.name)
        self._check_own_rate(1)
        authorize(self.caller, self.method)
        return self.caller

    def _check_own_rate(self, calls: int) -> None:
        """Count calls of a declared client that has a rate; what keeps its session alive is not slowed down by it."""
        if self.caller.rate and self.method.name not in KEEPING_ALIVE:
            self._gate.client_rates.check(self.caller.identity, self.caller.rate, calls)

    @property
    def host(self) -> tuple[str, str]:
        """The caller's identity, empty before it is known, and the host that it calls from."""
        identity = "" if self._gate.authenticator.is_open else self.caller.identity
        return identity, self._peer.rpartition(":")[0]

    @property
    def source(self) -> tuple[str, ...]:
        """What takes turns with others: the caller's host, and its session where the call belongs to one."""
        return (*self.host, self._session)

    def set_session(self, session_id: str) -> None:
        """Note the session that the call says it belongs to; empty if it belongs to none."""
        self._session = session_id[:_SESSION_DIGITS]

    def context(self) -> contextvars.Context:
        """A context to run the call's work in: log lines from there say which call they belong to."""
        context = contextvars.copy_context()
        context.run(structlog.contextvars.bind_contextvars, **self._log_fields())
        return context

    def finish(self) -> None:
        """Log and count that the call ended well."""
        self._end("OK", "")

    def cancel(self) -> None:
        """Log and count that the caller did not wait for the answer."""
        self._end("CANCELLED", "")

    def refuse(self, error: TussockError) -> str:
        """Log and count that the call ended with an error of the store; returns the name of its status."""
        code = status_of(error)
        if code in _FAULTS:
            with contextlib.suppress(RateLimited):
                self._gate.faults.check(self.host, "")
        self._end(code, f"{type(error).__name__}: {error}")
        return code

    def count_commits(self, commits: int) -> None:
        """Count each of the commits in a call as one; `RateLimited` if that is too many."""
        if commits > 1:
            self._gate.limits.check(self.host, self.method.name, commits - 1)
            self._check_own_rate(commits - 1)

    def count_refused(self, kinds: Iterable[str]) -> None:
        """Count refusals, by the kinds of their errors, within a call that ends well."""
        for kind in kinds:
            if status_of_kind(kind) in _FAULTS:
                with contextlib.suppress(RateLimited):
                    self._gate.faults.check(self.host, "")

    def fail(self) -> None:
        """Log and count that the call ended with an unforeseen error; call this while it is handled."""
        self._end("INTERNAL", "unexpected", trace=True)

    def _end(self, code: str, error: str, *, trace: bool = False) -> None:
        seconds = self._gate.system.monotonic() - self._began
        self._gate.metrics.end(self.method, code, seconds)
        # Lines cost more than the refusal that they tell of, so they are not made to be thrown away.
        is_quiet = code in _QUIET or error.startswith("NotLeader") or (not trace and not self._gate.may_tell(self.host))
        if is_quiet and not trace and not log.isEnabledFor(logging.DEBUG):
            return
        told = {**self._log_fields(), "code": code, "ms": round(seconds * 1000, 1), "peer": self._peer}
        if error:
            told["error"] = clip(error, ERROR_BYTES_MAX)
        if trace:
            log.error("call", exc_info=True, **told)
        elif is_quiet:
            log.debug("call", **told)
        elif code in _LOUD:
            log.warning("call", **told)
        else:
            log.info("call", **told)

    def _log_fields(self) -> dict[str, object]:
        told: dict[str, object] = {
            "method": self.method.name,
            "request_id": self.request_id,
            "caller": self._revoked or self.caller.identity,
        }
        if self._session:
            told["session"] = self._session
        return told


class Gate:
    """What all calls of a server share."""

    def __init__(self, system: System, authenticator: Authenticator, limits: RateLimits, metrics: CallMetrics) -> None:
        self.system = system
        self.authenticator = authenticator
        self.limits = limits
        self.metrics = metrics
        self.client_rates = ClientRates(system)
        self.refusals = RateLimits(system, REFUSALS_PER_SECOND, REFUSALS_BURST, burst_in_flood=1)
        self.faults = RateLimits(system, FAULTS_PER_SECOND, FAULTS_BURST, burst_in_flood=1)
        self._lines = RateLimits(system, LINES_PER_SECOND, LINES_BURST)
        self._untold = 0
        self._untold_since = 0.0

    def may_tell(self, host: Who) -> bool:
        """Whether a refusal of this caller is to stand in the log, which it could fill with them."""
        now = self.system.monotonic()
        if self._untold and now - self._untold_since >= UNTOLD_SECONDS:
            log.warning("more calls were refused than are told one by one", count=self._untold)
            self._untold = 0
        try:
            self._lines.check(host, "")
        except RateLimited:
            if not self._untold:
                self._untold_since = now
            self._untold += 1
            return False
        return True

    def arrive(self, method: Method, arrival: Arrival) -> WireCall:
        """A call has come in; it has to be told how it ends."""
        return WireCall(self, method, arrival)
