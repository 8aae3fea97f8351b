"""The node on the wire: a thin grpc.aio server around `MetaNode`.

Unary calls run in pools of threads, since the node's work is synchronous; a subscription holds no thread: its mailbox
wakes the event loop. Every call goes through the gate (`gate.py`), which knows who calls and tells how it ended.

All calls are taken as streams of requests, which look the same on the wire: so the gate is asked by the metadata alone,
before anything of the request is read (`intake.py`).
"""

import asyncio
import contextlib
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import grpc
import grpc.aio
from google.protobuf.message import Message

from tussock.meta.node.wire.addresses import bind_grpc
from tussock.meta.node.wire.health import HealthService
from tussock.meta.rpc import meta_pb2 as pb
from tussock.meta.rpc.base_messages import Encoded
from tussock.meta.rpc.errors import DETAILS_BYTES_MAX, ERROR_METADATA, FAILED, clip, encode_error
from tussock.meta.rpc.methods import KEEPING_ALIVE, METHODS, PIECE_BYTES_MAX, SERVICE, Method
from tussock.meta.server.mailbox import Mailbox
from tussock.meta.server.node import MetaNode
from tussock.meta.server.wire.call_turns import CallTurns
from tussock.meta.server.wire.gate import REQUEST_METADATA, Arrival, Gate, WireCall
from tussock.meta.server.wire.held_refusals import HeldRefusals
from tussock.meta.server.wire.intake import Body, Intake, decode, is_large
from tussock.meta.server.wire.large_answers import LARGE_BYTES, LargeAnswers
from tussock.statestore.errors import RateLimited, TussockError

__all__ = ["LEADER_SERVICE", "GrpcServer", "events_of"]

LEADER_SERVICE = f"{SERVICE}/leader"
"""What the health service is asked for to learn whether this replica leads."""
BEAT_THREADS = 4
SESSION_THREADS = 16
CALL_THREADS = 64
"""Heartbeats ask the bucket nothing, so they never wait for what does; nor do sessions for commits."""
CALLS_MAX = 4096
"""At once, with subscriptions; gRPC refuses more before anything here has seen them."""
CONNECTION_CALLS_MAX = 64
"""Of one connection at once; a client waits with more, and ours has fewer. What has come and not begun stands in one
queue, from any client, and gRPC drops calls from a thousand on: this bounds how long a call waits for a flood."""
CONNECTIONS_MAX = 4096
IDLE_SECONDS = 60
"""A connection without a call for this long is closed; one with a session has its heartbeats."""
HANDSHAKE_SECONDS = 5
"""For a new connection to speak TLS and HTTP/2. gRPC waits two minutes, and until then it counts among all."""
HEALTH_SECONDS = 0.5
PUSH_SECONDS_MIN = 0.02
"""Between two messages to one subscriber; the first after a pause goes at once."""

Context = Any
"""A `grpc.aio.ServicerContext`; the stubs' is generic in two messages that a handler here does not know."""


Pieces = AsyncIterator[bytes]
"""A request as it comes: one piece as a rule."""


class _Lane:
    """Threads for calls of one kind."""

    def __init__(self, name: str, threads: int) -> None:
        self.turns = CallTurns(threads)
        self.pool = ThreadPoolExecutor(threads, thread_name_prefix=name)


Told = Callable[[TussockError], TussockError]
"""What a caller is told in place of an error, by where the caller came in."""


