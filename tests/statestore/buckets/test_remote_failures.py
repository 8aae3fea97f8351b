"""Failed requests of a remote bucket: errors within the deadline that say what to do and hold no secret."""

import contextlib
import re
import socket
import threading
import time
import traceback
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from urllib.parse import parse_qs, urlsplit

import pytest

from support.buckets.minio import BUCKET, MinioServer, free_port
from tussock.statestore.buckets import open_bucket
from tussock.statestore.contract.object_store import ObjectStore
from tussock.statestore.errors import InvalidOption, ObjectNotFound, ObjectStoreUnavailable

OPERATIONS: dict[str, Callable[[ObjectStore], object]] = {
    "put": lambda bucket: bucket.put("log/1", b"x"),
    "create": lambda bucket: bucket.create("log/1", b"x"),
    "get": lambda bucket: bucket.get("log/1"),
    "get_range": lambda bucket: bucket.get_range("log/1", 0, 1),
    "list": lambda bucket: list(bucket.list("log/")),
    "delete": lambda bucket: bucket.delete(["log/1", "log/2"]),
}
SECRET = "hush-hush-secret"
SECONDS_MAX = 25.0
"""Less than the default deadline of a bucket, and enough on a busy machine."""


@pytest.fixture(params=OPERATIONS)
def operation(request: pytest.FixtureRequest) -> str:
    """Each operation of a bucket."""
    return request.param  # type: ignore[no-any-return]


@pytest.fixture
def s3(monkeypatch: pytest.MonkeyPatch) -> pytest.MonkeyPatch:
    """An environment for S3 with a secret in it and no endpoint yet."""
    for name in ("AWS_ENDPOINT_URL_S3", "AWS_ENDPOINT", "AWS_SESSION_TOKEN"):
        monkeypatch.delenv(name, raising=False)
    for name, value in (
        ("AWS_ACCESS_KEY_ID", "someone"),
        ("AWS_SECRET_ACCESS_KEY", SECRET),
        ("AWS_ALLOW_HTTP", "true"),
        ("AWS_REGION", "us-east-1"),
    ):
        monkeypatch.setenv(name, value)
    return monkeypatch


def failure(bucket: ObjectStore, operation: str) -> str:
    """The message of the failing operation, after a check that no log could show a secret."""
    started = time.monotonic()
    with pytest.raises(ObjectStoreUnavailable) as error:
        OPERATIONS[operation](bucket)
    assert time.monotonic() - started < SECONDS_MAX
    shown = "".join(traceback.format_exception(error.value)) + repr(error.value.__cause__)
    assert SECRET not in shown
    assert error.value.__cause__ is not None
    assert error.value.__context__ is None, "the library's own error would ride along uncleaned"
    message = str(error.value)
    assert message.startswith(f"{operation} "), message
    assert "log/" in message
    return message


def test_an_unreachable_endpoint_fails_within_the_deadline(s3: pytest.MonkeyPatch, operation: str) -> None:
    """No server listens: the bucket tries again, and names bucket, endpoint, attempts and seconds."""
    endpoint = f"http://127.0.0.1:{free_port()}"
    s3.setenv("AWS_ENDPOINT_URL", endpoint)
    for deadline in (1, 4, 16):
        message = failure(open_bucket("s3://bucket/a", deadline_seconds=deadline), operation)
        if " 1 attempt in " not in message:
            break  # else the machine is so busy that the first one took all the time
    assert f"in s3://bucket/a at {endpoint} failed after " in message
    assert re.search(r" [0-9]+ attempts in [0-9.]+ s", message)
    assert "check that the endpoint can be reached" in message


def test_an_endpoint_that_never_answers_fails_within_the_deadline(s3: pytest.MonkeyPatch, operation: str) -> None:
    """The server accepts connections and sends nothing."""
    with socket.socket() as silent:
        silent.bind(("127.0.0.1", 0))
        silent.listen(64)
        s3.setenv("AWS_ENDPOINT_URL", f"http://127.0.0.1:{silent.getsockname()[1]}")
        failure(open_bucket("s3://bucket", deadline_seconds=1), operation)


