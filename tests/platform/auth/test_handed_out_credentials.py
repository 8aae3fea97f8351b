"""Credentials of the bucket that the service hands out: to which role, for how long, and where they never show."""

import dataclasses
import logging
from collections.abc import Callable
from pathlib import Path

import pyarrow as pa
import pytest

from support.buckets.minio import BUCKET, MinioServer
from support.service.meta_process import MetaProcess
from support.store.versions import FakeSystem
from support.waiting import WAIT_SECONDS
from tussock.meta.node.auth.tokens import create_token
from tussock.meta.rpc import meta_pb2 as pb
from tussock.meta.rpc.methods import Role
from tussock.meta.server.bucket_credentials import HandedOut, credential_source
from tussock.meta.server.settings.form import load_settings
from tussock.statestore import connect
from tussock.statestore.base.system import RealSystem
from tussock.statestore.buckets import open_bucket
from tussock.statestore.buckets.credentials import BucketCredentials
from tussock.statestore.errors import AccessDenied, InvalidOption, ObjectNotFound, ObjectStoreUnavailable

PERSONAL = ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_ENDPOINT_URL", "AWS_ALLOW_HTTP", "AWS_REGION")


def source(minio: MinioServer, store: str, system: RealSystem, **flags: str) -> HandedOut:
    given = {f"credentials.{name}": value for name, value in flags.items()}
    found = credential_source(load_settings({"store": store, **given}, {}), minio.environment, system)
    assert found is not None
    return found


def bucket_with(minio: MinioServer, store: str, answer: pb.GetCredentialsResponse):
    """The bucket, opened with these credentials."""
    handed = BucketCredentials(answer.access_key_id, answer.secret_access_key, answer.session_token, answer.expires_ms)
    options = {name: value for name, value in minio.environment.items() if "KEY" not in name}
    return open_bucket(store, options=options, credentials=lambda: handed, deadline_seconds=5)


@pytest.mark.minio
def test_handed_out_credentials_may_touch_only_ssts(minio: MinioServer) -> None:
    """Readers may read SSTs, also in log entries, and writers and compactors may add some; all else is refused.

    But writers have the input logs of applications.
    """
    url = minio.fresh_url()
    own = open_bucket(url)
    own.put("sst/a.data", b"a")
    own.put("log/00000000000000000001.delta", b"log")
    own.put("snapshot/00000000000000000001", b"version")
    own.put("applications/a/input/00000000000000000099", b"asked")
    open_bucket(f"s3://{BUCKET}/other").put("sst/a.data", b"b")
    ask = source(minio, url, FakeSystem(), mode="assume-role")
    for role in (Role.READER, Role.WRITER, Role.COMPACTOR, Role.ADMIN):
        handed = ask(role, ())
        assert handed.session_token
        bucket = bucket_with(minio, url, handed)
        assert bucket.get("sst/a.data") == b"a"
        assert bucket.get("log/00000000000000000001.delta") == b"log"
        with pytest.raises(ObjectNotFound):
            bucket.get("sst/b.data")
        denied: list[Callable[[], object]] = [
            lambda bucket=bucket: bucket.create("log/00000000000000000002.delta", b"x"),
            lambda bucket=bucket: bucket.put("pins/x", b"x"),
            lambda bucket=bucket: bucket.put("log/00000000000000000001.delta", b"x"),
            lambda bucket=bucket: bucket.get("snapshot/00000000000000000001"),
            lambda bucket=bucket: bucket.get("log/boundary/00000000000000000001"),
            lambda bucket=bucket: bucket.delete(["sst/a.data"]),
            lambda bucket=bucket: bucket.delete(["log/00000000000000000001.delta"]),
            lambda handed=handed: bucket_with(minio, f"s3://{BUCKET}/other", handed).get("sst/a.data"),
        ]
        record = f"applications/a/input/{role.value:020d}"
        if role in (Role.WRITER, Role.ADMIN):
            assert bucket.create(record, b"r")
            assert bucket.get(record) == b"r"
            bucket.delete([record])
            with pytest.raises(ObjectNotFound):
                own.get(record)
        else:
            denied.append(lambda bucket=bucket, record=record: bucket.create(record, b"r"))
            denied.append(lambda bucket=bucket: bucket.get("applications/a/input/00000000000000000099"))
        if role == Role.READER:
            denied.append(lambda bucket=bucket: bucket.put("sst/c.data", b"c"))
        else:
            bucket.put("sst/c.data", b"c" * (20 << 20))  # in parts
        for attempt in denied:
            with pytest.raises(ObjectStoreUnavailable, match="access was denied"):
                attempt()
    assert own.get("sst/a.data") == b"a"
    cloned = bucket_with(minio, f"s3://{BUCKET}/other", ask(Role.WRITER, [f"s3://{BUCKET}/other"]))
    assert cloned.get("sst/a.data") == b"b"
    with pytest.raises(ObjectStoreUnavailable, match="access was denied"):
        cloned.put("sst/c.data", b"c")