class GrpcServer:
    """Serves one node: `bind`, which tells the port, perhaps `bind_outside`, then `start`."""

    def __init__(
        self, gate: Gate, *, credentials: grpc.ServerCredentials | None = None, message_bytes_max: int
    ) -> None:
        """Not started yet; `credentials` are those of TLS."""
        self._gate = gate
        self._node: MetaNode | None = None
        self._credentials = credentials
        self._beats = _Lane("tussock-beat", BEAT_THREADS)
        self._sessions = _Lane("tussock-session", SESSION_THREADS)
        self._calls = _Lane("tussock-call", CALL_THREADS)
        self._intake = Intake(message_bytes_max)
        self._decoding = asyncio.Lock()
        self._held = HeldRefusals()
        self._large = LargeAnswers()
        self._health = HealthService()
        self._health_task: asyncio.Task[None] | None = None
        self._servers = [self._new_server(lambda error: error)]

    def _new_server(self, told: Told) -> Any:
        server = grpc.aio.server(
            options=[
                ("grpc.max_receive_message_length", PIECE_BYTES_MAX),
                ("grpc.max_send_message_length", -1),
                ("grpc.so_reuseport", 0),
                ("grpc.max_concurrent_streams", CONNECTION_CALLS_MAX),
                ("grpc.max_allowed_incoming_connections", CONNECTIONS_MAX),
                ("grpc.max_connection_idle_ms", IDLE_SECONDS * 1000),
                ("grpc.server_handshake_timeout_ms", HANDSHAKE_SECONDS * 1000),
                # Else gRPC reads ahead, on a fast connection up to megabytes a call that nobody has admitted.
                ("grpc.http2.bdp_probe", 0),
            ],
            maximum_concurrent_rpcs=CALLS_MAX,
        )
        handlers = {method.name: self._handler(method, told) for method in METHODS.values()}
        server.add_generic_rpc_handlers(
            (grpc.method_handlers_generic_handler(SERVICE, handlers), self._health.handler())
        )
        return server

    def bind(self, address: str) -> int:
        """Take `host:port`, or a free port of the host if it is 0; returns the port. `InvalidOption` if it is taken."""
        return bind_grpc(self._servers[0], address, self._credentials)

    def bind_outside(self, address: str, told: Told, credentials: grpc.ServerCredentials | None = None) -> int:
        """Take another address as `bind` does, for callers who are told of the leader by `told`.

        Its connections and calls are counted by themselves: a flood from outside takes no place of those inside.
        `credentials` are none that another address has: those of files tell gRPC of a certificate once.
        """
        self._servers.append(self._new_server(told))
        return bind_grpc(self._servers[-1], address, credentials, "outside.listen")

    async def start(self, node: MetaNode) -> None:
        """Serve `node` from now on."""
        self._node = node
        self._health_task = asyncio.create_task(self._tell_health())
        for server in self._servers:
            await server.start()

    async def stop(self, grace_seconds: float) -> None:
        """Refuse new calls, and give those in flight `seconds` to end."""
        if self._health_task is not None:
            self._health_task.cancel()
        self._health.end()
        await asyncio.gather(*(server.stop(grace_seconds) for server in self._servers))
        for lane in (self._beats, self._sessions, self._calls):
            lane.pool.shutdown(wait=False, cancel_futures=True)

    def _handler(self, method: Method, told: Told) -> Any:
        # Requests come as bytes: nothing is decoded for a caller who may not call, and what cannot be is refused here.
        if method.streams:
            return grpc.stream_stream_rpc_method_handler(self._stream(method, told))
        return grpc.stream_unary_rpc_method_handler(self._unary(method, told), response_serializer=_serialize)

    def _unary(self, method: Method, told: Told) -> Callable[[Pieces, Context], Awaitable[Message | Encoded]]:
        lane = self._lane(method)

        async def answer(pieces: Pieces, context: Context) -> Message | Encoded:
            node = self._node
            assert node is not None
            call = self._arrive(method, context)
            body: Body | None = None
            try:
                await call.prove()
                caller = call.admit()
                body = await self._intake.read(method, pieces, call.host)
                request = await self._decode(method, body.whole())
                call.set_session(getattr(request, "session_id", ""))
                if isinstance(request, pb.CommitEachRequest):
                    call.count_commits(len(request.commits))
                if (answer_bytes := node.answer_bytes(request)) > LARGE_BYTES:
                    leave = await self._large.enter(answer_bytes)
                    context.add_done_callback(lambda _: leave())
                async with lane.turns.turn(call.source):
                    found = await asyncio.get_running_loop().run_in_executor(
                        lane.pool, call.context().run, node.call, method.name, request, caller
                    )
            except TussockError as error:
                await self._hold(call, error)
                return await _refuse(context, call, told(error))
            except asyncio.CancelledError:
                call.cancel()
                raise
            except Exception:  # noqa: BLE001  # told in the log, with its trace, and to the caller without
                return await _fail(context, call)
            finally:
                if body is not None:
                    body.release()
            if isinstance(found, pb.CommitEachResponse):
                call.count_refused(one.refused for one in found.commits if one.refused)
            call.finish()
            return found

        return answer

    def _stream(self, method: Method, told: Told) -> Callable[[Pieces, Context], AsyncIterator[bytes]]:
        lane = self._sessions

        async def answer(pieces: Pieces, context: Context) -> AsyncIterator[bytes]:
            node = self._node
            assert node is not None
            call = self._arrive(method, context)
            body: Body | None = None
            try:
                await call.prove()
                caller = call.admit()
                body = await self._intake.read(method, pieces, call.host)
                request = await self._decode(method, body.whole())
                assert isinstance(request, pb.SubscribeRequest)
                call.set_session(request.session_id)
                async with lane.turns.turn(call.source):
                    mailbox = await asyncio.get_running_loop().run_in_executor(
                        lane.pool, call.context().run, node.subscribe, request, caller
                    )
            except TussockError as error:
                await self._hold(call, error)
                await _refuse(context, call, told(error))
                return
            except asyncio.CancelledError:
                call.cancel()
                raise
            except Exception:  # noqa: BLE001  # as above
                await _fail(context, call)
                return
            finally:
                if body is not None:
                    body.release()
            try:
                async with contextlib.aclosing(events_of(mailbox)) as events:
                    async for event in events:
                        if len(event) > LARGE_BYTES:
                            leave = await self._large.enter(len(event))
                            try:
                                yield event
                            finally:
                                leave()
                        else:
                            yield event
                call.finish()
            except (asyncio.CancelledError, GeneratorExit):
                call.cancel()
                raise

        return answer

    def _lane(self, method: Method) -> "_Lane":
        if method.name == "Heartbeat":
            return self._beats
        return self._sessions if method.name in KEEPING_ALIVE else self._calls

    async def _decode(self, method: Method, data: bytes) -> Message:
        """The request. Of large ones, each of which may become many objects, one at a time."""
        if not is_large(data):
            return decode(method, data)
        async with self._decoding:
            return await asyncio.get_running_loop().run_in_executor(self._calls.pool, decode, method, data)

    async def _hold(self, call: WireCall, error: TussockError) -> None:
        """Let a caller wait who calls too often; not if that would be too many who wait."""
        host = call.host
        if not isinstance(error, RateLimited) or len(error.args) < 2:
            return
        seconds = self._held.enter(host, int(error.args[1]))
        if seconds is None:
            return
        try:
            await asyncio.sleep(seconds)
        finally:
            self._held.leave(host)

    def _arrive(self, method: Method, context: Context) -> WireCall:
        metadata = context.invocation_metadata() or ()
        call = self._gate.arrive(method, Arrival(context.peer(), metadata, context.auth_context()))
        context.set_trailing_metadata(((REQUEST_METADATA, call.request_id),))
        return call

    async def _tell_health(self) -> None:
        """Keep the health service up to date: serving, and leading or not."""
        assert self._node is not None
        while True:
            self._health.set("", serving=True)
            self._health.set(SERVICE, serving=True)
            self._health.set(LEADER_SERVICE, serving=self._node.is_leader)
            await asyncio.sleep(HEALTH_SECONDS)