def test_an_endpoint_with_a_password_is_named_without_it(s3: pytest.MonkeyPatch) -> None:
    """The environment may hold a secret that a message may not."""
    s3.setenv("AWS_ENDPOINT_URL", f"http://user:{SECRET}@127.0.0.1:{free_port()}")
    message = failure(open_bucket("s3://bucket", deadline_seconds=0.3), "get")
    assert "http://***@127.0.0.1" in message


@pytest.mark.parametrize("endpoint", ["localhost:9000", "minio", "http://", "ftp://minio:9000", "http://a b:9000"])
def test_an_endpoint_that_is_no_url_is_refused_by_name(s3: pytest.MonkeyPatch, endpoint: str) -> None:
    """The library would end in a panic at its first request."""
    s3.setenv("AWS_ENDPOINT_URL", endpoint)
    with pytest.raises(InvalidOption, match=r"\(AWS_ENDPOINT_URL\) is no URL of a server"):
        open_bucket("s3://bucket/a")


@pytest.mark.parametrize("allows", [None, "false", "0"])
def test_plain_http_that_is_not_allowed_says_what_allows_it(s3: pytest.MonkeyPatch, allows: str | None) -> None:
    """The first mistake with a server on one's own machine."""
    s3.setenv("AWS_ENDPOINT_URL", "http://127.0.0.1:9000")
    s3.delenv("AWS_ALLOW_HTTP")
    if allows is not None:
        s3.setenv("AWS_ALLOW_HTTP", allows)
    with pytest.raises(InvalidOption, match="set AWS_ALLOW_HTTP=true"):
        open_bucket("s3://bucket/a")


@pytest.mark.minio
@pytest.mark.parametrize("wrong", ["AWS_SECRET_ACCESS_KEY", "AWS_ACCESS_KEY_ID"])
def test_wrong_credentials_fail_at_once(
    minio: MinioServer, monkeypatch: pytest.MonkeyPatch, operation: str, wrong: str
) -> None:
    """One attempt, though the deadline would allow many; the endpoint is named and the credentials are not."""
    monkeypatch.setenv(wrong, SECRET)
    message = failure(open_bucket(f"s3://{BUCKET}", deadline_seconds=60), operation)
    assert f"s3://{BUCKET} at {minio.endpoint} failed after 1 attempt in" in message
    assert "check the credentials in the environment" in message
    assert minio.password not in message


@pytest.mark.minio
def test_a_missing_bucket_fails_at_once(minio: MinioServer, operation: str) -> None:
    """The error is not that of a missing object, with which a reader would go on."""
    message = failure(open_bucket("s3://no-such-bucket/a", deadline_seconds=60), operation)
    assert f"s3://no-such-bucket/a at {minio.endpoint} failed after 1 attempt in" in message
    assert "the bucket does not exist; create it" in message


@pytest.mark.minio
def test_a_server_that_comes_back_is_used_again(minio: MinioServer) -> None:
    """While it is away each call fails; afterwards the same bucket object works, with its objects."""
    bucket = open_bucket(minio.fresh_url(), deadline_seconds=0.5)
    bucket.put("log/1", b"kept")
    minio.stop()
    try:
        for name in ("get", "create"):
            failure(bucket, name)
    finally:
        minio.start()
    patient = open_bucket(bucket.url, deadline_seconds=20)
    assert patient.get("log/1") == b"kept"
    assert bucket.get("log/1") == b"kept"
    assert not patient.create("log/1", b"other")


@contextmanager
def scripted_server(answers: list[tuple[str, int]]) -> Iterator[tuple[str, list[str]]]:
    """A server that gives these (method, status) answers in turn; yields its address and the methods it got."""
    seen: list[str] = []
    left = list(answers)

    class Handler(BaseHTTPRequestHandler):
        def answer(self) -> None:
            self.rfile.read(int(self.headers.get("Content-Length", 0)))
            seen.append(self.command)
            method, status = left.pop(0) if left else (self.command, 418)
            body = b"" if status < 300 else b"<Error><Code>Scripted</Code></Error>"
            self.send_response(status if method == self.command else 418)
            self.send_header("Content-Length", str(len(body)))
            self.send_header("ETag", '"1"')
            self.send_header("Last-Modified", "Sat, 01 Jan 2000 00:00:00 GMT")
            self.end_headers()
            if self.command != "HEAD":
                self.wfile.write(body)

        do_PUT = do_GET = do_HEAD = do_POST = answer  # noqa: N815 - the library's names

        def log_message(self, *_: object) -> None:
            """Keep the tests' output clean."""

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        thread = threading.Thread(target=server.serve_forever, args=(0.01,))
        thread.start()
        try:
            yield f"http://127.0.0.1:{server.server_port}", seen
        finally:
            server.shutdown()
            thread.join()


