"""Credentials of the bucket in files: read again when they change, in the service and in all its clients."""

import json
from pathlib import Path
from typing import cast

import pytest
from cryptography.hazmat.primitives.asymmetric import rsa
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat
from minio.credentials import StaticProvider
from minio.minioadmin import MinioAdmin

from support.buckets.minio import MinioServer
from support.service.meta_process import CompactorProcess, MetaProcess
from support.store.versions import FakeSystem
from tussock.meta.client.buckets import credentials_of
from tussock.meta.client.connection import MetaConnection
from tussock.meta.rpc import meta_pb2 as pb
from tussock.meta.rpc.methods import Role
from tussock.meta.server.bucket_credentials import RENEW_MS, credential_source
from tussock.meta.server.settings.form import load_settings
from tussock.statestore import connect
from tussock.statestore.base.system import RealSystem
from tussock.statestore.buckets import open_bucket
from tussock.statestore.buckets.credentials import (
    FOLDER_VARIABLE,
    BucketCredentials,
    for_library,
    setting_files,
    settings_in,
)
from tussock.statestore.errors import InvalidOption, MetaUnavailable, ObjectStoreUnavailable

NAMES = ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY")


class SecretFolder:
    """A folder like a secret mounted by Kubernetes: files behind one link, which is turned to change them all."""

    def __init__(self, path: Path, key: str, secret: str) -> None:
        self.path = path
        self._versions = 0
        path.mkdir()
        self.turn(key, secret)
        for name in NAMES:
            (path / name).symlink_to(Path("..data", name))

    def turn(self, key: str, secret: str) -> None:
        self._versions += 1
        fresh = self.path / f"..{self._versions}"
        fresh.mkdir()
        for name, text in zip(NAMES, (key, secret), strict=True):
            (fresh / name).write_text(text + "\n")
        link = self.path / "..data.new"
        link.symlink_to(fresh.name)
        link.rename(self.path / "..data")


class Users:
    """Users of a MinIO, each with a password and the right to read and write everything."""

    def __init__(self, minio: MinioServer) -> None:
        address = minio.endpoint.removeprefix("http://")
        rights = StaticProvider(minio.user, minio.password)
        self._admin = MinioAdmin(endpoint=address, credentials=rights, secure=False)

    def add(self, name: str) -> tuple[str, str]:
        password = f"password-of-{name}"
        self._admin.user_add(name, password)
        self._admin.policy_set("readwrite", user=name)
        return name, password

    def remove(self, name: str) -> None:
        self._admin.user_remove(name)


def without_keys(minio: MinioServer, folder: SecretFolder) -> dict[str, str]:
    """The environment of a process without keys."""
    found = {name: value for name, value in minio.environment.items() if "KEY" not in name}
    return {**found, FOLDER_VARIABLE: str(folder.path)}


def test_settings_are_read_through_one_link(tmp_path: Path) -> None:
    """An id and its key are of one pair, whatever the links of single files point to at that moment."""
    folder = SecretFolder(tmp_path / "secret", "key-1", "secret-1")
    assert settings_in(str(folder.path)) == dict(zip(NAMES, ("key-1", "secret-1"), strict=True))
    (folder.path / NAMES[0]).unlink()
    (folder.path / NAMES[0]).write_text("torn")
    folder.turn("key-2", "secret-2")
    assert settings_in(str(folder.path)) == dict(zip(NAMES, ("key-2", "secret-2"), strict=True))


def test_folder_without_files_is_refused(tmp_path: Path) -> None:
    """The start fails, and names the folder and the files that belong there."""
    (tmp_path / ".hidden").write_text("x")
    with pytest.raises(InvalidOption, match="no file; put the bucket's credentials there"):
        setting_files(str(tmp_path))
    with pytest.raises(InvalidOption, match="cannot be read: No such file"):
        setting_files(str(tmp_path / "absent"))


