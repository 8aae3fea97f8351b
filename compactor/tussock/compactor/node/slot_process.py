"""A slot that is its own process, so that compaction uses as many cores as there are slots.

The process is started with the slot, since importing what it needs takes a second, and lives from part to part; if it
dies, the part fails and the next one gets a fresh process. It is spawned, not forked: gRPC and the bucket's client have
threads, which do not survive a fork.

Parts go to it as bytes, outputs come back as bytes; rows read and the wish to stop pass through two numbers in shared
memory. Short-lived credentials of the bucket are asked for over their own pipe: the process has no session. When
the node is gone, however it ended, the process sees that it has another parent, or that its pipe is closed, and ends.
"""

import ctypes
import multiprocessing
import os
import signal
import threading
from collections.abc import Callable
from dataclasses import astuple
from multiprocessing.connection import Connection, wait
from multiprocessing.process import BaseProcess
from typing import Any

import msgspec

from tussock.compactor.executor import CompactionCancelled
from tussock.compactor.node.slots import InlineSlot, SlotCrashed
from tussock.compactor.parts import TaskPart
from tussock.statestore.base.logs import get_logger
from tussock.statestore.base.system import RealSystem
from tussock.statestore.buckets import open_bucket
from tussock.statestore.buckets.credentials import BucketCredentials, CredentialSource
from tussock.statestore.contract.object_store import ObjectStore
from tussock.statestore.contract.records import SstInfo
from tussock.statestore.errors import TussockError

__all__ = ["ProcessSlot", "SlotSettings"]

log = get_logger("tussock.compactor")

_SPAWN = multiprocessing.get_context("spawn")
_POLL_SECONDS = 0.05
_END_SECONDS = 3.0
"""How long a process has to stop what it does, or to end, before it is killed."""

_ROWS, _CANCEL = 0, 1


class SlotSettings(msgspec.Struct, frozen=True, kw_only=True):
    """What a slot's process has to know; no secrets, those are asked for."""

    url: str
    options: dict[str, str] = {}
    deadline_seconds: float
    sst_bytes: int
    has_credentials: bool = False
    """The node hands out credentials of the bucket; else the process's environment has them."""


class ProcessSlot:
    """A slot in a process. Used by one thread."""

    def __init__(self, name: str, settings: SlotSettings, credentials: CredentialSource | None = None) -> None:
        """Starts the process, and does not wait for it."""
        self._name = name
        self._settings = settings
        self._credentials = credentials
        self._system = RealSystem()
        self._shared: Any = _SPAWN.RawArray(ctypes.c_int64, 2)
        self._process: BaseProcess | None = None
        self._parts: Connection
        self._secrets: Connection
        self._start()

    @property
    def pid(self) -> int | None:
        """Of the process; `None` once the slot is closed."""
        return self._process.pid if self._process is not None else None

    def run(
        self, part: TaskPart, progress: Callable[[int], None], cancelled: Callable[[], bool]
    ) -> tuple[SstInfo, ...]:
        """Do the part in the process; raises `SlotCrashed` if that dies of it."""
        if self._process is None or not self._process.is_alive():
            self._start()
        self._shared[_ROWS] = self._shared[_CANCEL] = 0
        try:
            self._parts.send_bytes(msgspec.msgpack.encode(part))
            told = 0.0
            while not self._parts.poll(0):
                ready = wait([self._parts, self._secrets], _POLL_SECONDS)
                if self._secrets in ready:
                    self._hand_out()
                progress(self._shared[_ROWS])
                if cancelled():
                    self._shared[_CANCEL] = 1
                    told = told or self._system.monotonic()
                    if self._system.monotonic() - told >= _END_SECONDS:
                        self._kill()
                        raise CompactionCancelled(f"the process of {self._name} did not stop when told to: killed")
            answer = self._parts.recv()
        except (EOFError, OSError) as error:
            raise self._crash(part) from error
        if isinstance(answer, BaseException):
            raise answer
        progress(self._shared[_ROWS])
        return msgspec.msgpack.decode(answer, type=tuple[SstInfo, ...])

    def close(self) -> None:
        """End the process."""
        if self._process is None:
            return
        self._parts.close()
        self._secrets.close()
        self._process.join(_END_SECONDS)
        self._kill()
        self._process = None

    def _kill(self) -> None:
        assert self._process is not None
        if self._process.is_alive():
            self._process.kill()
        self._process.join()

    def _start(self) -> None:
        self.close()
        # One thread each for sorting: the cores belong to all slots together.
        os.environ.setdefault("POLARS_MAX_THREADS", "1")
        self._parts, parts = _SPAWN.Pipe()
        self._secrets, secrets = _SPAWN.Pipe()
        process = _SPAWN.Process(
            target=_main,
            name=self._name,
            args=(parts, secrets, self._shared, msgspec.msgpack.encode(self._settings)),
            daemon=True,
        )
        process.start()
        # The child has its own ends now; with these closed here, the pipes end when it does.
        parts.close()
        secrets.close()
        self._process = process

    def _hand_out(self) -> None:
        self._secrets.recv_bytes()
        assert self._credentials is not None, "the process asks only if it was told that it may"
        try:
            found = self._credentials()
        except TussockError as error:
            self._secrets.send(str(error))
            return
        self._secrets.send(astuple(found))

    def _crash(self, part: TaskPart) -> SlotCrashed:
        assert self._process is not None
        self._process.join(_END_SECONDS)
        code = self._process.exitcode
        how = f"signal {signal.Signals(-code).name}" if code is not None and code < 0 else f"exit code {code}"
        return SlotCrashed(
            f"the process of {self._name} ended with {how} at row {self._shared[_ROWS]} of its part of compaction task "
            f"{part.task.id}; if it was killed for want of memory, give the node more, or fewer slots"
        )


def _main(parts: Connection, secrets: Connection, shared: Any, encoded: bytes) -> None:
    """What the process runs: part after part, until the node hangs up."""
    # Signals of a terminal or a service manager reach the whole group; the node decides when its slots end.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    parent = os.getppid()
    settings = msgspec.msgpack.decode(encoded, type=SlotSettings)
    system = RealSystem()

    asking = threading.Lock()

    def ask() -> BucketCredentials:
        with asking:  # the library asks from its own threads
            secrets.send_bytes(b"")
            answer = secrets.recv()
        if isinstance(answer, str):
            raise TussockError(f"no credentials of the bucket could be had: {answer}")
        return BucketCredentials(*answer)

    def opened(url: str) -> ObjectStore:
        return open_bucket(
            url,
            deadline_seconds=settings.deadline_seconds,
            system=system,
            options=settings.options,
            credentials=ask if settings.has_credentials else None,
        )

    slot = InlineSlot(opened(settings.url), system, opened, settings.sst_bytes)
    while True:
        try:
            part = msgspec.msgpack.decode(parts.recv_bytes(), type=TaskPart)
        except EOFError:
            return
        try:
            outputs = slot.run(
                part, lambda rows: _note(shared, rows), lambda: shared[_CANCEL] or os.getppid() != parent
            )
        except (TussockError, CompactionCancelled) as error:
            parts.send(error)
        except Exception as error:
            log.exception("compaction task failed unexpectedly", task=part.task.id)
            # The class of a defect may not survive the pipe.
            parts.send(RuntimeError(f"{type(error).__name__}: {error}"))
        else:
            parts.send(msgspec.msgpack.encode(outputs))


def _note(shared: Any, rows: int) -> None:
    shared[_ROWS] = rows