@pytest.mark.minio
def test_credentials_are_renewed_in_time(minio: MinioServer) -> None:
    """Callers with the same rights get the same ones for half of their time; then new ones, long before the expiry."""
    system = FakeSystem()
    system.wall_ms = RealSystem().now_ms()
    ask = source(minio, minio.fresh_url(), system, mode="assume-role", duration_seconds="7200")
    first = ask(Role.WRITER, ())
    assert 7_100_000 < first.expires_ms - system.now_ms() < 7_300_000
    assert ask(Role.ADMIN, ()) == first
    assert ask(Role.COMPACTOR, ()) != first
    assert ask(Role.READER, ()) != first
    system.forward(3500)
    assert ask(Role.WRITER, ()) == first
    system.forward(200)
    second = ask(Role.WRITER, ())
    assert second.access_key_id != first.access_key_id
    assert second.expires_ms >= first.expires_ms


@pytest.mark.minio
def test_refusal_of_the_sts_is_logged_without_a_secret(minio: MinioServer) -> None:
    """With a wrong key, or without an STS, the service's log has the address and no secret."""
    for flags in ({"access_key_id": "nobody"}, {"sts_endpoint": "http://127.0.0.1:1"}):
        wrong = {"credentials.mode": "assume-role", **{f"credentials.{name}": text for name, text in flags.items()}}
        settings = load_settings(
            {"store": minio.fresh_url(), **wrong}, {"TUSSOCK_META_CREDENTIALS__SECRET_ACCESS_KEY": "s3cret-s3cret"}
        )
        ask = credential_source(settings, minio.environment, FakeSystem())
        assert ask is not None
        with pytest.raises(ObjectStoreUnavailable, match="gave no credentials") as raised:
            ask(Role.READER, ())
        assert "s3cret" not in f"{raised.value} {raised.value.__cause__} {raised.value.__context__}"


def test_mode_without_a_key_is_refused() -> None:
    """The start fails, not the first client's request."""
    settings = load_settings({"store": "s3://b/x", "credentials.mode": "static"}, {})
    with pytest.raises(InvalidOption, match="there is no key"):
        credential_source(settings, {}, FakeSystem())
    assert credential_source(load_settings({"store": "s3://b/x"}, {}), {}, FakeSystem()) is None


def test_static_readers_get_no_keys_that_write() -> None:
    """The service's keys may empty the bucket, so readers get a separate pair, or none."""
    keys = {"AWS_ACCESS_KEY_ID": "own", "AWS_SECRET_ACCESS_KEY": "own-secret"}
    given = {"store": "s3://b/x", "credentials.mode": "static"}
    ask = credential_source(load_settings(given, {}), keys, FakeSystem())
    assert ask is not None
    for role in (Role.WRITER, Role.COMPACTOR, Role.ADMIN, Role.READER | Role.WRITER):
        assert ask(role, ()).access_key_id == "own"
    with pytest.raises(AccessDenied, match=r"set credentials\.reader_access_key_id"):
        ask(Role.READER, ())
    secret = {"TUSSOCK_META_CREDENTIALS__READER_SECRET_ACCESS_KEY": "readers-secret"}
    settings = load_settings({**given, "credentials.reader_access_key_id": "readers"}, secret)
    ask = credential_source(settings, keys, FakeSystem())
    assert ask is not None
    assert (ask(Role.READER, ()).access_key_id, ask(Role.READER, ()).secret_access_key) == ("readers", "readers-secret")
    assert ask(Role.WRITER, ()).secret_access_key == "own-secret"
    with pytest.raises(InvalidOption, match="belong together"):
        load_settings({**given, "credentials.reader_access_key_id": "readers"}, {})
    with pytest.raises(InvalidOption, match="only the mode `static`"):
        load_settings({**given, "credentials.mode": "none", "credentials.reader_access_key_id": "readers"}, secret)


def test_readers_pair_is_read_from_files_again(tmp_path: Path) -> None:
    """A rotation needs no restart: the present files are handed out, and clients ask again soon."""
    keys = {"AWS_ACCESS_KEY_ID": "own", "AWS_SECRET_ACCESS_KEY": "own-secret"}
    given = {"store": "s3://b/x", "credentials.mode": "static", "credentials.reader_folder": str(tmp_path)}
    settings, system = load_settings(given, {}), FakeSystem()
    with pytest.raises(InvalidOption, match=f"{tmp_path}.* has no file"):
        credential_source(settings, keys, system)
    (tmp_path / "AWS_ACCESS_KEY_ID").write_text("readers\n")
    with pytest.raises(InvalidOption, match=r"credentials\.reader_folder: .* has no AWS_SECRET_ACCESS_KEY"):
        credential_source(settings, keys, system)
    (tmp_path / "AWS_SECRET_ACCESS_KEY").write_text("readers-secret\n")
    ask = credential_source(settings, keys, system)
    assert ask is not None
    handed = ask(Role.READER, ())
    assert (handed.access_key_id, handed.secret_access_key, handed.renew_ms) == ("readers", "readers-secret", 20_000)
    assert ask(Role.WRITER, ()).access_key_id == "own"
    (tmp_path / "AWS_ACCESS_KEY_ID").write_text("others")
    (tmp_path / "AWS_SECRET_ACCESS_KEY").write_text("others-secret")
    system.forward(2)
    assert ask(Role.READER, ()).secret_access_key == "others-secret"


