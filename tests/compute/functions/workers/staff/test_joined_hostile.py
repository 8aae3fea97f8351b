"""Bad workers: nonsense, floods, a second answer, silence. Each is dropped, and the program goes on."""

import queue
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import grpc
import msgspec
import pytest

from support.applications.work_process import WorkProcess
from support.functions.accounts import accounts
from support.functions.joined_port import joined_port
from support.waiting import eventually
from tussock.compute import functions as fn
from tussock.compute.applications.errors import Full
from tussock.compute.functions.workers.messages import (
    PROTOCOL,
    AllDone,
    Meet,
    Refused,
    StillAlive,
    ToWorker,
    Welcomed,
)
from tussock.compute.functions.workers.shipment import fingerprint, program_version
from tussock.compute.service.rpc import application_pb2 as pb
from tussock.compute.service.rpc.application_errors import error_of
from tussock.compute.service.rpc.kinds import ERROR_METADATA, PROTOCOL_METADATA, WORK
from tussock.compute.service.rpc.worker_parts import PART_BYTES_MAX, MessageParts, parts_of
from tussock.statestore import InvalidOption, WaitTimeout, connect
from tussock.statestore.errors import TussockError

SECONDS = 60
APP = "support.applications.served_bank:accounts_alone"
encode = msgspec.msgpack.encode


class BadWorker:
    """Speaks to the port by itself."""

    def __init__(self, address: str) -> None:
        self._outbox: queue.SimpleQueue[bytes | None] = queue.SimpleQueue()
        self._channel = grpc.insecure_channel(address, [("grpc.max_send_message_length", -1)])
        call = self._channel.stream_stream(WORK)
        self._stream = call(iter(self._outbox.get, None), metadata=((PROTOCOL_METADATA, "1"),))
        self._parts = MessageParts(1 << 26)

    def say(self, *parts: bytes) -> None:
        for part in parts:
            self._outbox.put(part)

    def join(self, runtime: fn.Runtime) -> None:
        """As a worker does."""
        assert isinstance(self.heard(), Meet)
        self.say(*parts_of(encode(Welcomed(PROTOCOL, program_version(), fingerprint(runtime.parts().operators)))))

    def work_until(self, what: Callable[[], object]) -> None:
        """Say that it works until the condition holds: a worker that is silent for five seconds is gone."""

        def look() -> object:
            self.say(*parts_of(encode(StillAlive())))
            return what()

        eventually(look)

    def heard(self) -> Any:
        """The next question; raises the error by which the program has ended the call."""
        try:
            for part in self._stream:
                if (message := self._parts.take(part)) is not None:
                    return msgspec.msgpack.decode(message, type=ToWorker)
        except grpc.RpcError as error:
            for key, value in error.trailing_metadata() or ():  # type: ignore[attr-defined]
                if key == ERROR_METADATA:
                    raise error_of(pb.Error.FromString(value)) from None
            raise
        return None

    def close(self) -> None:
        self._outbox.put(None)
        self._channel.close()


@pytest.fixture(scope="module")
def program(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[fn.Runtime, str, str]]:
    """One that has a good worker, and its address and store."""
    folder: Path = tmp_path_factory.mktemp("joined")
    with connect((folder / "store").as_uri(), compaction=False) as store:
        runtime = fn.Runtime(store, "bank", [accounts()], workers=1)
        with joined_port(runtime) as address, WorkProcess(address, store.url, app=APP), runtime:
            yield runtime, address, store.url


@pytest.fixture
def bad(program: tuple[fn.Runtime, str, str]) -> Iterator[BadWorker]:
    found = BadWorker(program[1])
    yield found
    found.close()
    runtime = program[0]
    eventually(lambda: runtime.status()["workers_joined"] == 1)
    runtime.send("account", "a", "begin", 7).result(SECONDS)
    assert runtime.query("account", "a") == {"balance": 7}


def part(data: bytes, *, is_last: bool) -> bytes:
    return pb.WorkerPart(data=data, is_last=is_last).SerializeToString()


FULL = part(b"x" * PART_BYTES_MAX, is_last=False)


@pytest.mark.parametrize(
    ("said", "error", "told"),
    [
        pytest.param([b"\xff" * 40], InvalidOption, "are no part of a message", id="garbage"),
        pytest.param([part(b"", is_last=False)], InvalidOption, "a part of 0 bytes", id="empty part"),
        pytest.param([FULL], InvalidOption, "more than the 65,536 bytes", id="large first answer"),
        pytest.param([*parts_of(b"\xc1" * 100)], InvalidOption, "what is no message", id="no MessagePack"),
        pytest.param([*parts_of(b"\xc1")], InvalidOption, "what is no message", id="short and no message"),
        pytest.param([*parts_of(encode(AllDone()))], InvalidOption, "answered AllDone to the first", id="another"),
        pytest.param([*parts_of(encode(Refused("no", False)))], fn.WorkerFault, "cannot begin: no", id="refusal"),
        pytest.param(
            [*parts_of(encode(Welcomed(PROTOCOL, "0.0.7", "")))], fn.WorkerFault, "of version 0.0.7", id="version"
        ),
    ],
)
def test_nonsense_at_the_door(bad: BadWorker, said: Sequence[bytes], error: type[TussockError], told: str) -> None:
    """A worker that does not join by the protocol is told why, and is gone."""
    assert isinstance(bad.heard(), Meet)
    bad.say(*said)
    with pytest.raises(error, match=told):
        bad.heard()


