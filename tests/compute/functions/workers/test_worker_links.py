"""Workers that are not what they should be: of another version, with other functions, silent, or with nonsense."""

import socket
import struct
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest

from support.functions.accounts import accounts
from tussock.compute import functions as fn
from tussock.compute.functions.errors import WorkerLost
from tussock.compute.functions.workers import worker_site
from tussock.compute.functions.workers.crew import Crew
from tussock.compute.functions.workers.link import Link
from tussock.compute.functions.workers.messages import AllDone, FromWorker, StillAlive
from tussock.compute.functions.workers.staff import local_staff
from tussock.compute.functions.workers.worker_site import crew_of
from tussock.statestore import StateStore, connect


@pytest.fixture
def store(tmp_path: Path) -> Iterator[StateStore]:
    with connect((tmp_path / "store").as_uri(), compaction=False) as opened:
        yield opened


@pytest.fixture
def ends() -> Iterator[tuple[Link, socket.socket]]:
    here, there = socket.socketpair()
    with here, there:
        yield Link(here, FromWorker), there


def test_a_worker_of_another_version_is_refused(store: StateStore, monkeypatch: pytest.MonkeyPatch) -> None:
    """Tussock was changed while the program runs; the program says so, and what to do."""
    monkeypatch.setattr(local_staff, "program_version", lambda: "0.0.7")
    with pytest.raises(fn.WorkerFault, match=r"the program of 0\.0\.7.*start the program again"):
        fn.Runtime(store, "bank", [accounts()], workers=1).start()


def test_a_program_is_of_the_version_that_it_began_with(
    store: StateStore, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What is installed while it runs is only what later workers are of."""
    with fn.Runtime(store, "bank", [accounts()], workers=1) as runtime:
        installed = tmp_path / "later" / "tussock-0.0.7.dist-info"
        installed.mkdir(parents=True)
        (installed / "METADATA").write_text("Metadata-Version: 2.1\nName: tussock\nVersion: 0.0.7\n")
        monkeypatch.syspath_prepend(installed.parent)
        # One of the two waits already, as a spare.
        with pytest.raises(
            fn.WorkerFault, match=r"a worker, process [0-9]+, is of version 0\.0\.7.*start the program again"
        ):
            runtime.scale(3)
        runtime.send("account", "a", "begin", 7).result(30)
        assert len(runtime.worker_processes()) == 1


def test_a_worker_with_other_functions_is_refused(store: StateStore, monkeypatch: pytest.MonkeyPatch) -> None:
    """A module was changed while the program runs."""
    monkeypatch.setattr(local_staff, "fingerprint", lambda operators: f"{operators.all[0].name} of yesterday")
    with pytest.raises(fn.WorkerFault, match=r"a worker, process [0-9]+, has other functions.*account of yesterday"):
        fn.Runtime(store, "bank", [accounts()], workers=1).start()


def test_a_crew_that_has_ended_leaves_no_process(store: StateStore, monkeypatch: pytest.MonkeyPatch) -> None:
    """A stop may overtake one who hires: whom that gets it dismisses, and there is no spare that nobody ends."""
    started: list[subprocess.Popen[bytes]] = []
    crews: list[Crew] = []

    class RecordedProcess(subprocess.Popen[bytes]):
        def __init__(self, *args: Any, **options: Any) -> None:
            super().__init__(*args, **options)
            started.append(self)

    def recorded_crew(*given: Any) -> Crew:
        crews.append(crew_of(*given))
        return crews[-1]

    monkeypatch.setattr(subprocess, "Popen", RecordedProcess)
    monkeypatch.setattr(worker_site, "crew_of", recorded_crew)
    with fn.Runtime(store, "bank", [accounts()], workers=1):
        pass
    crews[0].dismiss(crews[0].hire(1, 60))
    alive = [one for one in started if one.poll() is None]
    for one in alive:
        one.kill()
        one.wait()
    # The worker and its spare, and the one that was hired.
    assert (len(started), alive) == (3, [])


def test_a_frame_arrives_in_any_pieces(ends: tuple[Link, socket.socket]) -> None:
    """Two messages, byte by byte."""
    link, there = ends
    for message in (StillAlive(), AllDone()):
        data = msgspec.msgpack.encode(message)
        for byte in struct.pack("<I", len(data)) + data:
            there.send(bytes([byte]))
    assert link.receive(5) == StillAlive()
    assert link.receive(5) == AllDone()


@pytest.mark.parametrize(
    ("data", "told"),
    [
        (struct.pack("<I", 1 << 31), "announced a message of 2,147,483,648 bytes"),
        (struct.pack("<I", 3) + b"\xc1\xc1\xc1", "sent what is no message"),
        (struct.pack("<I", 8) + msgspec.msgpack.encode(["other"]) + b" ", "sent what is no message"),
        (struct.pack("<I", 100) + b"half", "does not answer"),
        (b"", "does not answer"),
    ],
)
def test_nonsense_and_silence_are_a_loss(ends: tuple[Link, socket.socket], data: bytes, told: str) -> None:
    """Whatever comes, the program knows that this worker is of no use."""
    link, there = ends
    there.sendall(data)
    with pytest.raises(WorkerLost, match=told):
        link.receive(0.2)


def test_a_process_that_has_ended_is_a_loss(ends: tuple[Link, socket.socket]) -> None:
    """At once, and not after a timeout."""
    link, there = ends
    there.close()
    with pytest.raises(WorkerLost, match="process has ended"):
        link.receive(60)
    with pytest.raises(WorkerLost, match="takes no messages"):
        link.send(AllDone(), 60)


def test_a_message_that_is_too_large_is_not_sent(ends: tuple[Link, socket.socket]) -> None:
    """64 MiB are enough for all that the protocol has."""
    link, _ = ends
    with pytest.raises(WorkerLost, match="at most 67,108,864 fit"):
        link.send(b"x" * (65 << 20), 5)
