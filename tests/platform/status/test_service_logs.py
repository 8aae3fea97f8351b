"""The log of a real service: JSON throughout, one line a call, and the request's id wherever its work goes."""

import io
import json
import logging
from collections.abc import Iterator
from pathlib import Path

import grpc
import pytest
import structlog

from support.service.meta_process import MetaProcess
from support.service.platforms import Platform
from tussock.meta.rpc import meta_pb2 as pb
from tussock.meta.rpc.methods import METHODS
from tussock.statestore import connect
from tussock.statestore.base.logs import get_logger
from tussock.statestore.base.service_logs import start_logging
from tussock.statestore.errors import TableExists, TussockError

PROTOCOL = ("tussock-protocol", "1")


@pytest.fixture
def _root_logger() -> Iterator[None]:
    """Restore what `start_logging` replaces."""
    root = logging.getLogger()
    handlers, level = root.handlers[:], root.level
    yield
    root.handlers[:] = handlers
    root.setLevel(level)


def lines_of(stream: io.StringIO) -> list[dict[str, object]]:
    return [json.loads(line) for line in stream.getvalue().splitlines()]


@pytest.mark.usefixtures("_root_logger")
def test_event_keeps_its_types_and_stays_one_line() -> None:
    """Numbers stay numbers, text may hold anything, and a line stays a line."""
    stream = io.StringIO()
    start_logging("info", "json", stream)
    get_logger("tussock.meta").info("100 % of\n{it}", rows=3, text='a "b"\nc', level="mine", path=Path("x"), none=None)
    (line,) = lines_of(stream)
    assert line.pop("time").endswith("Z")
    expected = {"level": "info", "logger": "tussock.meta", "event": "100 % of\n{it}", "rows": 3}
    assert line == {**expected, "text": 'a "b"\nc', "level_": "mine", "path": "x"}


@pytest.mark.usefixtures("_root_logger")
def test_lines_of_other_libraries_are_json_too() -> None:
    """Their arguments are formatted, their traces kept; lines below a warning are left out."""
    stream = io.StringIO()
    start_logging("debug", "json", stream)
    logging.getLogger("somebody").warning("%d of %s", 3, "x")
    logging.getLogger("asyncio").debug("selector")
    try:
        raise ValueError("odd")
    except ValueError:
        get_logger("tussock.meta").exception("failed", at=1)
    first, second = lines_of(stream)
    assert (first["event"], first["logger"]) == ("3 of x", "somebody")
    assert (second["event"], second["at"]) == ("failed", 1)
    assert "ValueError: odd" in str(second["exception"])


@pytest.mark.usefixtures("_root_logger")
def test_text_is_for_people() -> None:
    """The same event for a terminal."""
    stream = io.StringIO()
    start_logging("warning", "text", stream)
    get_logger("tussock.meta").info("quiet")
    get_logger("tussock.meta").warning("sessions lapsed", count=2)
    assert stream.getvalue().rstrip().endswith('warning tussock.meta event="sessions lapsed" count=2')
    assert stream.getvalue().count("\n") == 1


@pytest.mark.usefixtures("_root_logger")
def test_lines_of_the_core_have_the_bound_values() -> None:
    """A line of the core has the request's id, though the core knows nothing of requests."""
    stream = io.StringIO()
    start_logging("info", "json", stream)
    with structlog.contextvars.bound_contextvars(request_id="r1"):
        get_logger("tussock.statestore").info("inside")
    get_logger("tussock.statestore").info("outside")
    inside, outside = lines_of(stream)
    assert (inside["request_id"], outside.get("request_id")) == ("r1", None)


@pytest.fixture(scope="module")
def process(tmp_path_factory: pytest.TempPathFactory) -> Iterator[MetaProcess]:
    folder = tmp_path_factory.mktemp("logs")
    with MetaProcess((folder / "store").as_uri(), "--log.level", "debug") as process:
        yield process.wait_until_it_leads()
        process.terminate()
        assert process.wait() == 0
        assert [line for line in process.raw if not line.startswith("{")] == [], "not JSON"


def ask(process: MetaProcess, method: str, request: bytes = b"", **metadata: str) -> tuple[grpc.StatusCode, str]:
    """The status of a bare call, and the request's id that comes back."""
    sent = [PROTOCOL, *((key.replace("_", "-"), value) for key, value in metadata.items())]
    with grpc.insecure_channel(process.address) as channel:
        _, call = None, channel.unary_unary(METHODS[method].path).future(request, metadata=sent, timeout=60)
        code, trailing = call.code(), dict(call.trailing_metadata())
    return code, trailing["tussock-request-id"]