def test_a_message_of_grpc_that_is_too_large_ends_the_call(bad: BadWorker) -> None:
    """The port takes parts only."""
    assert isinstance(bad.heard(), Meet)
    bad.say(part(b"x" * (8 << 20), is_last=True))
    with pytest.raises((grpc.RpcError, TussockError)):
        bad.heard()


def test_there_is_room_for_64(bad: BadWorker, program: tuple[fn.Runtime, str, str]) -> None:
    """Those that are about to join are counted, too."""
    assert isinstance(bad.heard(), Meet)
    others: list[BadWorker] = []
    try:
        for _ in range(62):
            # One after the other, so that none is silent for longer than the next one takes.
            others.append(BadWorker(program[1]))
            assert isinstance(others[-1].heard(), Meet)
            for one in (bad, *others):
                one.say(*parts_of(encode(StillAlive())))
        others.append(BadWorker(program[1]))
        with pytest.raises(Full, match="64 workers have joined"):
            others[-1].heard()
    finally:
        for one in others:
            one.close()


@pytest.mark.parametrize(
    ("said", "told"),
    [
        pytest.param([*parts_of(encode(AllDone()))], "what nobody had asked", id="unasked answer"),
        pytest.param([FULL] * 129, "more than the 67,108,864 bytes", id="huge message"),
    ],
)
def test_a_spare_worker_that_answers_unasked(
    bad: BadWorker, program: tuple[fn.Runtime, str, str], said: Sequence[bytes], told: str
) -> None:
    """It has joined, and nobody has asked it for anything."""
    bad.join(program[0])
    eventually(lambda: program[0].status()["workers_joined"] == 2)
    bad.say(*said)
    with pytest.raises(InvalidOption, match=told):
        bad.heard()


def test_a_silent_worker_is_gone_after_five_seconds(bad: BadWorker, program: tuple[fn.Runtime, str, str]) -> None:
    """One that says that it works stays."""
    bad.join(program[0])
    for _ in range(3):
        bad.say(*parts_of(encode(StillAlive())))
    with pytest.raises(WaitTimeout, match="nothing was heard of it for 5 s"):
        bad.heard()


DONE = [*parts_of(encode(AllDone()))]


@pytest.mark.parametrize(
    "answers",
    [
        pytest.param([[*parts_of(b"\xc1" * 100)]], id="nonsense"),
        pytest.param([[*parts_of(encode(Welcomed(PROTOCOL, "", "")))]], id="another kind"),
        pytest.param([[*DONE, *DONE]], id="twice"),
        pytest.param([DONE, [*parts_of(encode(["stepped", 7, [], [], 0, 0, 0, 0]))]], id="another step"),
        pytest.param([DONE, [*parts_of(encode(["stepped", 1, [[1]], [], 0, 0, 0, 0]))]], id="a step of nonsense"),
    ],
)
def test_a_worker_at_work_that_answers_nonsense_is_replaced(answers: Sequence[Sequence[bytes]], tmp_path: Path) -> None:
    """It is the only one until then; the spare one takes its place, and the request is answered."""
    with connect((tmp_path / "store").as_uri(), compaction=False) as store, ThreadPoolExecutor(1) as pool:
        runtime = fn.Runtime(store, "bank", [accounts()], workers=1)
        with joined_port(runtime) as address:
            bad = BadWorker(address)
            bad.join(runtime)
            eventually(lambda: runtime.workers_joined()["workers_joined"] == 1)
            with WorkProcess(address, store.url, app=APP):
                # To start a process takes as long as the machine likes.
                bad.work_until(lambda: runtime.workers_joined()["workers_joined"] == 2)
                starting = pool.submit(runtime.start)
                bad.heard()
                bad.say(*answers[0])
                starting.result(SECONDS)
                asked = runtime.send("account", "a", "begin", 7)
                for said in answers[1:]:
                    bad.heard()
                    bad.say(*said)
                asked.result(SECONDS)
                assert runtime.query("account", "a") == {"balance": 7}
                eventually(lambda: runtime.status()["workers_joined"] == 1)
                bad.close()
                runtime.stop()
