"""Readers and credentials of the bucket: a pair for readers, their own keys or identity, or an error at once."""

import contextlib
import json
import os
import secrets
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread

import pytest
from minio.credentials.providers import StaticProvider
from minio.minioadmin import MinioAdmin

from support.buckets.minio import MinioServer
from support.service.meta_process import MetaProcess
from support.waiting import WAIT_SECONDS
from tussock.meta.node.auth.tokens import create_token
from tussock.meta.rpc import meta_pb2 as pb
from tussock.meta.rpc.methods import Role
from tussock.meta.server.bucket_credentials import credential_source
from tussock.meta.server.settings.form import load_settings
from tussock.statestore import connect
from tussock.statestore.base.system import RealSystem
from tussock.statestore.buckets import open_bucket
from tussock.statestore.buckets.credentials import FOLDER_VARIABLE, BucketCredentials, has_own_credentials
from tussock.statestore.buckets.urls import parse_bucket_url
from tussock.statestore.errors import AccessDenied, ObjectStoreUnavailable

SYSTEM = RealSystem()
KEYS = ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY")


@contextlib.contextmanager
def identity_server(handed: pb.GetCredentialsResponse) -> Iterator[str]:
    """A cloud's metadata service for instances and containers: an address that hands out credentials of a role."""
    document = {
        "AccessKeyId": handed.access_key_id,
        "SecretAccessKey": handed.secret_access_key,
        "Token": handed.session_token,
        "Expiration": (datetime.now(UTC) + timedelta(hours=1)).strftime("%Y-%m-%dT%H:%M:%SZ"),
        "Code": "Success",
        "Type": "AWS-HMAC",
        "LastUpdated": "2026-01-01T00:00:00Z",
    }

    class Handler(BaseHTTPRequestHandler):
        def _tell(self) -> None:
            listing = self.path.endswith("/security-credentials/")
            body = b"a-token" if self.command == "PUT" else b"role" if listing else json.dumps(document).encode()
            self.send_response(200)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        do_GET = do_PUT = _tell  # noqa: N815 - the names that the library calls

        def log_message(self, *_: object) -> None:
            """Keep the tests' output clean."""

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        Thread(target=server.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{server.server_address[1]}"
        server.shutdown()


def of_an_identity(url: str, minio: MinioServer) -> pb.GetCredentialsResponse:
    """Credentials for reading, of the server's STS; on a busy machine they take longer than a service would wait."""
    settings = load_settings({"store": url, "credentials.mode": "assume-role"}, {})
    ask = credential_source(settings, minio.environment, SYSTEM)
    assert ask is not None
    deadline = SYSTEM.monotonic() + WAIT_SECONDS
    while True:
        try:
            return ask(Role.READER, ())
        except ObjectStoreUnavailable:
            if SYSTEM.monotonic() > deadline:
                raise


def set_environment(patch: pytest.MonkeyPatch, minio: MinioServer) -> None:
    """Set the bucket's server in the environment, and no credentials."""
    for name in [name for name in os.environ if name.startswith("AWS_") or name == FOLDER_VARIABLE]:
        patch.delenv(name)
    for name, value in minio.environment.items():
        if name not in KEYS:
            patch.setenv(name, value)


@pytest.mark.minio
@pytest.mark.parametrize("mode", ["static", "none"])
def test_reader_may_bring_keys_or_an_identity(
    minio: MinioServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, mode: str
) -> None:
    """Keys in a folder, the role of an instance, that of a container: each suffices if none are handed out."""
    url = minio.fresh_url()
    lines, tokens = [], {}
    for role in ("writer", "reader"):
        tokens[role], line = create_token(role, role, SYSTEM)
        lines.append(line)
    (tmp_path / "tokens").write_text("\n".join(lines))
    keys = tmp_path / "keys"
    keys.mkdir()
    for name in KEYS:
        (keys / name).write_text(minio.environment[name])
    (tmp_path / "pod").write_text("identity-of-the-pod")
    arguments = ("--tokens.file", str(tmp_path / "tokens"), "--credentials.mode", mode)
    set_environment(monkeypatch, minio)
    with (
        MetaProcess(url, *arguments, environment=minio.environment) as process,
        identity_server(of_an_identity(url, minio)) as address,
    ):
        process.wait_until_it_leads()
        with monkeypatch.context() as writing:
            for name in KEYS:
                writing.setenv(name, minio.environment[name])
            with connect(process.url, token=tokens["writer"]) as store:
                epoch = store.new_epoch()
                store.create_table("kv").ingest_batch([(b"a", b"1")], epoch)
                store.commit_epoch(epoch, writer="job", batch_id=1)
        for own in (
            {FOLDER_VARIABLE: str(keys)},
            {"AWS_METADATA_ENDPOINT": address},
            {
                "AWS_CONTAINER_CREDENTIALS_FULL_URI": f"{address}/container",
                "AWS_CONTAINER_AUTHORIZATION_TOKEN_FILE": str(tmp_path / "pod"),
            },
        ):
            with monkeypatch.context() as bringing:
                for name, value in own.items():
                    bringing.setenv(name, value)
                with connect(process.url, token=tokens["reader"]) as store:
                    assert store.table("kv").get(b"a") == b"1"


@pytest.mark.minio
def test_a_reader_without_keys_is_refused_at_once(
    minio: MinioServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It connects and lists tables; the first read of the bucket names what is missing, and asks no cloud for it."""
    url = minio.fresh_url()
    token, line = create_token("dashboard", "reader", SYSTEM)
    (tmp_path / "tokens").write_text(line)
    with monkeypatch.context() as writing:
        for name, value in minio.environment.items():
            writing.setenv(name, value)
        with connect(url) as store:
            epoch = store.new_epoch()
            store.create_table("kv").ingest_batch([(b"a", b"1")], epoch)
            store.commit_epoch(epoch)
    arguments = ("--tokens.file", str(tmp_path / "tokens"), "--credentials.mode", "static")
    set_environment(monkeypatch, minio)
    with MetaProcess(url, *arguments, environment=minio.environment) as process:
        process.wait_until_it_leads()
        with connect(process.url, token=token) as store:
            table = store.table("kv")
            for read in (lambda: table.get(b"a"), lambda: list(table.scan())):
                started = SYSTEM.monotonic()
                with pytest.raises(AccessDenied) as raised:
                    read()
                assert SYSTEM.monotonic() - started < 2
                for told in (url, *KEYS, FOLDER_VARIABLE, "credentials.reader_access_key_id"):
                    assert told in str(raised.value)
                assert raised.value.args[1] == url


def make_reader(minio: MinioServer, url: str, folder: Path) -> None:
    """Make a user with just the rights that docs/security.md says readers need, and write the key pair to files."""
    where = parse_bucket_url(url)
    user, password = f"reader-{where.prefix}", secrets.token_hex(16)
    host = minio.endpoint.removeprefix("http://")
    admin = MinioAdmin(endpoint=host, credentials=StaticProvider(minio.user, minio.password), secure=False)
    bucket = f"arn:aws:s3:::{where.bucket}"
    objects = [f"{bucket}/{where.prefix}/{folder}/*" for folder in ("sst", "log")]
    statements = [
        {"Effect": "Allow", "Action": ["s3:GetObject"], "Resource": objects},
        {"Effect": "Allow", "Action": ["s3:ListBucket"], "Resource": [bucket]},
    ]
    admin.user_add(user, password)
    admin.policy_add(user, policy={"Version": "2012-10-17", "Statement": statements})
    admin.policy_set(user, user)
    folder.mkdir()
    for name, value in zip(KEYS, (user, password), strict=True):
        (folder / name).write_text(value)


@pytest.mark.minio
def test_reader_is_handed_the_pair_of_readers(
    minio: MinioServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It reads small SSTs, which lie in the log, and large ones; the pair cannot write."""
    url, folder = minio.fresh_url(), tmp_path / "readers"
    make_reader(minio, url, folder)
    lines, tokens = [], {}
    for role in ("writer", "reader"):
        tokens[role], line = create_token(role, role, SYSTEM)
        lines.append(line)
    (tmp_path / "tokens").write_text("\n".join(lines))
    arguments = ("--tokens.file", str(tmp_path / "tokens"), "--credentials.mode", "static")
    arguments += ("--credentials.reader_folder", str(folder))
    set_environment(monkeypatch, minio)
    large = secrets.token_bytes(200_000)
    with MetaProcess(url, *arguments, environment=minio.environment) as process:
        process.wait_until_it_leads()
        with connect(process.url, token=tokens["writer"]) as store:
            table = store.create_table("kv")
            for batch, row in enumerate([(b"a", b"1"), (b"b", large)]):
                epoch = store.new_epoch()
                table.ingest_batch([row], epoch)
                store.commit_epoch(epoch, writer="job", batch_id=batch)
        with connect(process.url, token=tokens["reader"]) as store:
            assert store.table("kv").get(b"a") == b"1"
            assert store.table("kv").get(b"b") == large
        for text in process.raw:
            assert (folder / KEYS[1]).read_text() not in text
    handed = BucketCredentials(*((folder / name).read_text() for name in KEYS))
    bucket = open_bucket(url, credentials=lambda: handed, deadline_seconds=5)
    for attempt in (lambda: bucket.put("sst/x.data", b"x"), lambda: bucket.delete(["sst/x.data"])):
        with pytest.raises(ObjectStoreUnavailable, match="access was denied"):
            attempt()


@pytest.mark.parametrize(
    ("environ", "has"),
    [
        ({}, False),
        ({"AWS_REGION": "eu-west-1", "AWS_ENDPOINT_URL": "http://minio:9000"}, False),
        ({"AWS_ACCESS_KEY_ID": ""}, False),
        ({"AWS_ACCESS_KEY_ID": "AKIA"}, True),
        ({"AWS_WEB_IDENTITY_TOKEN_FILE": "/var/run/token"}, False),
        ({"AWS_WEB_IDENTITY_TOKEN_FILE": "/var/run/token", "AWS_ROLE_ARN": "arn:aws:iam::1:role/dashboard"}, True),
        ({"AWS_CONTAINER_CREDENTIALS_RELATIVE_URI": "/v2/credentials"}, True),
        ({"AWS_CONTAINER_CREDENTIALS_FULL_URI": "http://169.254.170.23/v1/credentials"}, False),
        ({"AWS_SKIP_SIGNATURE": "true"}, True),
    ],
)
def test_credentials_in_the_environment_are_recognised(environ: dict[str, str], has: bool) -> None:
    """A key or an identity, also of a pod; the place of the bucket is no credential."""
    assert has_own_credentials(environ) is has


def test_credentials_in_a_folder_are_recognised(tmp_path: Path) -> None:
    """The files decide: a folder that has only the place of the bucket has none."""
    (tmp_path / "AWS_REGION").write_text("eu-west-1")
    environ = {FOLDER_VARIABLE: str(tmp_path)}
    assert not has_own_credentials(environ)
    (tmp_path / "AWS_ACCESS_KEY_ID").write_text("AKIA\n")
    assert has_own_credentials(environ)
