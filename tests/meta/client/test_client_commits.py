"""The client of a meta service, when answers are lost, late or ask it to wait."""

import logging

import pytest

from support.store.versions import FakeSystem, request
from tussock.meta.client.backend import PlatformBackend
from tussock.meta.client.connection import Attempts
from tussock.meta.rpc import meta_pb2 as pb
from tussock.statestore.errors import MetaUnavailable, ObjectStoreUnavailable, StaleUpload, WriteStalled
from tussock.statestore.settings import StoreSettings


class Leader:
    """A connection whose leader answers commits as the test says; `LOST` is an attempt without an answer."""

    LOST = "lost"

    def __init__(self, system: FakeSystem, *answers: object) -> None:
        self.session_id = "0" * 32
        self.opened = pb.OpenSessionResponse()
        self.sent: list[pb.CommitRequest] = []
        self._system = system
        self._answers = list(answers)

    def call(self, name: str, message: pb.CommitRequest, *, attempts: Attempts | None = None, **_: object) -> object:
        if name != "Commit":
            raise MetaUnavailable(f"{name} is not answered here")
        sent = pb.CommitRequest()
        sent.CopyFrom(message)
        self.sent.append(sent)
        answer = self._answers.pop(0)
        while answer == self.LOST:
            assert attempts is not None
            attempts.unknown = True
            answer = self._answers.pop(0)
        if isinstance(answer, Exception):
            raise answer
        return answer


def client(*answers: object, deadline: float = 30.0) -> tuple[PlatformBackend, Leader, FakeSystem]:
    system = FakeSystem()
    leader = Leader(system, *answers)
    return PlatformBackend(leader, system, StoreSettings("tussock://a:1", deadline=deadline)), leader, system  # type: ignore[arg-type]


STALE = StaleUpload("SST is below the garbage horizon")
DONE = pb.CommitResponse(epoch=7)


def test_a_commit_without_writer_is_not_retried_when_its_outcome_is_unknown() -> None:
    """An attempt got no answer, and its SSTs are too old to be recognised: the error calls the outcome unknown."""
    backend, _, _ = client(Leader.LOST, STALE)
    with pytest.raises(ObjectStoreUnavailable, match="too old to tell whether it happened"):
        backend.commit(request(7))


def test_a_commit_of_unknown_outcome_in_an_earlier_call_is_not_retried() -> None:
    """The user repeats a commit that was unavailable: the client remembers its SSTs."""
    backend, _, _ = client(Leader.LOST, MetaUnavailable("no answer"), STALE)
    repeated = request(7)
    with pytest.raises(MetaUnavailable):
        backend.commit(repeated)
    with pytest.raises(ObjectStoreUnavailable, match="too old to tell"):
        backend.commit(repeated)


def test_a_named_batch_is_uploaded_again() -> None:
    """Writer and batch decide the outcome, so a new upload is safe."""
    backend, _, _ = client(Leader.LOST, STALE)
    with pytest.raises(StaleUpload):
        backend.commit(request(7, writer="w", batch_id=1))


def test_rows_that_were_surely_not_committed_are_uploaded_again() -> None:
    """Every attempt got an answer: nothing was committed."""
    backend, _, _ = client(STALE)
    with pytest.raises(StaleUpload):
        backend.commit(request(7))


def held_back(ms: int) -> pb.CommitResponse:
    return pb.CommitResponse(retry_after_ms=ms, stall_reason="table 'kv' has 70 uncompacted runs")


def test_a_commit_that_is_held_back_waits_and_logs_it_once(caplog: pytest.LogCaptureFixture) -> None:
    """Two log lines, one where the stall begins and one where it ends, for any number of commits in between."""
    backend, leader, system = client(held_back(300), DONE, held_back(400), held_back(100), DONE, DONE)
    before = system.monotonic()
    with caplog.at_level(logging.INFO, logger="tussock.meta.client"):
        for _ in range(3):
            assert backend.commit(request(7)) == 7
    assert system.monotonic() - before == pytest.approx(0.8)
    assert [sent.waited_ms for sent in leader.sent] == [0, 300, 0, 400, 500, 0]
    lines = [record.getMessage() for record in caplog.records if "held back" in record.getMessage()]
    assert len(lines) == 2
    assert "70 uncompacted runs" in lines[0]
    assert "no longer" in lines[1]


def test_a_stall_that_outlasts_the_deadline_is_named() -> None:
    """The error names the table that is behind, and says that the same call can be repeated."""
    backend, _, system = client(*[held_back(500)] * 10, deadline=2.0)
    before = system.monotonic()
    with pytest.raises(WriteStalled, match="70 uncompacted runs; nothing was committed"):
        backend.commit(request(7))
    assert system.monotonic() - before == pytest.approx(2.0)
