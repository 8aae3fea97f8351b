"""Knows the callers of a node, and refuses calls: the same for all of its ports."""

import asyncio
from typing import Any

import grpc
import grpc.aio

from tussock.compute.service.rpc.application_errors import code_of, message_of
from tussock.compute.service.rpc.kinds import ERROR_METADATA, PROTOCOL, PROTOCOL_METADATA
from tussock.compute.service.server.metrics import ApplicationMetrics
from tussock.meta.node.auth.authentication import Authenticator, Presented
from tussock.meta.node.auth.caller import Caller
from tussock.meta.node.auth.certificates import certificate_names
from tussock.meta.node.wire.rate_limits import RateLimits
from tussock.meta.rpc.errors import DETAILS_BYTES_MAX, FAILED, clip
from tussock.statestore.base.logs import get_logger
from tussock.statestore.base.system import System
from tussock.statestore.errors import ProtocolMismatch, RateLimited, TussockError, Unauthenticated

__all__ = ["CallGate", "Context", "host_of"]

log = get_logger("tussock.application")

REFUSALS_PER_SECOND, REFUSALS_BURST = 5, 100
"""Of callers who are not known, that are logged."""

Context = Any
"""A `grpc.aio.ServicerContext`; the stubs' is generic in two messages that a handler here does not know."""


class CallGate:
    """Used by the event loop only."""

    def __init__(self, authenticator: Authenticator, metrics: ApplicationMetrics, system: System) -> None:
        self._authenticator = authenticator
        self._metrics = metrics
        self._lines = RateLimits(system, REFUSALS_PER_SECOND, REFUSALS_BURST)

    def admit(self, context: Context) -> tuple[Caller, tuple[str, str]]:
        """The caller, and what its requests are counted by: identity and host."""
        metadata = {key: value for key, value in context.invocation_metadata() or () if isinstance(value, str)}
        spoken = metadata.get(PROTOCOL_METADATA, "")
        if spoken != str(PROTOCOL):
            raise ProtocolMismatch(
                f"the client speaks protocol {spoken[:20]!r} and this application {PROTOCOL}: upgrade the older of the "
                "two",
                spoken[:20],
                PROTOCOL,
                PROTOCOL,
            )
        presented = Presented(metadata.get("authorization"), certificate_names(context.auth_context()))
        caller = self._authenticator.authenticate(presented)
        return caller, ("" if self._authenticator.is_open else caller.identity, host_of(context))

    async def refuse(self, context: Context, error: TussockError) -> None:
        """End the call with the error's status and its details."""
        code = code_of(error)
        self._metrics.refuse(code)
        if isinstance(error, Unauthenticated | ProtocolMismatch):
            try:
                self._lines.check(host_of(context), "")
                log.warning("refused", peer=context.peer(), code=code, error=clip(str(error), DETAILS_BYTES_MAX))
            except RateLimited:
                pass
        try:
            await context.abort(
                grpc.StatusCode[code],
                clip(str(error) or FAILED, DETAILS_BYTES_MAX),
                ((ERROR_METADATA, message_of(error).SerializeToString()),),
            )
        except grpc.aio.InternalError as gone:
            # The client left meanwhile. gRPC would log a failure of the handler; a cancelled call is none.
            raise asyncio.CancelledError from gone


def host_of(context: Context) -> str:
    """Where a call comes from."""
    return str(context.peer().rpartition(":")[0])
