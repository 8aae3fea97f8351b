"""The processes of the workers: started, spoken to, and ended when they do not answer.

One more process than there are workers has imported all that a worker needs, and waits: to take the place of one that
is lost is then a matter of milliseconds, and not of a second or two.
"""

import os
import socket
import subprocess
import sys
import threading
from collections.abc import Mapping, Sequence
from contextlib import suppress
from typing import Any, NamedTuple

from tussock.compute.functions.errors import WorkerFault, WorkerLost
from tussock.compute.functions.program.directory import Operators
from tussock.compute.functions.site import SiteOptions
from tussock.compute.functions.workers.link import Link
from tussock.compute.functions.workers.messages import (
    PROTOCOL,
    FromWorker,
    Hung,
    Refused,
    StillAlive,
    Welcome,
    Welcomed,
)
from tussock.compute.functions.workers.shipment import fingerprint, pack_program, program_version
from tussock.statestore import InvalidOption
from tussock.statestore.errors import ObjectStoreUnavailable
from tussock.statestore.settings import StoreSettings

__all__ = ["Crew", "WorkerHangs"]

ANSWER_SECONDS = 5.0
"""A worker says ten times in this time that it works; one that does not is ended."""
START_SECONDS = 60.0
"""Until it has imported the program and opened the store."""


class WorkerHangs(Exception):
    """A function in a worker cannot be stopped."""


class _Member(NamedTuple):
    """One worker."""

    process: "subprocess.Popen[bytes]"
    link: Link


