"""The process of one worker: `python -m tussock.compute.functions.workers.process SOCKET`, started by the program.

It takes its questions from the socket of that number and ends when the other end is closed: with its program.
"""

import os
import socket
import sys
from typing import Any

import pyarrow as pa

from tussock.compute.applications.deadline import Deadline
from tussock.compute.functions.errors import WorkerLost
from tussock.compute.functions.program.directory import Operators
from tussock.compute.functions.workers.desk import WorkerDesk
from tussock.compute.functions.workers.link import Link
from tussock.compute.functions.workers.messages import PROTOCOL, Hung, Refused, StillAlive, ToWorker, Welcome, Welcomed
from tussock.compute.functions.workers.shipment import fingerprint, program_version, unpack_program
from tussock.statestore import connect
from tussock.statestore.base.system import RealSystem, System
from tussock.statestore.errors import MetaUnavailable, ObjectStoreUnavailable

__all__ = ["run_worker"]

ALIVE_SECONDS = 0.5


def run_worker(link: Link, system: System) -> None:
    """Answer questions until the other end is gone."""
    worker = _WorkerProcess(link, system)
    while True:
        try:
            question = link.receive(None)
        except WorkerLost:
            return
        worker.is_busy = True
        try:
            answer = worker.answer(question)
        except (ObjectStoreUnavailable, MetaUnavailable) as error:
            # All questions may be asked again.
            answer = Refused(str(error), is_passing=True)
        except Exception as error:
            link.send(Refused(f"{type(error).__name__}: {error}", is_passing=False), None)
            raise
        worker.is_busy = False
        link.send(answer, None)


class _WorkerProcess:
    """What a worker knows between two questions."""

    def __init__(self, link: Link, system: System) -> None:
        self._link = link
        self._system = system
        self.is_busy = False
        system.spawn("tussock worker alive", self._tell_alive)

    def answer(self, question: Any) -> Any:
        """Do what is asked; the first question brings the program."""
        return self._welcome(question) if type(question) is Welcome else self._desk.answer(question)

    def _welcome(self, welcome: Welcome) -> Welcomed:
        if welcome.protocol != PROTOCOL or welcome.version != program_version():
            # The program stays packed: it may be of a later version.
            return Welcomed(PROTOCOL, program_version(), "")
        sys.path[:] = welcome.path
        shipped, url, options, cache_bytes, seconds = unpack_program(welcome.program)
        operators = Operators(shipped)
        deadline = Deadline(self._system, seconds, lambda: self._link.send(Hung(), None))
        store = connect(url, compaction=False, **options)
        self._desk = WorkerDesk(operators, store, cache_bytes, self._system, deadline.run)
        return Welcomed(PROTOCOL, program_version(), fingerprint(operators))

    def _tell_alive(self) -> None:
        while True:
            self._system.sleep(ALIVE_SECONDS)
            if self.is_busy:
                try:
                    self._link.send(StillAlive(), None)
                except WorkerLost:
                    # Nobody asks any more, and what runs may run for long.
                    os._exit(1)


if __name__ == "__main__":
    # The workers share the machine's cores.
    pa.set_cpu_count(1)
    run_worker(Link(socket.socket(fileno=int(sys.argv[1])), ToWorker), RealSystem())
    os._exit(0)