@pytest.mark.parametrize(
    ("answers", "created"),
    [
        ([("PUT", 200)], True),
        ([("PUT", 412), ("HEAD", 200)], False),
        ([("PUT", 503), ("PUT", 503), ("PUT", 200)], True),
        # The first request did its work and its answer was lost: the repetition meets its own object.
        ([("PUT", 500), ("PUT", 412), ("HEAD", 200)], False),
        # S3's 409: another request for that path was under way, and has come to nothing.
        ([("PUT", 409), ("HEAD", 404), ("PUT", 200)], True),
        ([("PUT", 409), ("HEAD", 404), ("PUT", 409), ("HEAD", 200)], False),
    ],
    ids=["won", "lost", "busy", "lost-answer", "conflict-then-won", "conflict-then-lost"],
)
def test_create_returns_whether_it_made_the_object(
    s3: pytest.MonkeyPatch, answers: list[tuple[str, int]], created: bool
) -> None:
    """`False` only if the object exists; a request that failed because of another one is repeated."""
    with scripted_server(answers) as (address, seen):
        s3.setenv("AWS_ENDPOINT_URL", address)
        assert open_bucket("s3://bucket", deadline_seconds=20).create("log/1", b"x") is created
    assert seen == [method for method, _ in answers]


def test_a_create_that_meets_only_conflicts_gives_up(s3: pytest.MonkeyPatch) -> None:
    """`True` and `False` would both be wrong."""
    with scripted_server([("PUT", 409), ("HEAD", 404)] * 20) as (address, seen):
        s3.setenv("AWS_ENDPOINT_URL", address)
        failure(open_bucket("s3://bucket", deadline_seconds=60), "create")
    assert seen == ["PUT", "HEAD"] * 5


def test_reads_are_repeated_until_the_server_answers(s3: pytest.MonkeyPatch) -> None:
    """Two answers of a busy server, then the real one, which is final."""
    with scripted_server([("GET", 503), ("GET", 500), ("GET", 404)]) as (address, seen):
        s3.setenv("AWS_ENDPOINT_URL", address)
        with pytest.raises(ObjectNotFound, match=f"no object log/1 in s3://bucket at {address}"):
            open_bucket("s3://bucket", deadline_seconds=20).get("log/1")
    assert seen == ["GET"] * 3


@contextmanager
def hanging_server(hangs: int) -> Iterator[tuple[str, list[str]]]:
    """A server that leaves its first requests without an answer; its address and the requests that it got."""
    seen: list[str] = []
    over = threading.Event()

    class Handler(BaseHTTPRequestHandler):
        def answer(self) -> None:
            self.rfile.read(int(self.headers.get("Content-Length") or 0))
            seen.append(self.command)
            if len(seen) <= hangs:
                over.wait()
                return
            self.send_response(200)
            for name, value in (("Content-Length", "1"), ("ETag", '"1"')):
                self.send_header(name, value)
            self.send_header("Last-Modified", "Sat, 01 Jan 2000 00:00:00 GMT")
            self.end_headers()
            self.wfile.write(b"x")

        do_PUT = do_GET = answer  # noqa: N815 - the library's names

        def log_message(self, *_: object) -> None:
            """Keep the tests' output clean."""

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        thread = threading.Thread(target=server.serve_forever, args=(0.01,))
        thread.start()
        try:
            yield f"http://127.0.0.1:{server.server_port}", seen
        finally:
            over.set()
            server.shutdown()
            thread.join()