class Crew:
    """The workers of one program, by their numbers."""

    def __init__(self, program: str, operators: Operators, options: SiteOptions, settings: StoreSettings) -> None:
        """`InvalidOption` for functions that cannot be sent, and for a store that other processes do not see."""
        self._program = program
        parts = operators.all, settings.url, _connection(settings), options.cache_bytes, options.timeout
        self._shipped = pack_program(parts, program)
        self._fingerprint = fingerprint(operators)
        self._members: list[_Member | None] = []
        self._spare: _Member | None = None
        self._lock = threading.Lock()

    def __len__(self) -> int:
        return len(self._members)

    @property
    def processes(self) -> list[int]:
        """Their process ids."""
        return [0 if one is None else one.process.pid for one in self._members]

    def hire(self, count: int) -> list[_Member]:
        """Start that many, which belong to the crew once they are given to `change`; in any thread.

        Raises `WorkerLost`, `WorkerFault`, and `ObjectStoreUnavailable` where the store does not answer a worker.
        """
        started: list[_Member] = []
        if not count:
            return started
        with self._lock:
            spare, self._spare = self._spare, None
        if spare is not None and spare.process.poll() is None:
            started.append(spare)
        try:
            # Together, as each takes a while to import.
            started.extend(self._start() for _ in range(count - len(started)))
            for one in started:
                self._welcome(one)
        except BaseException:
            for one in started:
                _end(one)
            raise
        with self._lock:
            self._spare = self._spare or self._start()
        return started

    def change(self, workers: int, hired: Sequence[_Member]) -> None:
        """From now on there are that many: those who were hired are the last ones, and the last ones go."""
        for one in self._members[workers:]:
            if one is not None:
                _end(one)
        new = [one for one in hired if one not in self._members]
        self._members = [*self._members, *new][:workers]
        self._members += [None] * (workers - len(self._members))

    def dismiss(self, hired: Sequence[_Member]) -> None:
        """End those that did not come to belong to the crew."""
        for one in hired:
            if one not in self._members:
                _end(one)

    def replace_lost(self) -> None:
        """Start others for those that are gone."""
        gone = [at for at, one in enumerate(self._members) if one is None]
        for at, one in zip(gone, self.hire(len(gone)), strict=True):
            self._members[at] = one

    def ask(self, questions: Mapping[int, Any]) -> dict[int, Any]:
        """What workers answer, each to its question; `Refused` where the store did not answer one.

        Raises `WorkerLost`; then those that are lost are ended.
        """
        lost: WorkerLost | None = None
        asked, answers = [], {}
        for at, question in questions.items():
            try:
                self._member(at).link.send(question, ANSWER_SECONDS)
                asked.append(at)
            except WorkerLost as error:
                lost = self._lose(at, error)
        for at in asked:
            try:
                answers[at] = self._answer(at)
            except WorkerLost as error:
                lost = self._lose(at, error)
        if lost is not None:
            raise lost
        return answers

    def close(self) -> None:
        """End all."""
        with self._lock:
            for one in (*self._members, self._spare):
                if one is not None:
                    _end(one)
            self._members, self._spare = [], None

    def _member(self, at: int) -> _Member:
        found = self._members[at]
        if found is None:
            raise WorkerLost("it is not there")
        return found

    def _answer(self, at: int) -> Any:
        link = self._member(at).link
        while True:
            answer = link.receive(ANSWER_SECONDS)
            if isinstance(answer, StillAlive):
                continue
            if isinstance(answer, Hung):
                raise WorkerHangs
            if isinstance(answer, Refused) and not answer.is_passing:
                raise WorkerLost(answer.why)
            return answer

    def _lose(self, at: int, error: WorkerLost) -> WorkerLost:
        """It is not to answer later what nobody waits for any more."""
        one, self._members[at] = self._members[at], None
        if one is None:
            return error
        _end(one)
        found = WorkerLost(f"worker {at} of {len(self._members)}, process {one.process.pid}: {error}")
        found.__cause__ = error
        return found

    def _start(self) -> _Member:
        here, there = socket.socketpair()
        with there:
            command = [sys.executable, "-m", "tussock.compute.functions.workers.process", str(there.fileno())]
            environment = {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
            # In another session: an interrupt of the terminal is for the program.
            process = subprocess.Popen(  # noqa: S603 - this Python, with this module
                command, stdin=subprocess.DEVNULL, pass_fds=[there.fileno()], env=environment, start_new_session=True
            )
        return _Member(process, Link(here, FromWorker))

    def _welcome(self, one: _Member) -> None:
        welcome = Welcome(PROTOCOL, program_version(), [*sys.path], self._shipped)
        one.link.send(welcome, START_SECONDS)
        answer = one.link.receive(START_SECONDS)
        while isinstance(answer, StillAlive):
            answer = one.link.receive(START_SECONDS)
        if isinstance(answer, Refused):
            if answer.is_passing:
                raise ObjectStoreUnavailable(answer.why)
            raise WorkerFault(f"program {self._program!r}: a worker cannot begin: {answer.why}")
        if not isinstance(answer, Welcomed):
            raise WorkerLost(f"it answered {type(answer).__name__} to the first message")
        if (answer.protocol, answer.version) != (PROTOCOL, program_version()):
            raise WorkerFault(
                f"program {self._program!r}: a worker is of version {answer.version}, protocol {answer.protocol}, and "
                f"the program of {program_version()}, protocol {PROTOCOL}: Tussock was changed while the program runs; "
                "start the program again"
            )
        if answer.fingerprint != self._fingerprint:
            raise WorkerFault(
                f"program {self._program!r}: a worker has other functions, {answer.fingerprint}, than the program, "
                f"{self._fingerprint}: a module was changed while the program runs; start the program again"
            )


def _end(one: _Member) -> None:
    with suppress(OSError):
        one.link.close()
    one.process.kill()
    one.process.wait()


def _connection(settings: StoreSettings) -> dict[str, Any]:
    """How a worker opens the store."""
    if settings.url.startswith("memory:"):
        raise InvalidOption(
            f"the store at {settings.url} is in the memory of this process, where workers do not see it: use one in a "
            "folder or a bucket, or workers=0"
        )
    found: dict[str, Any] = {"deadline": settings.deadline, "limits": settings.limits}
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
