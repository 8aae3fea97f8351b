"""A worker that runs elsewhere: `tussock work MODULE:RUNTIME --program HOST:PORT`.

It has the module itself, so no code crosses the network, and opens the store with what its own environment says.
"""

import os
import signal
import sys
import threading
from typing import Any

import msgspec

from tussock.compute.applications.deadline import Deadline
from tussock.compute.functions.errors import WorkerFault, WorkerLost
from tussock.compute.functions.runtime import Runtime
from tussock.compute.functions.workers.desk import WorkerDesk
from tussock.compute.functions.workers.messages import (
    FRAME_BYTES_MAX,
    PROTOCOL,
    Hung,
    Meet,
    StillAlive,
    ToWorker,
    Welcomed,
)
from tussock.compute.functions.workers.shipment import fingerprint, program_version
from tussock.compute.functions.workers.staff.answer_loop import Answering
from tussock.compute.functions.workers.staff.program_workers import ProgramParts
from tussock.compute.service.client.channel import ApplicationChannel
from tussock.compute.service.client.worker_call import WorkerCall
from tussock.compute.service.server.entry import BadApplication, load_application
from tussock.statestore import StateStore, connect
from tussock.statestore.base.damage import UNREADABLE
from tussock.statestore.base.identity import Access
from tussock.statestore.base.logs import get_logger
from tussock.statestore.base.process.garbage import collect_rarely
from tussock.statestore.base.system import RealSystem, System
from tussock.statestore.errors import (
    AccessDenied,
    InvalidOption,
    ProtocolMismatch,
    TussockError,
    Unauthenticated,
)

__all__ = ["work"]

log = get_logger("tussock.compute.functions.workers")

PAUSE_SECONDS_MIN, PAUSE_SECONDS_MAX = 0.1, 5.0
"""Between two attempts to join."""
FAREWELL_SECONDS = 5.0
"""For the program to hear why a worker ends."""
FINAL = (WorkerFault, AccessDenied, Unauthenticated, ProtocolMismatch, InvalidOption)
"""Errors of the program that another attempt will not change."""

_encode = msgspec.msgpack.Encoder().encode
_decode = msgspec.msgpack.Decoder(ToWorker).decode


def work(app: str, store: str, address: str, access: Access) -> None:
    """Be a worker of the program at `address` until SIGTERM or SIGINT, which end the process.

    Joins again whenever the program was gone.
    Raises what ends it: `WorkerFault` for a program of another version or with other functions, `Unauthenticated` and
    `AccessDenied`, `BadApplication` for a module without one, and what opening the store raises.
    """
    ends = {signal.SIGTERM, signal.SIGINT}
    # In all threads, which inherit it: this one waits for them, and functions run in another.
    signal.pthread_sigmask(signal.SIG_BLOCK, ends)
    collect_rarely()
    system = RealSystem()
    worker = _JoiningWorker(app, store, ApplicationChannel(address, access, system), system)
    failures: list[BaseException] = []

    def run() -> None:
        try:
            worker.run()
        except BaseException as error:  # noqa: BLE001 - told by the thread that waits
            failures.append(error)
        finally:
            signal.pthread_kill(threading.main_thread().ident or 0, signal.SIGTERM)

    system.spawn("tussock worker", run)
    signal.sigwait(ends)
    worker.leave()
    signal.pthread_sigmask(signal.SIG_UNBLOCK, ends)
    if failures:
        raise failures[0]
    log.info("left", program=address)
    # What runs may run for long, and nobody awaits it.
    sys.stderr.flush()
    os._exit(0)


class _ProgramLine:
    """The `WorkerLink` of the worker's end."""

    def __init__(self, call: WorkerCall) -> None:
        self._call = call
        self.error: TussockError | None = None
        """Why it has ended."""

    def send(self, message: Any, seconds: float | None) -> None:  # noqa: ARG002 - another thread sends
        """Let it go; what is lost with the connection the program asks for again."""
        if self.error is not None:
            raise WorkerLost(str(self.error))
        data = _encode(message)
        if len(data) > FRAME_BYTES_MAX:
            raise WorkerLost(f"a message of {len(data):,} bytes; at most {FRAME_BYTES_MAX:,} fit")
        self._call.send(data, is_dispensable=type(message) is StillAlive)

    def receive(self, seconds: float | None) -> Any:  # noqa: ARG002 - the program may ask nothing for hours
        """The next question."""
        try:
            return _decode(self._call.receive())
        except UNREADABLE as error:
            self.error = InvalidOption(f"the program sent what is no message: {error}")
        except TussockError as error:
            self.error = error
        raise WorkerLost(str(self.error))

    def close(self) -> None:
        """The program notices."""
        self._call.close()


