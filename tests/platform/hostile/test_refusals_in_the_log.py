"""What refused calls leave: a bounded number of lines in the log, with the session of each, and nothing in memory."""

import gc
from collections.abc import Iterator
from pathlib import Path

import pytest

from support.service.guarded_meta import Caller, GuardedMeta
from support.service.platforms import Platform
from support.waiting import eventually
from tussock.meta.rpc import meta_pb2 as pb
from tussock.meta.server.wire.gate import ERROR_BYTES_MAX, LINES_BURST
from tussock.statestore.errors import InvalidOption, TableNotFound, Unauthenticated


@pytest.fixture(scope="module")
def meta(tmp_path_factory: pytest.TempPathFactory) -> Iterator[GuardedMeta]:
    with GuardedMeta(tmp_path_factory.mktemp("log")) as service:
        yield service


def test_log_lines_distinguish_the_sessions_of_one_identity(meta: GuardedMeta) -> None:
    """Jobs of a store share a certificate, and have a session each; its whole id, which is a secret, is not logged."""
    writer = meta.caller("writer")
    for digit in "12":
        session = digit * 32
        writer.call("OpenSession", pb.OpenSessionRequest(session_id=session, kind=pb.CLIENT, name=f"job {digit}"))
        with pytest.raises(InvalidOption):
            writer.call("Pin", pb.PinRequest(session_id=session, token="x"))
        line = meta.process.wait_for(event="call", method="Pin", session=digit * 8)
        assert line["caller"] == "the-writer"
    assert not [line for line in meta.process.raw if "1" * 32 in line or "2" * 32 in line]


def test_refused_calls_do_not_fill_the_log(meta: GuardedMeta) -> None:
    """The first ones of a caller are logged, each cut to a readable length."""
    writer = meta.caller("writer")
    for _ in range(3 * LINES_BURST):
        with pytest.raises(TableNotFound):
            writer.call("DropTable", pb.DropTableRequest(name="x" * 50_000))
    meta.caller("admin").call("PauseCompaction", pb.PauseCompactionRequest(paused=True, reason="the end"))
    meta.process.wait_for(event="compaction paused")
    told = [line for line in meta.process.lines if line.get("method") == "DropTable"]
    assert LINES_BURST / 2 < len(told) < 2 * LINES_BURST
    assert max(len(str(line["error"])) for line in told) <= ERROR_BYTES_MAX


def test_calls_with_a_revoked_token_are_logged_with_its_name(tmp_path: Path) -> None:
    """An admin wants to know which job still has it; a token that never was in the file is nobody's."""
    file = tmp_path / "tokens"
    with GuardedMeta(tmp_path) as service:
        reader, stranger = service.caller("reader"), Caller(service.process.address, "tussock_wrong")
        reader.call("GetStatus", pb.GetStatusRequest())
        file.write_text("".join(line for line in file.read_text().splitlines(True) if "the-reader" not in line))

        def is_refused(caller: Caller) -> bool:
            try:
                caller.call("GetStatus", pb.GetStatusRequest())
            except Unauthenticated:
                return True
            return False

        eventually(lambda: is_refused(reader))
        assert service.process.wait_for(code="UNAUTHENTICATED")["caller"] == "the-reader (revoked)"
        assert is_refused(stranger)
        service.process.wait_for(code="UNAUTHENTICATED", caller="anonymous")
        stranger.close()
        assert not [line for line in service.process.raw if service.tokens["reader"] in line]


def test_refused_calls_leave_no_circles_of_objects(tmp_path: Path) -> None:
    """Only a full collection would end these, and a service that collects those of a flood answers nobody meanwhile."""
    with Platform((tmp_path / "store").as_uri()) as platform:
        caller = Caller(platform.leader.address, None)

        def refuse(calls: int) -> None:
            for _ in range(calls):
                with pytest.raises(TableNotFound):
                    caller.call("DropTable", pb.DropTableRequest(name="nothing"))

        def aborted() -> int:
            return sum(type(one).__name__ == "AbortError" for one in gc.get_objects())

        refuse(1)
        gc.collect()
        # What tests before this one left in this process may still be held.
        before = aborted()
        gc.disable()
        try:
            refuse(40)
            eventually(lambda: aborted() <= before + 2)
        finally:
            gc.enable()
            caller.close()