def test_wrong_settings_are_reported_without_their_values(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """For every provider, since each fails in another way."""
    monkeypatch.setenv(FOLDER_VARIABLE, str(tmp_path))
    (tmp_path / "AZURE_STORAGE_ACCOUNT_KEY").write_text("s3cret!")
    monkeypatch.setenv("AZURE_STORAGE_ACCOUNT_NAME", "account")
    with pytest.raises(InvalidOption, match="cannot set up az://container") as raised:
        open_bucket("az://container/x")
    assert "s3cret" not in str(raised.value)
    (tmp_path / "AZURE_STORAGE_ACCOUNT_KEY").write_text("czNjcmV0\n")
    assert open_bucket("az://container/x").url == "az://container/x"


@pytest.mark.parametrize("value", ["", "maybe"])
def test_a_setting_that_cannot_be_read_is_named(value: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """The library names only the value."""
    monkeypatch.setenv("AWS_ALLOW_HTTP", value)
    with pytest.raises(InvalidOption, match=rf'"{value}" as boolean \(of .*AWS_ALLOW_HTTP.*\); check'):
        open_bucket("s3://bucket/x")


def test_key_of_google_cloud_is_a_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The JSON as Google hands it out, with its line ends; other text is refused at the start."""
    key = rsa.generate_private_key(65537, 2048).private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())
    account = {"type": "service_account", "client_email": "a@b.example", "private_key_id": "1"}
    monkeypatch.setenv(FOLDER_VARIABLE, str(tmp_path))
    (tmp_path / "GOOGLE_SERVICE_ACCOUNT_KEY").write_text(
        json.dumps({**account, "private_key": key.decode()}, indent=2) + "\n"
    )
    assert open_bucket("gs://warehouse/x").url == "gs://warehouse/x"
    (tmp_path / "GOOGLE_SERVICE_ACCOUNT_KEY").write_text('{"private_key": "s3cret"')
    with pytest.raises(InvalidOption, match="cannot set up gs://warehouse/x") as raised:
        open_bucket("gs://warehouse/x")
    assert "s3cret" not in str(raised.value)


def test_the_library_gets_the_time_of_the_next_renewal() -> None:
    """At the time for renewal, or 5 minutes before the expiry, whichever is first; never for lasting ones."""
    system = FakeSystem()
    at = system.now_ms()

    def asked_after(expires_ms: int, renew_ms: int) -> float | None:
        told = for_library(lambda: BucketCredentials("a", "b", "", expires_ms, renew_ms), system)()["expires_at"]
        return told and round(told.timestamp() * 1000) - at

    assert asked_after(0, 0) is None
    assert asked_after(0, 20_000) == 20_000
    assert asked_after(at + 3_600_000, 0) == 3_300_000
    assert asked_after(at + 3_600_000, 20_000) == 20_000
    assert asked_after(at + 301_000, 20_000) == 1_000


def test_service_hands_out_the_credentials_in_its_files(tmp_path: Path) -> None:
    """Also after they changed; clients are told when to ask again."""
    folder = SecretFolder(tmp_path / "secret", "key-1", "secret-1")
    system = FakeSystem()
    settings = load_settings({"store": "s3://b/x", "credentials.mode": "static"}, {})
    ask = credential_source(settings, {FOLDER_VARIABLE: str(folder.path)}, system)
    assert ask is not None
    first = ask(Role.WRITER, ())
    assert (first.access_key_id, first.secret_access_key, first.renew_ms) == ("key-1", "secret-1", RENEW_MS)
    folder.turn("key-2", "secret-2")
    system.forward(2)
    assert ask(Role.WRITER, ()).secret_access_key == "secret-2"


def test_pair_of_the_environment_is_not_renewed() -> None:
    """It cannot change while the service runs."""
    settings = load_settings({"store": "s3://b/x", "credentials.mode": "static"}, {})
    ask = credential_source(settings, dict(zip(NAMES, ("key", "secret"), strict=True)), FakeSystem())
    assert ask is not None
    assert ask(Role.WRITER, ()).renew_ms == 0


@pytest.mark.minio
def test_new_pair_asks_the_sts_anew(minio: MinioServer, tmp_path: Path) -> None:
    """Credentials that the STS gave to a replaced pair are not handed out any more, however long they are valid."""
    users = Users(minio)
    folder = SecretFolder(tmp_path / "secret", *users.add("sts-1"))
    system = FakeSystem()
    system.wall_ms = RealSystem().now_ms()
    settings = load_settings({"store": minio.fresh_url(), "credentials.mode": "assume-role"}, {})
    ask = credential_source(settings, without_keys(minio, folder), system)
    assert ask is not None
    first = ask(Role.WRITER, ())
    assert ask(Role.WRITER, ()) == first
    folder.turn(*users.add("sts-2"))
    system.forward(2)
    second = ask(Role.WRITER, ())
    assert second.access_key_id != first.access_key_id
    assert second.renew_ms == RENEW_MS


class SilentService:
    """Stands in for a connection: it answers once, then never again."""

    session_id = "s"

    def __init__(self, expires_ms: int) -> None:
        self._answers = [pb.GetCredentialsResponse(access_key_id="a", expires_ms=expires_ms, renew_ms=1)]
        self.timeouts: list[float | None] = []

    def call(self, name: str, request: object, *, timeout: float | None) -> pb.GetCredentialsResponse:
        self.timeouts.append(timeout)
        if not self._answers:
            raise MetaUnavailable("nobody answered")
        return self._answers.pop()


def test_clients_with_credentials_survive_an_outage_of_the_service() -> None:
    """The former ones serve while they are valid; with expiring ones the client waits for the whole deadline."""
    system = FakeSystem()
    lasting, ending = SilentService(0), SilentService(system.now_ms() + 30_000)
    ask = credentials_of(cast(MetaConnection, lasting), system)
    first = ask()
    assert ask() == first
    assert lasting.timeouts == [None, 3.0]
    ask = credentials_of(cast(MetaConnection, ending), system)
    ask()
    with pytest.raises(MetaUnavailable):
        ask()
    assert ending.timeouts == [None, None]


@pytest.mark.minio
def test_bucket_follows_its_files(minio: MinioServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """An open bucket continues with the new pair when the former one is revoked."""
    users = Users(minio)
    folder = SecretFolder(tmp_path / "secret", *users.add("bucket-1"))
    for name in NAMES:
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv(FOLDER_VARIABLE, str(folder.path))
    bucket = open_bucket(minio.fresh_url(), deadline_seconds=5)
    bucket.put("sst/1", b"x")
    folder.turn(*users.add("bucket-2"))
    RealSystem().sleep(1.2)
    bucket.put("sst/2", b"y")
    users.remove("bucket-1")
    bucket.put("sst/3", b"z")
    assert [found.path for found in bucket.list("")] == ["sst/1", "sst/2", "sst/3"]
    users.remove("bucket-2")
    with pytest.raises(ObjectStoreUnavailable, match="access was denied"):
        bucket.put("sst/4", b"")


@pytest.mark.long
@pytest.mark.minio
@pytest.mark.slow
def test_platform_follows_its_files(minio: MinioServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Service, client and compactor continue with a new pair; the former one is revoked after half a minute."""
    users = Users(minio)
    folder = SecretFolder(tmp_path / "secret", *users.add("platform-1"))
    for name in minio.environment:
        monkeypatch.delenv(name, raising=False)
    with MetaProcess(
        minio.fresh_url(), "--credentials.mode", "static", environment=without_keys(minio, folder)
    ) as process:
        process.wait_until_it_leads()
        with CompactorProcess(process, "one") as compactor, connect(process.url) as store:
            compactor.wait_until_connected()
            table = store.create_table("kv")

            def commit(batch: int) -> None:
                epoch = store.new_epoch()
                table.ingest_batch([(b"%d" % batch, b"x")], epoch)
                store.commit_epoch(epoch, writer="job", batch_id=batch)

            commit(1)
            commit(2)
            store.compact("kv")
            folder.turn(*users.add("platform-2"))
            # A second until files are looked at, and what the clients are told.
            RealSystem().sleep(RENEW_MS / 1000 + 3)
            users.remove("platform-1")
            commit(3)
            store.compact("kv")
            assert [table.get(b"%d" % batch) for batch in (1, 2, 3)] == [b"x"] * 3
