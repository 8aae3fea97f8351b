"""The node on the wire: conversations and single requests over grpc.aio.

All requests are read as streams of messages, so that nothing of a call is read before its caller is known.
"""

import asyncio
from collections import Counter
from typing import Any

import grpc
import grpc.aio
from google.protobuf.message import DecodeError

from tussock.compute.applications.errors import Full
from tussock.compute.service.rpc import application_pb2 as pb
from tussock.compute.service.rpc.application_errors import error_of
from tussock.compute.service.rpc.kinds import SERVICE
from tussock.compute.service.server.admission import AGAIN_MS, ReplyShare, full
from tussock.compute.service.server.application_node import ApplicationNode, Asked
from tussock.compute.service.server.call_gate import CallGate, Context, host_of
from tussock.compute.service.server.conversation import Conversation
from tussock.meta.node.wire.addresses import bind_grpc
from tussock.meta.node.wire.health import HealthService
from tussock.statestore.errors import InvalidOption, TussockError, WaitTimeout

__all__ = ["END", "KNOWN_SECONDS", "GrpcPort", "node_server"]

CONNECTIONS_MAX = 4096
CONNECTION_CALLS_MAX = 256
IDLE_SECONDS = 60
"""A connection without a call for this long is closed; a conversation is one call."""
HANDSHAKE_SECONDS = 5
"""For a new connection to speak TLS and HTTP/2. gRPC waits two minutes, and until then it counts among all."""
PING_MS_MIN = 4_000
"""Between two pings of a client; one that sends more is cut off."""
KNOWN_SECONDS = 1.0
"""For how long a caller stays known in a conversation: then tokens and revoked certificates are looked at again."""
BODY_SECONDS_MAX = 30.0
"""For a single request to come in."""
END: Any = grpc.aio.EOF  # type: ignore[attr-defined]  # which the stubs do not know
"""What is read where nothing more comes."""


def node_server(message_bytes: int, calls: int) -> grpc.aio.Server:
    """A server for that many calls at once, which takes messages of that size; for all ports of a node."""
    return grpc.aio.server(
        options=[
            ("grpc.max_receive_message_length", message_bytes),
            ("grpc.max_send_message_length", -1),
            ("grpc.so_reuseport", 0),
            ("grpc.max_concurrent_streams", CONNECTION_CALLS_MAX),
            ("grpc.max_allowed_incoming_connections", CONNECTIONS_MAX),
            ("grpc.max_connection_idle_ms", IDLE_SECONDS * 1000),
            # A client that waits long, in a pause, pings every 10 s to see whether the node is there; by itself gRPC
            # would hang up on it, and the outcome of its call be unknown.
            ("grpc.http2.min_ping_interval_without_data_ms", PING_MS_MIN),
            ("grpc.server_handshake_timeout_ms", HANDSHAKE_SECONDS * 1000),
            # Else gRPC reads ahead, megabytes a call that nobody has admitted.
            ("grpc.http2.bdp_probe", 0),
        ],
        maximum_concurrent_rpcs=calls,
    )