class _JoiningWorker:
    """`run` and all functions in one thread; `leave` in another."""

    def __init__(self, app: str, store: str, channel: ApplicationChannel, system: System) -> None:
        self._app = app
        self._store = store
        self._channel = channel
        self._system = system
        # Now: later the disk may have another version than this process runs.
        self._version = program_version()
        self._call: WorkerCall | None = None
        self._line: _ProgramLine | None = None
        self._parts: ProgramParts | None = None
        self._deadline: Deadline | None = None
        self._desk: WorkerDesk | None = None

    def run(self) -> None:
        """Join, work, and join again; raises what ends the worker."""
        pause, told = PAUSE_SECONDS_MIN, ""
        while True:
            error = self._join()
            if isinstance(error, FINAL):
                raise error
            if self._desk is not None:
                pause, told, self._desk = PAUSE_SECONDS_MIN, "", None
            if str(error) != told:
                told = str(error)
                log.warning("dialling again", program=self._channel.address, error=told)
            self._system.sleep(pause)
            pause = min(2 * pause, PAUSE_SECONDS_MAX)

    def leave(self) -> None:
        """Hang up."""
        if self._call is not None:
            self._call.close()
        self._channel.close()

    def _join(self) -> TussockError | None:
        """One time from joining to the end of it; returns why it ended."""
        self._call = WorkerCall(self._channel, FRAME_BYTES_MAX)
        line = self._line = _ProgramLine(self._call)
        try:
            # A function that runs comes to its end, which nobody awaits.
            Answering(line, self._answer, self._system, tells_always=True).run(lambda: None)
        except Exception:
            self._call.finish()
            self._system.spawn("tussock worker farewell", lambda: self._close_later(line))
            while line.error is None:
                try:
                    line.receive(None)
                except WorkerLost:
                    break
            raise
        finally:
            self._call.close()
        return line.error

    def _close_later(self, line: _ProgramLine) -> None:
        self._system.sleep(FAREWELL_SECONDS)
        line.close()

    def _answer(self, question: Any) -> Any:
        if type(question) is Meet:
            return self._meet(question)
        if self._desk is None:
            raise WorkerFault(f"the program at {self._channel.address} asks for {type(question).__name__} too early")
        return self._desk.answer(question)

    def _meet(self, meet: Meet) -> Welcomed:
        if (meet.protocol, meet.version) != (PROTOCOL, self._version):
            return Welcomed(PROTOCOL, self._version, "")
        parts = self._parts or self._load()
        if parts.name != meet.program:
            raise WorkerFault(
                f"{self._app} is program {parts.name!r}, and {self._channel.address} has program {meet.program!r}: "
                "give the worker the module of that program, or another address"
            )
        if parts.store.url.rstrip("/") != meet.store.rstrip("/"):
            raise WorkerFault(
                f"program {parts.name!r}: the worker's store is {parts.store.url}, and the program's {meet.store}: "
                "give both the same --store"
            )
        if self._deadline is None:
            self._deadline = Deadline(self._system, parts.options.timeout, self._hang)
        self._desk = WorkerDesk(parts.operators, parts.store, parts.options.cache_bytes, self._system, self._deadline)
        log.info("ready", program=parts.name, address=self._channel.address, store=parts.store.url)
        return Welcomed(PROTOCOL, self._version, fingerprint(parts.operators))

    def _load(self) -> ProgramParts:
        """Import the module: only now, as the program has made by now what its functions find in the store."""

        def open_store() -> StateStore | None:
            return connect(self._store, compaction=False) if self._store else None

        found = load_application(self._app, open_store, self._store)
        if not isinstance(found, Runtime):
            raise BadApplication(f"{self._app} has procedures, which run in one process; workers are for functions")
        self._parts = found.parts()
        return self._parts

    def _hang(self) -> None:
        """A function cannot be stopped: the program hears of it, and this process ends."""
        if self._line is not None:
            self._line.send(Hung(), None)
        log.error("a function did not return in time, and cannot be stopped", program=self._channel.address)
        self._system.sleep(FAREWELL_SECONDS)
        os._exit(1)