def test_request_id_is_in_every_line_of_its_call(process: MetaProcess) -> None:
    """The caller's id comes back, and is in the line of the call and in those of the core."""
    request = pb.OpenSessionRequest(session_id="c" * 32, kind=pb.CLIENT, name="me").SerializeToString()
    code, told = ask(process, "OpenSession", request, tussock_request_id="job-7:12")
    assert (code, told) == (grpc.StatusCode.OK, "job-7:12")
    end = process.wait_for(request_id="job-7:12", event="call")
    assert (end["method"], end["code"], end["level"], end["caller"]) == ("OpenSession", "OK", "debug", "anonymous")
    assert 0 <= end["ms"] < 20_000
    inner = process.wait_for(request_id="job-7:12", event="session opened")
    assert (inner["method"], inner["caller"]) == ("OpenSession", "anonymous")


@pytest.mark.parametrize("odd", ["", "a b", "x" * 65, '"};drop', "a=b"])
def test_malformed_request_id_is_replaced(process: MetaProcess, odd: str) -> None:
    """An id that could forge lines or fill the log is replaced; each call has one."""
    first, second = (ask(process, "GetStatus", tussock_request_id=odd)[1] for _ in range(2))
    assert len(first) == 16
    assert first != second
    assert process.wait_for(request_id=first)["method"] == "GetStatus"


def test_subscription_ends_with_its_subscriber(process: MetaProcess) -> None:
    """A client that goes away leaves no call open: the end of its stream is logged, once."""
    request = pb.OpenSessionRequest(session_id="e" * 32, kind=pb.CLIENT).SerializeToString()
    assert ask(process, "OpenSession", request)[0] == grpc.StatusCode.OK
    with grpc.insecure_channel(process.address) as channel:
        sent = [PROTOCOL, ("tussock-request-id", "stream-1")]
        subscribed = pb.SubscribeRequest(session_id="e" * 32).SerializeToString()
        events = channel.unary_stream(METHODS["Subscribe"].path)(subscribed, metadata=sent, timeout=60)
        next(events)
        events.cancel()
        line = process.wait_for(event="call", request_id="stream-1")
    assert (line["method"], line["code"], line["level"]) == ("Subscribe", "CANCELLED", "debug")


def test_mistake_of_a_caller_is_logged_once(process: MetaProcess) -> None:
    """One line, at `info`: no operator needs to be woken."""
    with connect(process.url) as store:
        store.create_table("twice")
        with pytest.raises(TableExists):
            store.create_table("twice")
    line = process.wait_for(method="CreateTable", code="ALREADY_EXISTS")
    assert line["level"] == "info"
    assert line["error"].startswith("TableExists: table 'twice'")
    assert len([one for one in process.lines if one.get("request_id") == line["request_id"]]) == 1


def test_broken_request_is_no_failure_of_the_service(process: MetaProcess) -> None:
    """Bytes that are no message end the call, and nothing else."""
    with grpc.insecure_channel(process.address) as channel, pytest.raises(grpc.RpcError) as raised:
        channel.unary_unary(METHODS["Commit"].path)(b"\xff\xff\xff", metadata=[PROTOCOL], timeout=60)
    assert raised.value.code() == grpc.StatusCode.INVALID_ARGUMENT
    assert "3 bytes that are no tussock.meta.v1.CommitRequest" in raised.value.details()
    assert ask(process, "GetStatus")[0] == grpc.StatusCode.OK


@pytest.mark.parametrize("metadata", [[], [("tussock-protocol", "2")], [("tussock-protocol", "x" * 99)]])
def test_other_protocol_is_refused(process: MetaProcess, metadata: list[tuple[str, str]]) -> None:
    """A client of another version could misunderstand everything that follows."""
    with grpc.insecure_channel(process.address) as channel, pytest.raises(grpc.RpcError) as raised:
        channel.unary_unary(METHODS["GetStatus"].path)(b"", metadata=metadata, timeout=60)
    assert raised.value.code() == grpc.StatusCode.UNIMPLEMENTED
    assert "upgrade the older" in raised.value.details()


def test_unforeseen_error_is_logged_and_hidden_from_the_caller(caplog: pytest.LogCaptureFixture) -> None:
    """The caller gets the request's id, which leads to the trace; the client does not repeat the call."""
    with Platform("memory://") as platform:
        store = platform.connect()

        def broken(_: object, __: object) -> object:
            raise ZeroDivisionError("with details of the inside")

        platform.leader.node.leadership.handlers["DropTable"] = broken
        with pytest.raises(TussockError, match="INTERNAL: the service failed; its log tells how") as raised:
            store.drop_table("kv")
    assert "inside" not in str(raised.value)
    (record,) = [record for record in caplog.records if record.exc_info]
    assert record.exc_info[0] is ZeroDivisionError
    assert record.tussock["request_id"] in str(raised.value)