def _serialize(answer: Message | Encoded) -> bytes:
    return answer.SerializeToString()


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
        if was_closed and mailbox.is_empty:
            return
        # What comes meanwhile goes together: with many commits and many subscribers, sending each entry to each by
        # itself is most of the service's work.
        await asyncio.sleep(PUSH_SECONDS_MIN)


def _wake(loop: asyncio.AbstractEventLoop, ready: asyncio.Event) -> None:
    with contextlib.suppress(RuntimeError):  # the loop is closed: the server is gone, and so is the subscriber
        loop.call_soon_threadsafe(ready.set)


async def _fail(context: Context, call: WireCall) -> Message:
    """End the call after an error that nobody had thought of."""
    call.fail()
    return await _abort(
        context,
        grpc.StatusCode.INTERNAL,
        f"{FAILED}; its log tells how, under request id {call.request_id}",
        ((REQUEST_METADATA, call.request_id),),
    )


async def _refuse(context: Context, call: WireCall, error: TussockError) -> Message:
    """End the call with the error's status and its details."""
    return await _abort(
        context,
        grpc.StatusCode[call.refuse(error)],
        clip(str(error), DETAILS_BYTES_MAX),
        ((ERROR_METADATA, encode_error(error)), (REQUEST_METADATA, call.request_id)),
    )


async def _abort(
    context: Context, code: grpc.StatusCode, details: str, metadata: tuple[tuple[str, str | bytes], ...]
) -> Message:
    """Raise what ends the call with this status.

    gRPC keeps the error with the call, and its traceback keeps the call: fifty objects in a circle for each refusal.
    To collect those of a flood took the service a fifth of a second every nine, so we end it when gRPC has the error.
    """
    try:
        await context.abort(code, details, metadata)
    except BaseException as aborted:
        asyncio.get_running_loop().call_soon(_forget, aborted)
        raise
    raise AssertionError("unreachable: abort raises")


def _forget(error: BaseException | None) -> None:
    """Let the frames go that an error, and those that it came of, passed through."""
    while error is not None:
        error.__traceback__ = None
        error.__context__, error = None, error.__context__
