"""The standard health service of gRPC, by which load balancers and programs ask a server whether it serves.

It answers callers without a token, so nothing in it may last: a call holds one of the server's places until it ends.
`Watch`, which would last as long as the caller likes, is refused; and a `Check` whose request does not come ends soon,
with a bounded number of them at once. The node of an application has the same service.
"""

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import grpc
import grpc.aio
from google.protobuf.message import DecodeError
from grpc_health.v1 import health_pb2

__all__ = ["HEALTH_SERVICE", "HealthService"]

HEALTH_SERVICE = "grpc.health.v1.Health"
CHECK_SECONDS_MAX = 5.0
CHECKS_MAX = 128
"""How long a check waits for its request, and how many wait at once; the request is a name and comes with the call."""

Context = Any
"""A `grpc.aio.ServicerContext`; the stubs' is generic in two messages that a handler here does not know."""

_Answer = health_pb2.HealthCheckResponse


class HealthService:
    """What the services of a server say of themselves. All calls are made in the server's event loop."""

    def __init__(self) -> None:
        """No service is known."""
        self._serving: dict[str, bool] = {}
        self._has_ended = False
        self._waiting = 0

    def set(self, service: str, *, serving: bool) -> None:
        """Say whether a service serves; nothing serves any more after `end`."""
        self._serving[service] = serving and not self._has_ended

    def end(self) -> None:
        """Say of every service that it does not serve, from now on: the server stops."""
        self._has_ended = True
        self._serving = dict.fromkeys(self._serving, False)

    def handler(self) -> "grpc.GenericRpcHandler[Any, Any]":
        """What a server adds to serve this."""
        return grpc.method_handlers_generic_handler(
            HEALTH_SERVICE,
            {
                # As a stream, which looks the same on the wire: else gRPC itself waits for the request, for ever.
                "Check": grpc.stream_unary_rpc_method_handler(
                    self._check, response_serializer=_Answer.SerializeToString
                ),
                "Watch": grpc.stream_stream_rpc_method_handler(self._watch),
            },
        )

    async def _check(self, pieces: AsyncIterator[bytes], context: Context) -> health_pb2.HealthCheckResponse:
        if self._waiting >= CHECKS_MAX:
            await context.abort(grpc.StatusCode.RESOURCE_EXHAUSTED, "too many checks wait for their request; try again")
        self._waiting += 1
        try:
            async with asyncio.timeout(CHECK_SECONDS_MAX):
                request = health_pb2.HealthCheckRequest.FromString(await anext(pieces, b""))
        except TimeoutError:
            await context.abort(grpc.StatusCode.DEADLINE_EXCEEDED, f"no request came in {CHECK_SECONDS_MAX:.0f} s")
        except DecodeError:
            await context.abort(grpc.StatusCode.INVALID_ARGUMENT, "the request is no HealthCheckRequest")
        finally:
            self._waiting -= 1
        serving = self._serving.get(request.service)
        if serving is None:
            await context.abort(grpc.StatusCode.NOT_FOUND, "this server has no service of that name")
        return _Answer(status=_Answer.SERVING if serving else _Answer.NOT_SERVING)

    @staticmethod
    async def _watch(_: AsyncIterator[bytes], context: Context) -> None:
        await context.abort(
            grpc.StatusCode.UNIMPLEMENTED, "this server does not report changes of its health; ask by Check"
        )
