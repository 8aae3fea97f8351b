"""The node on the wire: a thin grpc.aio server around `MetaNode`.

Unary calls run in a pool of threads, since the node's work is synchronous; a subscription holds no thread: its mailbox
wakes the event loop. Every call goes through the gate (`gate.py`), which knows who calls and tells how it ended.
"""

import asyncio
import contextlib
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import grpc
import grpc.aio
from google.protobuf.message import DecodeError, Message
from grpc_health.v1 import health_pb2, health_pb2_grpc
from grpc_health.v1._async import HealthServicer

from tussock.meta.rpc import meta_pb2 as pb
from tussock.meta.rpc.errors import ERROR_METADATA, FAILED, encode_error
from tussock.meta.rpc.methods import METHODS, SERVICE, Method
from tussock.meta.server.gate import REQUEST_METADATA, Arrival, Call, Gate
from tussock.meta.server.mailbox import Mailbox
from tussock.meta.server.node import MetaNode
from tussock.statestore.errors import InvalidOption, TussockError

__all__ = ["LEADER_SERVICE", "GrpcServer", "events_of"]

LEADER_SERVICE = f"{SERVICE}/leader"
"""What the health service is asked for to learn whether this replica leads."""
CALL_THREADS = 64
HEALTH_SECONDS = 0.5
PUSH_SECONDS_MIN = 0.02
"""Between two messages to one subscriber; the first after a pause goes at once."""

Context = Any
"""A `grpc.aio.ServicerContext`; the stubs' is generic in two messages that a handler here does not know."""


class GrpcServer:
    """Serves one node on one address: `bind`, which tells the port, then `start`."""

    def __init__(
        self, gate: Gate, *, credentials: grpc.ServerCredentials | None = None, message_bytes_max: int = 64 << 20
    ) -> None:
        """Not started yet; `credentials` are those of TLS."""
        self._gate = gate
        self._node: MetaNode | None = None
        self._credentials = credentials
        self._pool = ThreadPoolExecutor(CALL_THREADS, thread_name_prefix="tussock-call")
        self._health = HealthServicer()
        self._health_task: asyncio.Task[None] | None = None
        self._server = grpc.aio.server(
            options=[
                ("grpc.max_receive_message_length", message_bytes_max),
                ("grpc.max_send_message_length", -1),
                ("grpc.so_reuseport", 0),
            ]
        )
        handlers = {method.name: self._handler(method) for method in METHODS.values()}
        self._server.add_generic_rpc_handlers((grpc.method_handlers_generic_handler(SERVICE, handlers),))
        health_pb2_grpc.add_HealthServicer_to_server(self._health, self._server)

    def bind(self, address: str) -> int:
        """Take `host:port`, or a free port of the host if it is 0; answers the port. `InvalidOption` if it is taken."""
        try:
            if self._credentials is None:
                port: int = self._server.add_insecure_port(address)
            else:
                port = self._server.add_secure_port(address, self._credentials)
        except RuntimeError as error:
            raise InvalidOption(f"cannot listen on {address}: {error}") from None
        return port

    async def start(self, node: MetaNode) -> None:
        """Serve `node` from now on."""
        self._node = node
        self._health_task = asyncio.create_task(self._tell_health())
        await self._server.start()

    async def stop(self, grace_seconds: float) -> None:
        """Refuse new calls, and give those in flight so long to end."""
        if self._health_task is not None:
            self._health_task.cancel()
        await self._health.enter_graceful_shutdown()
        await self._server.stop(grace_seconds)
        self._pool.shutdown(wait=False, cancel_futures=True)

    def _handler(self, method: Method) -> Any:
        # Requests come as bytes: nothing is decoded for a caller who may not call, and what cannot be is refused here.
        if method.streams:
            return grpc.unary_stream_rpc_method_handler(self._stream(method))
        return grpc.unary_unary_rpc_method_handler(
            self._unary(method), response_serializer=method.response.SerializeToString
        )

    def _unary(self, method: Method) -> Callable[[bytes, Context], Awaitable[Message]]:
        async def answer(data: bytes, context: Context) -> Message:
            node = self._node
            assert node is not None
            call = self._arrive(method, context)
            try:
                caller = call.admit()
                request = _decoded(method, data)
                work = call.context().run
                found = await asyncio.get_running_loop().run_in_executor(
                    self._pool, work, node.call, method.name, request, caller
                )
            except TussockError as error:
                return await _refuse(context, call, error)
            except asyncio.CancelledError:
                call.cancelled()
                raise
            except Exception:  # noqa: BLE001  # told in the log, with its trace, and to the caller without
                return await _fail(context, call)
            call.answered()
            return found

        return answer

    def _stream(self, method: Method) -> Callable[[bytes, Context], AsyncIterator[bytes]]:
        async def answer(data: bytes, context: Context) -> AsyncIterator[bytes]:
            node = self._node
            assert node is not None
            loop = asyncio.get_running_loop()
            call = self._arrive(method, context)
            try:
                caller = call.admit()
                request = _decoded(method, data)
                assert isinstance(request, pb.SubscribeRequest)
                mailbox = await loop.run_in_executor(self._pool, call.context().run, node.subscribe, request, caller)
            except TussockError as error:
                await _refuse(context, call, error)
                return
            except asyncio.CancelledError:
                call.cancelled()
                raise
            except Exception:  # noqa: BLE001  # as above
                await _fail(context, call)
                return
            try:
                async with contextlib.aclosing(events_of(mailbox)) as events:
                    async for event in events:
                        yield event
                call.answered()
            except (asyncio.CancelledError, GeneratorExit):
                call.cancelled()
                raise

        return answer

    def _arrive(self, method: Method, context: Context) -> Call:
        metadata = context.invocation_metadata() or ()
        call = self._gate.arrive(method, Arrival(context.peer(), metadata, context.auth_context()))
        context.set_trailing_metadata(((REQUEST_METADATA, call.request_id),))
        return call

    async def _tell_health(self) -> None:
        """Keep the health service up to date: serving, and leading or not."""
        assert self._node is not None
        serving, not_serving = health_pb2.HealthCheckResponse.SERVING, health_pb2.HealthCheckResponse.NOT_SERVING
        while True:
            await self._health.set("", serving)
            await self._health.set(SERVICE, serving)
            await self._health.set(LEADER_SERVICE, serving if self._node.is_leader else not_serving)
            await asyncio.sleep(HEALTH_SECONDS)


