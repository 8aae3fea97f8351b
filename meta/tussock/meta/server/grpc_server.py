"""The node on the wire: a thin grpc.aio server around `MetaNode`.

Unary calls run in a pool of threads, since the node's work is synchronous; a subscription holds no thread: its mailbox
wakes the event loop.
"""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from concurrent.futures import ThreadPoolExecutor

import grpc
import grpc.aio
from google.protobuf.message import Message

from tussock.meta.rpc import meta_pb2 as pb
from tussock.meta.rpc.errors import ERROR_METADATA, encode_error, status_of
from tussock.meta.rpc.methods import METHODS, PROTOCOL_VERSION, SERVICE, Method
from tussock.meta.server.caller import ANYONE, Caller
from tussock.meta.server.node import MetaNode
from tussock.statestore.errors import ProtocolMismatch, TussockError
from tussock.statestore.logs import get_logger

__all__ = ["PROTOCOL_METADATA", "GrpcServer"]

log = get_logger("tussock.meta")

PROTOCOL_METADATA = "tussock-protocol"
CALL_THREADS = 64

Context = grpc.aio.ServicerContext
Authenticate = Callable[[Context, Method], Caller]


def anyone(_: Context, __: Method) -> Caller:
    """Authenticates nobody."""
    return ANYONE


class GrpcServer:
    """Serves one node on one address."""

    def __init__(
        self,
        node: MetaNode,
        *,
        authenticate: Authenticate = anyone,
        credentials: grpc.ServerCredentials | None = None,
        message_bytes_max: int = 64 << 20,
    ) -> None:
        """Not started yet; `authenticate` raises for callers it does not accept, `credentials` are those of TLS."""
        self._node = node
        self._authenticate = authenticate
        self._credentials = credentials
        self._pool = ThreadPoolExecutor(CALL_THREADS, thread_name_prefix="tussock-call")
        self._server = grpc.aio.server(
            options=[
                ("grpc.max_receive_message_length", message_bytes_max),
                ("grpc.max_send_message_length", -1),
                ("grpc.so_reuseport", 0),
            ]
        )
        self._server.add_generic_rpc_handlers(
            (grpc.method_handlers_generic_handler(SERVICE, {m.name: self._handler(m) for m in METHODS.values()}),)
        )

    async def start(self, address: str) -> int:
        """Listen on `host:port`; answers the port, which the system chose if it was 0."""
        if self._credentials is None:
            port = self._server.add_insecure_port(address)
        else:
            port = self._server.add_secure_port(address, self._credentials)
        await self._server.start()
        return port

    async def stop(self, grace_seconds: float) -> None:
        """Refuse new calls, and give those in flight so long to end."""
        await self._server.stop(grace_seconds)
        self._pool.shutdown(wait=False, cancel_futures=True)

    def _handler(self, method: Method) -> grpc.RpcMethodHandler:
        if method.streams:
            return grpc.unary_stream_rpc_method_handler(
                self._stream(method), request_deserializer=method.request.FromString
            )
        return grpc.unary_unary_rpc_method_handler(
            self._unary(method),
            request_deserializer=method.request.FromString,
            response_serializer=method.response.SerializeToString,
        )

    def _unary(self, method: Method) -> Callable[[Message, Context], Awaitable[Message]]:
        async def answer(request: Message, context: Context) -> Message:
            loop = asyncio.get_running_loop()
            try:
                caller = self._admit(context, method)
                return await loop.run_in_executor(self._pool, self._node.call, method.name, request, caller)
            except TussockError as error:
                return await _refuse(context, error)

        return answer

    def _stream(self, method: Method) -> Callable[[pb.SubscribeRequest, Context], AsyncIterator[bytes]]:
        async def answer(request: pb.SubscribeRequest, context: Context) -> AsyncIterator[bytes]:
            loop = asyncio.get_running_loop()
            ready = asyncio.Event()
            try:
                self._admit(context, method)
                mailbox = await loop.run_in_executor(self._pool, self._node.subscribe, request)
            except TussockError as error:
                await _refuse(context, error)
                return
            mailbox.on_ready(lambda: loop.call_soon_threadsafe(ready.set))
            while True:
                await ready.wait()
                ready.clear()
                for event in mailbox.take():
                    yield event
                if mailbox.closed:
                    return

        return answer

    def _admit(self, context: Context, method: Method) -> Caller:
        """Check protocol and caller."""
        spoken = dict(context.invocation_metadata() or ()).get(PROTOCOL_METADATA)
        if spoken != str(PROTOCOL_VERSION):
            raise ProtocolMismatch(
                f"the client speaks protocol {str(spoken)[:20]!r} and this meta service {PROTOCOL_VERSION}: upgrade "
                "the older of the two",
                str(spoken)[:20],
                PROTOCOL_VERSION,
            )
        return self._authenticate(context, method)


async def _refuse(context: Context, error: TussockError) -> Message:
    """End the call with the error's status and its details."""
    code = grpc.StatusCode[status_of(error)]
    await context.abort(code, str(error), ((ERROR_METADATA, encode_error(error)),))
    raise AssertionError("unreachable: abort raises")
