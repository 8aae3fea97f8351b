"""The process of one worker: `python -m tussock.compute.functions.workers.process SOCKET`, started by the program.

It takes its questions from the socket of that number and ends when the other end is closed: with its program.
"""

import os
import socket
import sys
from typing import Any

import pyarrow as pa

from tussock.compute.applications.deadline import Deadline
from tussock.compute.functions.program.directory import Operators
from tussock.compute.functions.workers.desk import WorkerDesk
from tussock.compute.functions.workers.link import Link
from tussock.compute.functions.workers.messages import PROTOCOL, Hung, ToWorker, Welcome, Welcomed
from tussock.compute.functions.workers.shipment import fingerprint, program_version, unpack_program
from tussock.compute.functions.workers.staff.answer_loop import Answering
from tussock.statestore import connect
from tussock.statestore.base.process.garbage import collect_rarely
from tussock.statestore.base.system import RealSystem, System

__all__ = ["WorkerProcess"]


class WorkerProcess:
    """What a worker knows between two questions."""

    def __init__(self, link: Link, system: System) -> None:
        self._link = link
        self._system = system
        # Now: later the disk may have another version than this process runs.
        self._version = program_version()

    def answer(self, question: Any) -> Any:
        """Do what is asked; the first question brings the program."""
        return self._welcome(question) if type(question) is Welcome else self._desk.answer(question)

    def _welcome(self, welcome: Welcome) -> Welcomed:
        if welcome.protocol != PROTOCOL or welcome.version != self._version:
            # The program stays packed: it may be of a later version.
            return Welcomed(PROTOCOL, self._version, "")
        sys.path[:] = welcome.path
        shipped, url, options, cache_bytes, seconds = unpack_program(welcome.program)
        operators = Operators(shipped)
        deadline = Deadline(self._system, seconds, lambda: self._link.send(Hung(), None))
        store = connect(url, compaction=False, **options)
        self._desk = WorkerDesk(operators, store, cache_bytes, self._system, deadline)
        return Welcomed(PROTOCOL, self._version, fingerprint(operators))


def _main(descriptor: int) -> None:
    # The workers share the machine's cores.
    pa.set_cpu_count(1)
    collect_rarely()
    link, system = Link(socket.socket(fileno=descriptor), ToWorker), RealSystem()
    worker = WorkerProcess(link, system)
    # Nobody asks any more, and what runs may run for long.
    Answering(link, worker.answer, system, tells_always=False).run(lambda: os._exit(1))
    os._exit(0)


if __name__ == "__main__":
    _main(int(sys.argv[1]))