async def events_of(mailbox: Mailbox) -> AsyncGenerator[bytes, None]:
    """What comes into a mailbox, as serialized events, until it has been closed and its last one is out."""
    loop, ready = asyncio.get_running_loop(), asyncio.Event()
    mailbox.on_ready(lambda: _wake(loop, ready))
    while True:
        await ready.wait()
        ready.clear()
        # Asked before it is emptied: it may be closed while an event is on its way, and the last one says why.
        was_closed = mailbox.closed
        for event in mailbox.take():
            yield event
        if was_closed:
            return
        # What comes meanwhile goes together: with many commits and many subscribers, sending each entry to each by
        # itself is most of the service's work.
        await asyncio.sleep(PUSH_SECONDS_MIN)


def _wake(loop: asyncio.AbstractEventLoop, ready: asyncio.Event) -> None:
    with contextlib.suppress(RuntimeError):  # the loop is closed: the server is gone, and so is the subscriber
        loop.call_soon_threadsafe(ready.set)


def _decoded(method: Method, data: bytes) -> Message:
    """The request; `InvalidOption` if the bytes are none."""
    try:
        return method.request.FromString(data)
    except DecodeError:
        raise InvalidOption(
            f"the request of {method.name} is {len(data)} bytes that are no {method.request.DESCRIPTOR.full_name}"
        ) from None


async def _fail(context: Context, call: Call) -> Message:
    """End the call after an error that nobody had thought of."""
    call.failed()
    await context.abort(
        grpc.StatusCode.INTERNAL,
        f"{FAILED}; its log tells how, under request id {call.request_id}",
        ((REQUEST_METADATA, call.request_id),),
    )
    raise AssertionError("unreachable: abort raises")


async def _refuse(context: Context, call: Call, error: TussockError) -> Message:
    """End the call with the error's status and its details."""
    code = grpc.StatusCode[call.refused(error)]
    await context.abort(code, str(error), ((ERROR_METADATA, encode_error(error)), (REQUEST_METADATA, call.request_id)))
    raise AssertionError("unreachable: abort raises")
