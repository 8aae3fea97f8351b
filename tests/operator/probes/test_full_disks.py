"""A real MinIO on a small disk says how full it is, refuses writes once it is full, and takes them again after that."""

import contextlib
import io
import json
import subprocess
import threading
import time
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path

import pytest
from minio import Minio
from minio.error import S3Error

from support.buckets.minio import BUCKET, MinioServer, free_port
from tussock.operator.planning.words.conditions import Reason
from tussock.operator.planning.words.facts import BucketFact
from tussock.operator.probes.bucket import S3Target, check
from tussock.operator.probes.disk import used_percent
from tussock.operator.probes.marker import Owner

MIB = 1 << 20
DISK_MIB = 32


@pytest.fixture
def small_server(minio: MinioServer, tmp_path: Path) -> Iterator[MinioServer]:
    """A MinIO whose disk is a file system of 32 MiB."""
    disk = tmp_path / "disk"
    disk.mkdir()
    command = ["mount", "-t", "tmpfs", "-o", f"size={DISK_MIB}m", "none", str(disk)]
    try:
        mounted = subprocess.run(command, check=False)
    except OSError:
        pytest.skip("no mount on this machine")
    if mounted.returncode:
        pytest.skip("this user may mount nothing")
    server = MinioServer(minio.binary, disk)
    try:
        server.start()
        yield server
    finally:
        server.stop()
        subprocess.run(["umount", str(disk)], check=True)


def target_of(server: MinioServer) -> S3Target:
    return S3Target(server.endpoint, BUCKET, "", "us-east-1", server.user, server.password)


def look(server: MinioServer) -> BucketFact:
    """As the operator does where a leader is missing."""
    return check(target_of(server), Owner("1", "data", "shop"), "", write=True)


def put_rows(client: Minio, name: str, size: int) -> bool:
    """Put an object; returns whether there was room. Of a disk that is full in the middle MinIO says less plainly."""
    try:
        client.put_object(BUCKET, name, io.BytesIO(bytes(size)), size)
    except S3Error as error:
        if error.code not in ("XMinioStorageFull", "IncompleteBody"):
            raise
        return False
    return True


def tells(server: MinioServer, least: int, below: int) -> bool:
    """Whether the server soon says that this much is used; it looks at its disk once a second."""
    deadline = time.monotonic() + 20
    while not least <= (used_percent(target_of(server)) or 0) < below:
        if time.monotonic() > deadline:
            return False
        time.sleep(0.1)
    return True


def client_of(server: MinioServer) -> Minio:
    host = server.endpoint.removeprefix("http://")
    return Minio(host, access_key=server.user, secret_key=server.password, secure=False)


@pytest.mark.minio
def test_a_disk_is_told_as_it_fills_and_has_room_again(small_server: MinioServer) -> None:
    """Full is what MinIO calls full; then it still deletes, and takes writes again by itself."""
    client = client_of(small_server)
    assert tells(small_server, 1, 10)
    assert look(small_server) == BucketFact(None)
    assert put_rows(client, "rows", 28 * MIB)
    assert tells(small_server, 85, 95), "it is said before"
    assert look(small_server) == BucketFact(None)
    for size in (MIB, 1000):
        number = 0
        while put_rows(client, f"few-{size}-{number}", size):
            number += 1
    assert tells(small_server, 98, 101)
    fact = look(small_server)
    assert (fact.reason, fact.is_full) == (Reason.BUCKET_NOT_WRITABLE, True)
    assert "it is full" in fact.message
    client.remove_object(BUCKET, "rows")
    assert tells(small_server, 1, 80)
    assert look(small_server) == BucketFact(None)


@pytest.mark.minio
def test_a_disk_that_grows_is_less_full(small_server: MinioServer, tmp_path: Path) -> None:
    """While the server runs, as with a StorageClass that lets volumes grow."""
    assert put_rows(client_of(small_server), "rows", 28 * MIB)
    assert tells(small_server, 85, 95)
    subprocess.run(["mount", "-o", f"remount,size={4 * DISK_MIB}m", str(tmp_path / "disk")], check=True)
    assert tells(small_server, 20, 30)


@pytest.mark.minio
def test_another_password_learns_nothing(minio: MinioServer) -> None:
    """What is wrong with it, the probe of the bucket says."""
    assert used_percent(S3Target(minio.endpoint, BUCKET, "", "us-east-1", minio.user, "another")) is None


def drive(**numbers: int) -> bytes:
    return json.dumps({"servers": [{"drives": [numbers]}]}).encode()


@pytest.mark.parametrize(
    ("answer", "percent"),
    [
        (drive(totalspace=1000, usedspace=871), 88),
        (drive(totalspace=1000, usedspace=100, used_inodes=90, free_inodes=10), 90),
        (drive(totalspace=1000, usedspace=1200), 100),
        (drive(), None),
        (json.dumps({"servers": []}).encode(), None),
        (b"<html>Welcome</html>", None),
        (b'["a list"]', None),
        (b'{"servers": [{"drives": [{"totalspace": "many"}]}]}', None),
        (b'{"servers": null}', None),
        (b"x" * (9 * MIB), None),
    ],
    ids=str,
)
def test_only_what_a_server_says_plainly_counts(answer: bytes, percent: int | None) -> None:
    """Bytes or files, whichever is more; strange and endless answers are none."""

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.send_response(200)
            self.end_headers()
            with contextlib.suppress(OSError):
                self.wfile.write(answer)

        def log_message(self, *_: object) -> None:
            """Say nothing."""

    with HTTPServer(("127.0.0.1", 0), Handler) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        target = S3Target(f"http://127.0.0.1:{server.server_address[1]}", "b", "", "us-east-1", "user", "password")
        assert used_percent(target) == percent
        server.shutdown()


def test_a_server_that_is_away_is_no_error() -> None:
    assert used_percent(S3Target(f"http://127.0.0.1:{free_port()}", "b", "", "us-east-1", "user", "password")) is None
