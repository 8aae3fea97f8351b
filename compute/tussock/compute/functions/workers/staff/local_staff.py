"""Workers that are processes of this machine, which their program starts.

One more process than there are workers has imported all that a worker needs, and waits: to take the place of one that
is lost is then a matter of milliseconds, and not of a second or two.
"""

import os
import socket
import subprocess
import sys
import threading
from contextlib import suppress

from tussock.compute.functions.program.directory import Operators
from tussock.compute.functions.site import SiteOptions
from tussock.compute.functions.workers.link import Link
from tussock.compute.functions.workers.messages import PROTOCOL, FromWorker, Welcome
from tussock.compute.functions.workers.shipment import fingerprint, pack_program, program_version
from tussock.compute.functions.workers.staff.members import START_SECONDS, Expected, check_shared, check_welcomed, heard
from tussock.statestore.settings import StoreSettings

__all__ = ["LocalStaff"]

CHANGED = "Tussock, or a module of the program, was changed while the program runs; start the program again"


class LocalWorker:
    """A process with one end of a pair of sockets."""

    def __init__(self, popen: "subprocess.Popen[bytes]", link: Link) -> None:
        self.popen = popen
        self.link = link
        self.process = popen.pid
        self.name = f"process {popen.pid}"

    @property
    def is_there(self) -> bool:
        """Whether it has not ended."""
        return self.popen.poll() is None


class LocalStaff:
    """A `Staff`."""

    def __init__(self, program: str, operators: Operators, options: SiteOptions, settings: StoreSettings) -> None:
        """`InvalidOption` for functions that cannot be sent, and for a store that other processes do not see."""
        check_shared(settings.url)
        parts = operators.all, settings.url, _connection(settings), options.cache_bytes, options.timeout
        self._shipped = pack_program(parts, program)
        # Now: later the disk may have another version than this process runs.
        self._expected = Expected(program, program_version(), fingerprint(operators), CHANGED)
        self._spare: LocalWorker | None = None
        self._is_closed = False
        self._lock = threading.Lock()

    def hire(self, count: int, seconds: float | None) -> list[LocalWorker]:  # noqa: ARG002 - they are started
        """Start that many."""
        started: list[LocalWorker] = []
        if not count:
            return started
        with self._lock:
            spare, self._spare = self._spare, None
        if spare is not None and spare.is_there:
            started.append(spare)
        try:
            # Together, as each takes a while to import.
            started.extend(self._start() for _ in range(count - len(started)))
            welcome = Welcome(PROTOCOL, self._expected.version, [*sys.path], self._shipped)
            for one in started:
                one.link.send(welcome, START_SECONDS)
            for one in started:
                check_welcomed(heard(one.link, START_SECONDS), self._expected, one.name)
        except BaseException:
            for one in started:
                self.end(one)
            raise
        with self._lock:
            # Nobody would end one that comes after the others have ended.
            if not self._is_closed:
                self._spare = self._spare or self._start()
        return started

    def release(self, worker: LocalWorker) -> None:
        """The spare one is enough to wait."""
        self.end(worker)

    def end(self, worker: LocalWorker) -> None:
        """End its process."""
        with suppress(OSError):
            worker.link.close()
        worker.popen.kill()
        worker.popen.wait()

    @property
    def waiting(self) -> int:
        """None: the spare one does not have the program yet."""
        return 0

    def close(self) -> None:
        """End the spare one."""
        with self._lock:
            self._is_closed = True
            if self._spare is not None:
                self.end(self._spare)
            self._spare = None

    @staticmethod
    def _start() -> LocalWorker:
        here, there = socket.socketpair()
        with there:
            command = [sys.executable, "-m", "tussock.compute.functions.workers.process", str(there.fileno())]
            environment = {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
            # In another session: an interrupt of the terminal is for the program.
            popen = subprocess.Popen(  # noqa: S603 - this Python, with this module
                command, stdin=subprocess.DEVNULL, pass_fds=[there.fileno()], env=environment, start_new_session=True
            )
        return LocalWorker(popen, Link(here, FromWorker))


def _connection(settings: StoreSettings) -> dict[str, object]:
    """How a worker opens the store."""
    found: dict[str, object] = {"deadline": settings.deadline, "limits": settings.limits}
    if not settings.url.startswith("tussock:"):
        return {**found, "max_clock_ahead": settings.max_clock_ahead}
    access = settings.access
    shown = {
        "token": access.token,
        "tls_ca": access.tls_ca,
        "tls_cert": access.tls_cert,
        "tls_key": access.tls_key,
        "tls_server_name": access.tls_server_name,
    }
    return {**found, **{name: value for name, value in shown.items() if value}}