@pytest.mark.parametrize(
    ("other", "told"),
    [
        ({"credentials.reader_access_key_id": "readers"}, "which holds"),
        ({"credentials.mode": "assume-role"}, "only the mode `static`"),
        ({"credentials.mode": "none"}, "only the mode `static`"),
    ],
)
def test_readers_pair_is_set_in_one_place(other: dict[str, str], told: str) -> None:
    """Either files or settings, and only in a mode that hands them out."""
    secret = {"TUSSOCK_META_CREDENTIALS__READER_SECRET_ACCESS_KEY": "s"} if told == "which holds" else {}
    given = {"store": "s3://b/x", "credentials.mode": "static", "credentials.reader_folder": "/etc/readers"}
    with pytest.raises(InvalidOption, match=told):
        load_settings({**given, **other}, secret)


def test_credentials_are_not_in_their_representation() -> None:
    """They are not in the representation, which ends up in logs and traces."""
    one = BucketCredentials("AKIA", "s3cret", "t0ken", 5)
    assert repr(one) == "BucketCredentials('AKIA', expires_ms=5)"
    assert dataclasses.astuple(one) == ("AKIA", "s3cret", "t0ken", 5, 0)


@pytest.mark.minio
@pytest.mark.parametrize("mode", ["static", "assume-role"])
def test_client_needs_no_own_credentials(
    minio: MinioServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, mode: str
) -> None:
    """It knows the service's address and its own token; endpoint, region and keys come from there, and stay secret."""
    url = minio.fresh_url()
    tokens, lines = {}, []
    for role in ("writer", "reader"):
        tokens[role], line = create_token(role, role, RealSystem())
        lines.append(line)
    (tmp_path / "tokens").write_text("\n".join(lines))
    arguments = ("--tokens.file", str(tmp_path / "tokens"), "--credentials.mode", mode, "--log.level", "debug")
    caplog.set_level(logging.DEBUG)
    with MetaProcess(url, *arguments, environment=minio.environment) as process:
        process.wait_until_it_leads()
        with monkeypatch.context() as bare:
            for name in PERSONAL:
                bare.delenv(name, raising=False)
            with connect(process.url, token=tokens["writer"]) as store:
                kv = store.create_table("kv")
                epoch = store.new_epoch()
                kv.ingest_batch([(b"a", b"1")], epoch)
                store.commit_epoch(epoch, writer="job", batch_id=1)
            with connect(process.url, token=tokens["reader"]) as store:
                if mode == "static":
                    # Readers have a separate pair, or none: the service's may empty the bucket.
                    with pytest.raises(AccessDenied, match="no keys of the bucket"):
                        store.table("kv").get(b"a")
            if mode == "static":
                for name, value in minio.environment.items():
                    bare.setenv(name, value)
            with connect(process.url, token=tokens["reader"]) as store:
                assert store.table("kv").get(b"a") == b"1"
                if mode == "assume-role":
                    # Refused as each call is that needs another role, though it is the bucket that is written to.
                    with pytest.raises(AccessDenied, match=r"role reader .* needs the role writer or admin"):
                        store.table("kv").upload([pa.record_batch({"key": [b"b"], "value": [b"2"]})])
        process.terminate()
        assert process.wait() == 0
    for text in (*process.raw, caplog.text):
        assert minio.password not in text


@pytest.mark.minio
def test_client_renews_credentials_before_they_expire(minio: MinioServer) -> None:
    """Expiring credentials are renewed; lasting ones are not, however much is done."""
    left = {"seconds": 3600}
    asked = []

    def hand_out() -> BucketCredentials:
        asked.append(left["seconds"])
        expires = RealSystem().now_ms() + left["seconds"] * 1000
        return BucketCredentials(minio.user, minio.password, "", expires)

    options = {name: value for name, value in minio.environment.items() if "KEY" not in name}
    lasting = open_bucket(minio.fresh_url(), options=options, credentials=hand_out)
    for number in range(5):
        lasting.put(f"sst/{number}", b"x")
    assert len(asked) == 1
    left["seconds"] = 200
    system = RealSystem()
    ending = open_bucket(minio.fresh_url(), options=options, credentials=hand_out)
    deadline = system.monotonic() + WAIT_SECONDS
    while len(asked) < 4 and system.monotonic() < deadline:
        ending.put("sst/a", b"x")
    assert asked[1:4] == [200, 200, 200]