REQUESTS: dict[str, Callable[[ObjectStore], object]] = {
    "GET": lambda bucket: bucket.get("log/1") == b"x",
    "PUT": lambda bucket: bucket.put("log/1", b"x") is None,
    "create": lambda bucket: bucket.create("log/1", b"x"),
}


@pytest.mark.parametrize("request_name", REQUESTS)
def test_a_request_that_hangs_is_asked_once_more_within_the_deadline(s3: pytest.MonkeyPatch, request_name: str) -> None:
    """What held the connection may have died without a word; a new one reaches another server."""
    for deadline in (2, 10, 40):
        with hanging_server(1) as (address, seen):
            s3.setenv("AWS_ENDPOINT_URL", address)
            started = time.monotonic()
            with contextlib.suppress(ObjectStoreUnavailable):  # a busy machine needs a longer deadline
                assert REQUESTS[request_name](open_bucket("s3://bucket", deadline_seconds=deadline))
                assert time.monotonic() - started < deadline
                break
    assert len(seen) == 2


def test_a_create_that_hangs_twice_is_given_up(s3: pytest.MonkeyPatch) -> None:
    """Within the deadline, and its error does not say that nothing was written."""
    with hanging_server(9) as (address, seen):
        s3.setenv("AWS_ENDPOINT_URL", address)
        with pytest.raises(ObjectStoreUnavailable, match="the call is safe to repeat") as raised:
            open_bucket("s3://bucket", deadline_seconds=2).create("log/1", b"x")
    assert (len(seen), raised.value.nothing_written) == (2, False)


@contextmanager
def breaking_server(breaks: int) -> Iterator[tuple[str, list[str]]]:
    """A server with three objects in pages of one, whose first answers end too early; its address and the requests."""
    seen: list[str] = []

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            asked = parse_qs(urlsplit(self.path).query)
            seen.append(asked.get("continuation-token", asked.get("start-after", [""]))[0])
            names = [name for name in ("log/1", "log/2", "log/3") if name > seen[-1]]
            found = "".join(
                f"<Contents><Key>{name}</Key><LastModified>2000-01-01T00:00:00Z</LastModified><Size>1</Size></Contents>"
                for name in names[:1]
            )
            more = f"<NextContinuationToken>{names[0]}</NextContinuationToken>" if names[1:] else ""
            cut = f"<IsTruncated>{str(bool(more)).lower()}</IsTruncated>"
            body = f"<ListBucketResult>{cut}{more}{found}</ListBucketResult>"
            self.send_response(200)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body.encode()[: 30 if len(seen) <= breaks else None])
            self.close_connection = True

        def log_message(self, *_: object) -> None:
            """Keep the tests' output clean."""

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        thread = threading.Thread(target=server.serve_forever, args=(0.01,))
        thread.start()
        try:
            yield f"http://127.0.0.1:{server.server_port}", seen
        finally:
            server.shutdown()
            thread.join()


@pytest.mark.parametrize("breaks", [0, 1, 3])
def test_a_listing_whose_answer_breaks_off_is_asked_for_again(s3: pytest.MonkeyPatch, breaks: int) -> None:
    """The library repeats no answer that has begun; nothing comes twice, and nothing is left out."""
    with breaking_server(breaks) as (address, seen):
        s3.setenv("AWS_ENDPOINT_URL", address)
        assert [one.path for one in open_bucket("s3://bucket").list("log/")] == ["log/1", "log/2", "log/3"]
    assert len(seen) == 3 + breaks


def test_a_listing_whose_answers_always_break_off_ends(s3: pytest.MonkeyPatch) -> None:
    with breaking_server(1000) as (address, seen):
        s3.setenv("AWS_ENDPOINT_URL", address)
        failure(open_bucket("s3://bucket"), "list")
    assert len(seen) == 4


def test_an_environment_that_the_library_refuses_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    """Azure without an account is refused at opening, not at the first request."""
    for name in ("AZURE_STORAGE_ACCOUNT_NAME", "AZURE_STORAGE_USE_EMULATOR"):
        monkeypatch.delenv(name, raising=False)
    with pytest.raises(InvalidOption, match=r"cannot set up az://container/a: .*check the environment"):
        open_bucket("az://container/a")