class GrpcPort:
    """Serves one node on one address: `bind`, which tells the port, then `start`."""

    def __init__(self, node: ApplicationNode, gate: CallGate, credentials: grpc.ServerCredentials | None) -> None:
        """Not started yet; `credentials` are those of TLS."""
        self._node = node
        self._gate = gate
        self._credentials = credentials
        self._hosts: Counter[str] = Counter()
        """Conversations by host."""
        self._draining = asyncio.Event()
        self._health = HealthService()
        self._server = node_server(node.limits.message_bytes, node.limits.conversations + node.limits.outstanding)
        handlers = {
            "Ask": grpc.stream_unary_rpc_method_handler(self._ask, response_serializer=pb.Reply.SerializeToString),
            "Converse": grpc.stream_stream_rpc_method_handler(self._converse),
        }
        self._server.add_generic_rpc_handlers(
            (grpc.method_handlers_generic_handler(SERVICE, handlers), self._health.handler())
        )

    def bind(self, address: str) -> int:
        """Take `host:port`, or a free port of the host if it is 0; returns the port. `InvalidOption` if it is taken."""
        return bind_grpc(self._server, address, self._credentials)

    async def start(self) -> None:
        """Serve from now on."""
        self.tell_health()
        await self._server.start()

    def tell_health(self) -> None:
        """Keep the health service up to date: serving while requests are taken."""
        self._health.set("", serving=True)
        self._health.set(SERVICE, serving=not self._node.obstacle())

    async def stop(self, grace_seconds: float) -> None:
        """Take no more requests, answer those that were taken, and close; at most for these seconds."""
        self._draining.set()
        self._health.end()
        await self._server.stop(grace_seconds)

    # --- Single requests ---------------------------------------------------------------------------------------------

    async def _ask(self, _: Any, context: Context) -> pb.Reply:
        asked: Asked | None = None
        try:
            caller, who = self._gate.admit(context)
            request = await self._read_request(context)
            kind, place, began = self._node.enter(request, request.ByteSize(), caller, who, ReplyShare())
            try:
                future = await asyncio.get_running_loop().run_in_executor(None, self._node.begin, kind, request)
            except BaseException as error:
                self._node.leave(kind, place, began, "INVALID_ARGUMENT")
                if isinstance(error, TussockError):
                    self._node.note_failure(kind, error)
                raise
            asked = Asked(request.number, kind, place, began, future)
            await self._await_end(asked, request.deadline_ms)
            reply, _ = self._node.reply(asked)
            asked = None
            # Until the reply is out.
            context.add_done_callback(lambda _: self._node.outstanding.leave(place))
            if reply.WhichOneof("result") == "error":
                raise error_of(reply.error)
        except TussockError as error:
            await self._gate.refuse(context, error)
            raise AssertionError("unreachable: the refusal raises") from None
        finally:
            if asked is not None:
                asked.future.cancel()
                self._node.leave(asked.kind, asked.place, asked.began, "CANCELLED")
        return reply

    async def _read_request(self, context: Context) -> pb.Request:
        try:
            async with asyncio.timeout(BODY_SECONDS_MAX):
                data = await context.read()
        except TimeoutError:
            raise WaitTimeout(f"no request came in {BODY_SECONDS_MAX:.0f} s") from None
        if data is END:
            raise InvalidOption("the call has no request")
        try:
            return pb.Request.FromString(data)
        except DecodeError:
            raise InvalidOption(f"{len(data):,} bytes are no request") from None

    async def _await_end(self, asked: Asked, deadline_ms: int) -> None:
        ended = asyncio.wrap_future(asked.future)
        # `shield` would not do: at the deadline the request is withdrawn if it has not begun, and else awaited.
        waiting = {ended}
        if deadline_ms:
            done, _ = await asyncio.wait(waiting, timeout=deadline_ms / 1000)
            if not done:
                asked.future.cancel()
        await asyncio.wait(waiting)
        if not ended.cancelled():
            ended.exception()

    # --- Conversations -----------------------------------------------------------------------------------------------

    async def _converse(self, _: Any, context: Context) -> None:
        host = host_of(context)
        try:
            caller, who = self._gate.admit(context)
            self._check_room(host)
        except TussockError as error:
            await self._gate.refuse(context, error)
        conversation = Conversation(self._node, caller, who)
        self._hosts[host] += 1
        self._node.open.add(conversation)
        try:
            await self._say(context, pb.Replies(replies=[pb.Reply(hello=self._hello())]))
            await self._talk(context, conversation)
        except TussockError as error:
            await self._gate.refuse(context, error)
        finally:
            conversation.abandon()
            self._node.open.discard(conversation)
            self._hosts[host] -= 1
            self._hosts += Counter()  # forgets hosts that have none

    async def _talk(self, context: Context, conversation: Conversation) -> None:
        """Until the client has said all, or the node drains, and every reply is out."""
        reading = asyncio.create_task(self._listen(context, conversation))
        reading.add_done_callback(lambda _: conversation.ready.set())
        draining = asyncio.create_task(self._draining.wait())
        draining.add_done_callback(lambda _: conversation.ready.set())
        has_told = False
        try:
            while True:
                await conversation.ready.wait()
                replies = conversation.replies()
                if replies is not None:
                    await self._say_replies(context, conversation, replies)
                if reading.done() and not reading.cancelled() and (error := reading.exception()) is not None:
                    raise error
                if draining.done() and not has_told:
                    has_told = True
                    reading.cancel()
                    await asyncio.wait({reading})
                    await self._say(context, pb.Replies(taken_before=conversation.taken_before))
                    conversation.ready.set()
                elif reading.done() and conversation.is_idle:
                    return
        finally:
            reading.cancel()
            draining.cancel()

    async def _listen(self, context: Context, conversation: Conversation) -> None:
        loop = asyncio.get_running_loop()
        known_until = loop.time() + KNOWN_SECONDS
        while True:
            data = await context.read()
            if data is END or self._draining.is_set():
                return
            if loop.time() > known_until:
                self._gate.admit(context)
                known_until = loop.time() + KNOWN_SECONDS
            # Not to be broken off between a request that has begun and the note of it.
            await asyncio.shield(conversation.take(data))

    @staticmethod
    async def _say(context: Context, replies: pb.Replies) -> None:
        await context.write(replies.SerializeToString())

    async def _say_replies(self, context: Context, conversation: Conversation, replies: pb.Replies) -> None:
        """Until they are out. `Full` if the client reads nothing, and others need the room of its replies."""
        writing = asyncio.ensure_future(self._say(context, replies))
        try:
            await asyncio.wait({writing, conversation.stalled}, return_when=asyncio.FIRST_COMPLETED)
            if not writing.done():
                conversation.abandon()
                raise full("the client has not read its replies, whose room others need: it is to ask again,")
            writing.result()
        finally:
            writing.cancel()
        conversation.written()

    def _hello(self) -> pb.Hello:
        layer, limits = self._node.layer, self._node.limits
        return pb.Hello(
            application=layer.name,
            layer=layer.layer,
            message_bytes_max=limits.message_bytes,
            outstanding_max=limits.conversation_outstanding,
            schemas=layer.schemas(),
        )

    # --- Callers -----------------------------------------------------------------------------------------------------

    def _check_room(self, host: str) -> None:
        most = self._node.limits.conversations
        held = len(self._node.open)
        if held >= most or self._hosts[host] >= max(most // 2, 1):
            raise Full(f"{held:,} conversations are open already", AGAIN_MS)
        if self._draining.is_set():
            raise Full(f"application {self._node.layer.name!r} is shutting down", AGAIN_MS)
