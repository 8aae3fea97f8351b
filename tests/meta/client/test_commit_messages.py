"""Commits of several threads of one client go in one message; what is not in the log after it goes alone."""

import threading
from collections.abc import Callable, Iterator

import pytest
from msgspec.structs import replace

from support import inside
from support.store.versions import request, sst
from tussock.meta.client.backend import PlatformBackend
from tussock.meta.client.connection import Attempts
from tussock.meta.rpc import meta_pb2 as pb
from tussock.statestore.base.system import RealSystem
from tussock.statestore.contract.backend import CommitRequest
from tussock.statestore.errors import (
    Conflict,
    Fenced,
    MetaUnavailable,
    NotLeader,
    ObjectStoreUnavailable,
    StaleUpload,
    TussockError,
)
from tussock.statestore.settings import StoreSettings

NEWEST = pb.OpenSessionResponse(commits_max=64, message_bytes_max=16 << 20)


class Leader:
    """A connection whose leader commits everything, but for what a test says."""

    def __init__(self, opened: pb.OpenSessionResponse = NEWEST) -> None:
        self.session_id = "0" * 32
        self.opened = opened
        self.sent: list[tuple[str, list[int]]] = []
        """Name of each call, and the epochs in it; those that are tried once have a name that ends with `?`."""
        self.requests: list[pb.CommitEachRequest] = []
        self.held = threading.Event()
        self.on_each: Callable[[pb.CommitEachRequest], pb.CommitEachResponse] | None = None
        self.refusals: dict[int, TussockError] = {}

    def call(self, name: str, message: pb.CommitRequest, *, attempts: Attempts | None = None, **_: object) -> object:
        if name != "Commit":
            raise MetaUnavailable(f"{name} is not answered here")
        self.sent.append((name, [message.epoch]))
        return self._commit(message)

    def call_once(self, name: str, message: pb.CommitRequest | pb.CommitEachRequest) -> object:
        if isinstance(message, pb.CommitRequest):
            self.sent.append((f"{name}?", [message.epoch]))
            self.held.wait(20)
            return self._commit(message)
        self.sent.append((f"{name}?", [one.epoch for one in message.commits]))
        self.requests.append(message)
        if self.on_each is not None:
            return self.on_each(message)
        return pb.CommitEachResponse(commits=[pb.CommitResponse(epoch=one.epoch) for one in message.commits])

    def _commit(self, message: pb.CommitRequest) -> pb.CommitResponse:
        if message.epoch in self.refusals:
            raise self.refusals[message.epoch]
        return pb.CommitResponse(epoch=message.epoch)


class Client:
    """A backend, and threads that commit with it."""

    def __init__(self, leader: Leader) -> None:
        self.leader = leader
        system = RealSystem()
        self.backend = PlatformBackend(leader, system, StoreSettings("tussock://a:1", deadline=5.0))  # type: ignore[arg-type]
        self.outcomes: dict[int, object] = {}
        self._threads: list[threading.Thread] = []

    def begin(self, *requests: CommitRequest) -> None:
        """Commit the first, which the leader holds until all others wait behind it."""
        for number, one in enumerate(requests):
            self._threads.append(threading.Thread(target=self._commit, args=(one,)))
            self._threads[-1].start()
            queue = inside.commit_messages(self.backend)
            while (len(queue) if number else len(self.leader.sent)) < max(number, 1):
                pass

    def end(self) -> dict[int, object]:
        """Let the leader go on; returns what became of each epoch."""
        self.leader.held.set()
        for thread in self._threads:
            thread.join(20)
            assert not thread.is_alive()
        return self.outcomes

    def _commit(self, one: CommitRequest) -> None:
        try:
            self.outcomes[one.epoch] = self.backend.commit(one)
        except TussockError as error:
            self.outcomes[one.epoch] = error


def small(epoch: int, writer: str | None = "w") -> CommitRequest:
    """A commit whose SST comes along."""
    return with_bytes(request(epoch, 1, sst(), writer=writer, batch_id=epoch if writer else None), b"bytes")


def with_bytes(commit: CommitRequest, data: bytes) -> CommitRequest:
    """The commit, with its SST along."""
    return replace(commit, payloads={commit.tables[1][0].ssts[0].id: data})


@pytest.fixture
def client() -> Iterator[Client]:
    made = Client(Leader())
    yield made
    made.leader.held.set()


def test_commits_that_wait_share_a_message(client: Client) -> None:
    """The session and the version are said once."""
    client.begin(*map(small, (1, 2, 3, 4)))
    assert client.end() == {1: 1, 2: 2, 3: 3, 4: 4}
    assert client.leader.sent == [("Commit?", [1]), ("CommitEach?", [2, 3, 4])]
    (message,) = client.leader.requests
    assert message.session_id == client.leader.session_id
    assert {one.session_id for one in message.commits} == {""}
    assert {one.writer for one in message.commits} == {"w"}
    assert all(one.payloads for one in message.commits)


