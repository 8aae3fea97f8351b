"""Workers that are not what they should be: of another version, with other functions, silent, or with nonsense."""

import socket
import struct
from collections.abc import Iterator
from pathlib import Path

import msgspec
import pytest

from support.functions.accounts import accounts
from tussock.compute import functions as fn
from tussock.compute.functions.errors import WorkerLost
from tussock.compute.functions.workers import crew
from tussock.compute.functions.workers.link import Link
from tussock.compute.functions.workers.messages import AllDone, FromWorker, StillAlive
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
    monkeypatch.setattr(crew, "program_version", lambda: "0.0.7")
    with pytest.raises(fn.WorkerFault, match=r"the program of 0\.0\.7.*start the program again"):
        fn.Runtime(store, "bank", [accounts()], workers=1).start()


def test_a_worker_with_other_functions_is_refused(store: StateStore, monkeypatch: pytest.MonkeyPatch) -> None:
    """A module was changed while the program runs."""
    monkeypatch.setattr(crew, "fingerprint", lambda operators: f"{operators.all[0].name} of yesterday")
    with pytest.raises(fn.WorkerFault, match=r"a worker has other functions.*account of yesterday"):
        fn.Runtime(store, "bank", [accounts()], workers=1).start()


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
