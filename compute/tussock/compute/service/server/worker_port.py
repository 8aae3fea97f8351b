"""The port where workers of a program join that run elsewhere: one call is one worker, until it is lost.

It is not the port of clients: it opens before the program begins, which needs workers for that, and closes after the
last commit, and a network may let in workers here and clients there.
"""

import asyncio
import contextlib
from collections.abc import Callable
from typing import Any

import grpc
import grpc.aio

from tussock.compute.applications.errors import Full
from tussock.compute.service.rpc.kinds import WORKERS_SERVICE
from tussock.compute.service.rpc.worker_parts import PART_BYTES_MAX, MessageParts, parts_of
from tussock.compute.service.server.application_node import ApplicationNode
from tussock.compute.service.server.call_gate import CallGate, Context
from tussock.compute.service.server.grpc_port import END, KNOWN_SECONDS, node_server
from tussock.compute.service.server.layer import WorkerDoor, WorkerLine
from tussock.meta.node.wire.addresses import bind_grpc
from tussock.meta.rpc.methods import Role
from tussock.statestore.base.logs import get_logger
from tussock.statestore.errors import AccessDenied, TussockError, WaitTimeout

__all__ = ["WorkerPort"]

log = get_logger("tussock.application")

WORKERS_MAX = 64
AGAIN_MS = 1000
CALLS_MAX = 256
"""At once, with those that are refused."""
JOIN_SECONDS = 60.0
"""Until a worker has imported its program and opened the store."""
FIRST_BYTES_MAX = 64 << 10
"""Of a worker's first answer."""
MESSAGE_BYTES_MAX = 64 << 20
PART_ENVELOPE_BYTES = 1024
LOOK_SECONDS, SILENT_LOOKS_MAX = 1.0, 5
"""A worker says twice a second that it is there. One that is silent at that many looks is lost. Looks are counted, and
not seconds, so that a process which stood still itself does not take all for lost."""


class WorkerPort:
    """Serves one program at one address: `bind`, which tells the port, then `start`."""

    def __init__(
        self, node: ApplicationNode, door: WorkerDoor, gate: CallGate, credentials: grpc.ServerCredentials | None
    ) -> None:
        """Not started yet; `credentials` are those of TLS."""
        self._node = node
        self._door = door
        self._gate = gate
        self._credentials = credentials
        self._workers = 0
        self._server = node_server(PART_BYTES_MAX + PART_ENVELOPE_BYTES, CALLS_MAX)
        handlers = {"Work": grpc.stream_stream_rpc_method_handler(self._work)}
        self._server.add_generic_rpc_handlers((grpc.method_handlers_generic_handler(WORKERS_SERVICE, handlers),))

    def bind(self, address: str) -> int:
        """Take `host:port`, or a free port of the host if it is 0; returns the port. `InvalidOption` if it is taken."""
        return bind_grpc(self._server, address, self._credentials)

    async def start(self) -> None:
        """Let workers join from now on."""
        await self._server.start()

    async def stop(self) -> None:
        """Hang up on all."""
        await self._server.stop(0)

    async def _work(self, _: Any, context: Context) -> None:
        try:
            self._admit(context)
            if self._workers >= WORKERS_MAX:
                raise Full(f"{WORKERS_MAX} workers have joined this program, which are as many as it takes", AGAIN_MS)
        except TussockError as error:
            await self._gate.refuse(context, error)
        self._workers += 1
        call = _WorkerCall(context, lambda: self._admit(context))
        line: WorkerLine | None = None
        why = "its connection broke"
        try:
            line = await self._join(context, call)
            log.info("worker joined", peer=context.peer())
            while (message := await call.next()) is not None:
                line.take(message)
            why = "it has left"
        except TussockError as error:
            why = str(error)
            log.warning("worker refused", peer=context.peer(), error=why)
            self._node.note_failure("work", error)
            await self._gate.refuse(context, error)
        finally:
            self._workers -= 1
            call.end()
            if line is not None:
                self._door.leave(line, why)
                log.info("worker gone", peer=context.peer(), why=why)

    def _admit(self, context: Context) -> None:
        """A worker makes the results of all requests, so it has to be trusted like one who may end the program."""
        caller, _ = self._gate.admit(context)
        if not caller.roles & Role.ADMIN:
            raise AccessDenied(f"{caller.identity!r} may not be a worker; that needs the role admin", caller.identity)

    async def _join(self, context: Context, call: "_WorkerCall") -> WorkerLine:
        call.carry(self._door.question())
        try:
            async with asyncio.timeout(JOIN_SECONDS):
                while True:
                    answer = await call.next()
                    if answer is None:
                        raise WaitTimeout("it left before it had joined")
                    if not self._door.is_alive(answer):
                        break
        except TimeoutError:
            raise WaitTimeout(f"it had not joined after {JOIN_SECONDS:.0f} s") from None
        line = self._door.enter(answer, str(context.peer()), call.carry)
        call.parts.bytes_max = MESSAGE_BYTES_MAX
        return line


class _WorkerCall:
    """The messages of one call; used by the event loop only, except `carry`."""

    def __init__(self, context: Context, admit: Callable[[], None]) -> None:
        self._context = context
        self._admit = admit
        self._loop = asyncio.get_running_loop()
        self.parts = MessageParts(FIRST_BYTES_MAX)
        self._outbox: asyncio.Queue[bytes | None] = asyncio.Queue()
        """Of one message at most, as each has to be answered before the next."""
        self._reading: asyncio.Future[Any] | None = None
        self._writing = asyncio.create_task(self._write())
        self._known_until = self._loop.time() + KNOWN_SECONDS

    def carry(self, message: bytes | None) -> None:
        """Send it; `None`: hang up. In any thread."""
        with contextlib.suppress(RuntimeError):  # the loop is closed: the node has ended
            self._loop.call_soon_threadsafe(self._outbox.put_nowait, message)

    async def next(self) -> bytes | None:
        """The next message; `None` once one side has hung up. Raises `WaitTimeout` and `InvalidOption`."""
        silent = 0
        while True:
            if self._reading is None:
                self._reading = asyncio.ensure_future(self._context.read())
            waiting: set[asyncio.Future[Any]] = {self._reading, self._writing}
            done, _ = await asyncio.wait(waiting, timeout=LOOK_SECONDS, return_when=asyncio.FIRST_COMPLETED)
            if self._reading in done:
                data, self._reading, silent = self._reading.result(), None, 0
                if data is END:
                    return None
                if self._loop.time() > self._known_until:
                    self._admit()
                    self._known_until = self._loop.time() + KNOWN_SECONDS
                message = self.parts.take(data)
                if message is not None:
                    return message
            elif done:
                self._writing.result()
                return None
            else:
                silent += 1
                if silent >= SILENT_LOOKS_MAX:
                    raise WaitTimeout(f"nothing was heard of it for {LOOK_SECONDS * SILENT_LOOKS_MAX:.0f} s")

    def end(self) -> None:
        """Nobody reads or writes any more."""
        self._writing.cancel()
        if self._reading is not None:
            self._reading.cancel()

    async def _write(self) -> None:
        while (message := await self._outbox.get()) is not None:
            for part in parts_of(message):
                await self._context.write(part)