def test_one_writer_calls_commit_and_never_waits(client: Client) -> None:
    client.leader.held.set()
    for epoch in (1, 2, 3):
        assert client.backend.commit(small(epoch)) == epoch
    assert client.leader.sent == [("Commit?", [1]), ("Commit?", [2]), ("Commit?", [3])]


@pytest.mark.parametrize(
    "opened",
    [
        pb.OpenSessionResponse(message_bytes_max=16 << 20),
        pb.OpenSessionResponse(commits_max=8, message_bytes_max=16 << 20),
        pb.OpenSessionResponse(commits_max=64, message_bytes_max=1 << 20),
    ],
    ids=["older service", "fewer commits", "small messages"],
)
def test_a_service_that_takes_no_such_message_gets_none(opened: pb.OpenSessionResponse) -> None:
    client = Client(Leader(opened))
    client.leader.held.set()
    assert client.backend.commit(small(1)) == 1
    assert client.leader.sent == [("Commit", [1])]


@pytest.mark.parametrize(
    "alone",
    [
        request(9, writer="w", batch_id=9),
        request(9, None, writer="w", batch_id=9, expect={1: 8}),
        with_bytes(request(9, 1, sst()), b"x" * (128 << 10)),
    ],
    ids=["SST in the bucket", "conditional", "large"],
)
def test_what_could_keep_others_waiting_goes_alone(client: Client, alone: CommitRequest) -> None:
    """It does not wait for the message that is under way either."""
    client.begin(small(1))
    assert client.backend.commit(alone) == 9
    assert client.leader.sent == [("Commit?", [1]), ("Commit", [9])]
    client.end()


def test_a_refusal_is_told_by_a_call_of_its_own_commit(client: Client) -> None:
    """The others of its message are committed."""
    refused = Fenced("generation 1 is fenced")
    client.leader.refusals[3] = refused
    client.leader.on_each = lambda message: pb.CommitEachResponse(
        commits=[
            pb.CommitResponse(refused="Fenced") if one.epoch == 3 else pb.CommitResponse(epoch=one.epoch)
            for one in message.commits
        ]
    )
    client.begin(*map(small, (1, 2, 3, 4)))
    assert client.end() == {1: 1, 2: 2, 3: refused, 4: 4}
    assert client.leader.sent[2:] == [("Commit", [3])]


def test_a_commit_that_has_a_message_to_itself_is_refused_once(client: Client) -> None:
    client.leader.held.set()
    client.leader.refusals[1] = Conflict("no")
    with pytest.raises(Conflict):
        client.backend.commit(small(1))
    assert client.leader.sent == [("Commit?", [1])]


@pytest.mark.parametrize("error", [MetaUnavailable("gone"), ObjectStoreUnavailable("gone"), NotLeader("not I", "b:1")])
def test_each_goes_on_alone_after_a_message_without_an_outcome(client: Client, error: TussockError) -> None:
    """A call repeats, follows the leader and has its deadline."""

    def fail(_: pb.CommitEachRequest) -> pb.CommitEachResponse:
        raise error

    client.leader.on_each = fail
    client.begin(*map(small, (1, 2, 3)))
    assert client.end() == {1: 1, 2: 2, 3: 3}
    assert sorted(client.leader.sent[2:]) == [("Commit", [2]), ("Commit", [3])]


@pytest.mark.parametrize(
    ("error", "kind"), [(MetaUnavailable("gone"), ObjectStoreUnavailable), (NotLeader("not I", ""), StaleUpload)]
)
def test_an_outcome_that_is_unknown_stays_unknown(client: Client, error: TussockError, kind: type) -> None:
    """Without a writer, and with SSTs that are too old to be known, nobody can tell whether it happened."""

    def fail(_: pb.CommitEachRequest) -> pb.CommitEachResponse:
        raise error

    client.leader.on_each = fail
    client.leader.refusals[2] = StaleUpload("too old")
    client.begin(small(1), small(2, writer=None), small(3))
    outcomes = client.end()
    assert type(outcomes[2]) is kind
    assert outcomes[3] == 3


def test_a_commit_that_is_held_back_waits_and_asks_again(client: Client) -> None:
    """It says how long it has waited; the others of its message do not wait for it."""
    waits = [1]

    def hold_back(message: pb.CommitEachRequest) -> pb.CommitEachResponse:
        held = bool(waits) and bool(waits.pop())
        return pb.CommitEachResponse(
            commits=[
                pb.CommitResponse(retry_after_ms=5, stall_reason="behind")
                if held and one.epoch == 2
                else pb.CommitResponse(epoch=one.epoch)
                for one in message.commits
            ]
        )

    client.leader.on_each = hold_back
    client.begin(*map(small, (1, 2, 3)))
    assert client.end() == {1: 1, 2: 2, 3: 3}
    assert client.leader.sent == [("Commit?", [1]), ("CommitEach?", [2, 3]), ("Commit?", [2])]
