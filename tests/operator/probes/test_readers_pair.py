"""The key pair for readers is tried against a real MinIO: what it may do too much is named, and nothing is left."""

import io
from collections.abc import Iterator
from itertools import count
from typing import Any

import pytest
from minio import Minio
from minio.credentials.providers import StaticProvider
from minio.minioadmin import MinioAdmin
from minio.versioningconfig import ENABLED, VersioningConfig

from support.buckets.minio import MinioServer
from tussock.operator.planning.words.conditions import Reason
from tussock.operator.probes.bucket import S3Target, check, check_readers
from tussock.operator.probes.marker import FOLDERS, Owner
from tussock.statestore.contract.object_store import OWNER_MARKER

pytestmark = pytest.mark.minio

OWNER = Owner("1", "data", "shop")
PREFIX = "teams/shop"
_numbers = count(1)
READ = ["s3:GetObject", "s3:ListBucket", "s3:GetBucketLocation"]


class Users:
    """A bucket, and users who may do different things in it."""

    def __init__(self, server: MinioServer, *, versions: bool) -> None:
        self._server = server
        host = server.endpoint.removeprefix("http://")
        self.client = Minio(host, access_key=server.user, secret_key=server.password, secure=False)
        self._admin = MinioAdmin(endpoint=host, credentials=StaticProvider(server.user, server.password), secure=False)
        self.bucket = f"readers-{next(_numbers)}"
        self.client.make_bucket(self.bucket)
        if versions:
            self.client.set_bucket_versioning(self.bucket, VersioningConfig(ENABLED))
        self.writers = S3Target(server.endpoint, self.bucket, PREFIX, "", server.user, server.password)
        self.client.put_object(self.bucket, f"{PREFIX}/log/1", io.BytesIO(b"x"), 1)

    def may(self, *actions: str, below: str = "") -> S3Target:
        """The place with the pair of a user who may read, and do this."""
        user, password = f"user-{next(_numbers)}", "a-password-for-it"
        allow: list[dict[str, Any]] = [{"Effect": "Allow", "Action": READ, "Resource": ["arn:aws:s3:::*"]}]
        if actions:
            where = [f"arn:aws:s3:::{self.bucket}/{below}*"]
            allow.append({"Effect": "Allow", "Action": list(actions), "Resource": where})
        self._admin.user_add(user, password)
        self._admin.policy_add(f"p-{user}", policy={"Version": "2012-10-17", "Statement": allow})
        self._admin.policy_set(f"p-{user}", user)
        return S3Target(self._server.endpoint, self.bucket, PREFIX, "", user, password)

    def all(self) -> list[tuple[str, bool]]:
        """All versions of all objects, with the marks of deleted ones."""
        found = self.client.list_objects(self.bucket, recursive=True, include_version=True)
        return [(str(one.object_name), bool(one.is_delete_marker)) for one in found]


@pytest.fixture(params=[False, True], ids=["plain", "versions"])
def users(request: pytest.FixtureRequest, minio: MinioServer) -> Iterator[Users]:
    found = Users(minio, versions=request.param)
    before = found.all()
    yield found
    assert found.all() == before


def test_a_pair_that_may_only_read_passes(users: Users, caplog: pytest.LogCaptureFixture) -> None:
    assert check_readers(users.may(), users.writers, "1").reason is None
    # The library warns of each connection beyond those that it keeps.
    assert "pool is full" not in caplog.text


TOO_MUCH = {
    "puts all": (("s3:PutObject",), "", "may write in s3://"),
    "puts SSTs": (("s3:PutObject",), f"{PREFIX}/sst/", "may write below sst/ in s3://"),
    "deletes all": (("s3:DeleteObject",), "", "may delete in s3://"),
    "deletes the log": (("s3:DeleteObject",), f"{PREFIX}/log/", "may delete below log/ in s3://"),
    "everything with the log": (("s3:*",), f"{PREFIX}/log/", "may write below log/ and delete below log/ in s3://"),
    "everything": (("s3:*",), "", "may write and delete in s3://"),
}


@pytest.mark.parametrize(("actions", "below", "words"), TOO_MUCH.values(), ids=TOO_MUCH)
def test_a_pair_that_may_do_more_is_refused(users: Users, actions: tuple[str, ...], below: str, words: str) -> None:
    """Story: only a write of the marker was tried, so a pair that may write SSTs or delete everything passed."""
    found = check_readers(users.may(*actions, below=below), users.writers, "1")
    assert found.reason is Reason.READERS_MAY_WRITE
    assert words in found.message


@pytest.mark.parametrize("folder", FOLDERS)
def test_each_folder_of_a_store_is_tried(users: Users, folder: str) -> None:
    pair = users.may("s3:PutObject", below=f"{PREFIX}/{folder}/")
    assert f"write below {folder}/ in" in check_readers(pair, users.writers, "1").message


def test_who_may_not_read_is_not_told_to_write(users: Users, minio: MinioServer) -> None:
    """Story: the advice was a policy to read, write and delete, with which the pair is refused in turn."""
    host = minio.endpoint.removeprefix("http://")
    admin = MinioAdmin(endpoint=host, credentials=StaticProvider(minio.user, minio.password), secure=False)
    admin.user_add("no-reader", "a-password-for-it")
    pair = S3Target(minio.endpoint, users.bucket, PREFIX, "us-east-1", "no-reader", "a-password-for-it")
    found = check_readers(pair, users.writers, "1")
    assert found.reason is Reason.BUCKET_ACCESS_DENIED
    assert "spec.objectStore.s3.readerCredentialsSecret" in found.message
    assert "to get objects below sst/ and log/ and to list, no more" in found.message
    assert "delete" not in found.message


def test_a_look_puts_no_marker(users: Users) -> None:
    """A store whose readers' pair is refused must not keep others out by a marker."""
    assert check(users.writers, OWNER, "", write=False, mark=False).reason is None
    assert OWNER_MARKER not in str(users.all())
