"""Whether a bucket of S3's protocol is there, may be used by this store, and is this store's alone.

Everything that can be wrong has a reason of its own, since each asks for something else of the user. Whose a prefix is
says its marker (`marker.py`).
"""

import io
import re
from collections.abc import Iterator
from dataclasses import dataclass
from xml.etree.ElementTree import ParseError

import urllib3
from minio import Minio
from minio.credentials.providers import StaticProvider
from minio.deleteobjects import DeleteObject
from minio.error import InvalidResponseError, S3Error, ServerError

from tussock.operator.planning.conditions import Reason
from tussock.operator.planning.deletion import EmptiedFact
from tussock.operator.planning.facts import BucketFact
from tussock.operator.probes.bounded_http import BoundedPool
from tussock.operator.probes.marker import CLEAN_SECONDS, FOLDERS, MARKER, Owner, in_use, marker_of, owner_in
from tussock.statestore.system import System

__all__ = ["S3Target", "check", "clean"]

CONNECT_SECONDS = 3.0
ANSWER_SECONDS = 6.0
CALL_SECONDS = 15.0
"""All of a check or a cleaning: below what the probes' cache gives one (`cache.PROBE_SECONDS`)."""

_ADDRESS = re.compile(r"<[^<>]* at 0x[0-9a-f]+>:? ?")
_DENIED = {
    "AccessDenied": "the credentials may not use it; give them a policy for the bucket, to read, write and delete",
    "AllAccessDisabled": "all access to it is disabled",
    "InvalidAccessKeyId": "its server does not know the access key id; correct it in the secret",
    "SignatureDoesNotMatch": "the secret access key is wrong; correct it in the secret",
    "ExpiredToken": "the credentials have expired; renew the secret",
}
_FULL = {"XMinioStorageFull", "QuotaExceeded", "XMinioAdminBucketQuotaExceeded", "SlowDownWrite"}


@dataclass(frozen=True)
class S3Target:
    """A bucket and how to reach it. Its text has no secret."""

    endpoint: str
    """`http://host:port` or `https://host`."""
    bucket: str
    prefix: str
    """Without slashes around; empty for the whole bucket."""
    region: str = ""
    access_key: str = ""
    secret_key: str = ""
    create: bool = False
    """Make the bucket if it is not there: the operator's own server."""

    def __repr__(self) -> str:
        return f"s3://{self.bucket}/{self.prefix} at {self.endpoint}"

    def path(self, name: str) -> str:
        """The key of an object below the prefix."""
        return f"{self.prefix}/{name}" if self.prefix else name


# `ParseError`: an answer that is no XML, of a server that is none of S3.
_UNREACHABLE = (urllib3.exceptions.HTTPError, ServerError, InvalidResponseError, ParseError, OSError, ValueError)


def check(target: S3Target, owner: Owner, *, write: bool) -> BucketFact:
    """Look whether `owner` may use the bucket. Blocks for seconds; raises nothing that a bucket may cause.

    `write`: try that too, even if the marker is there.
    """
    pool = _pool()
    try:
        with pool:
            found = _check(_client(target, pool), target, owner, write=write)
            pool.check()
            return found
    except S3Error as error:
        return _refused(target, error)
    except _UNREACHABLE as error:
        return BucketFact(
            Reason.BUCKET_UNREACHABLE,
            f"{target!r} does not answer: {_words(error, pool)}. Correct spec.objectStore, or see to it that its "
            "server runs and can be reached from the cluster.",
        )


def _check(client: Minio, target: S3Target, owner: Owner, *, write: bool) -> BucketFact:
    if target.create and not client.bucket_exists(target.bucket):
        client.make_bucket(target.bucket)
    found = _marker(client, target)
    if found is not None and found.uid != owner.uid:
        return in_use(repr(target), target.path(MARKER), found)
    if found is None or write:
        body = marker_of(owner)
        try:
            client.put_object(target.bucket, target.path(MARKER), io.BytesIO(body), len(body), "application/json")
        except S3Error as error:
            why = (
                "it is full" if error.code in _FULL else _DENIED.get(error.code or "", f"{error.code}: {error.message}")
            )
            return BucketFact(
                Reason.BUCKET_NOT_WRITABLE,
                f"{target!r} can be read and not written: {why}.",
            )
    return BucketFact(None)


def clean(target: S3Target, owner: Owner, system: System, *, delete: bool) -> EmptiedFact:
    """Give the prefix back: remove the owner's marker, and before it (`delete`) the store.

    Goes on for `CLEAN_SECONDS` at most. A prefix of another owner is left alone, and so is what is no store's: a
    second store may have its prefix below this one's.
    """
    pool = _pool()
    try:
        with pool:
            cleaned = _clean(_client(target, pool), target, owner, system, delete=delete)
            pool.check()
            return cleaned
    except S3Error as error:
        if error.code == "NoSuchBucket":
            return EmptiedFact(done=True)
        return EmptiedFact(done=False, message=_refused(target, error).message, stuck=True)
    except _UNREACHABLE as error:
        return EmptiedFact(done=False, message=f"{target!r} does not answer: {_words(error, pool)}.", stuck=True)


def _clean(client: Minio, target: S3Target, owner: Owner, system: System, *, delete: bool) -> EmptiedFact:
    found = _marker(client, target)
    if found is None and not delete:
        return EmptiedFact(done=True)
    if found is not None and found.uid != owner.uid:
        return EmptiedFact(done=True)
    if delete:
        deleted, more, problem = _delete_all(client, target, system)
        if problem or more:
            told = problem or f"{deleted} objects were removed just now, and more are left"
            return EmptiedFact(done=False, message=f"{target!r}: {told}.", stuck=bool(problem))
    client.remove_object(target.bucket, target.path(MARKER))
    return EmptiedFact(done=True)


def _delete_all(client: Minio, target: S3Target, system: System) -> tuple[int, bool, str]:
    """Remove the objects of the store: how many, whether more are left, what went wrong."""
    until = system.monotonic() + CLEAN_SECONDS
    names = _names(client, target)
    deleted = 0
    while system.monotonic() < until:
        batch = [name for name, _ in zip(names, range(1000), strict=False)]
        if not batch:
            return deleted, False, ""
        for failed in client.remove_objects(target.bucket, [DeleteObject(name) for name in batch]):
            return deleted, True, f"{failed.name} cannot be removed: {failed.code}"
        deleted += len(batch)
    return deleted, True, ""


def _names(client: Minio, target: S3Target) -> Iterator[str]:
    for folder in FOLDERS:
        for found in client.list_objects(target.bucket, prefix=target.path(f"{folder}/"), recursive=True):
            if found.object_name:
                yield found.object_name


def _pool() -> BoundedPool:
    # One short attempt: the operator repeats, and a user wants to hear soon what is wrong.
    return BoundedPool(CONNECT_SECONDS, ANSWER_SECONDS, CALL_SECONDS)


def _client(target: S3Target, pool: BoundedPool) -> Minio:
    scheme, _, host = target.endpoint.rpartition("://")
    return Minio(
        host.rstrip("/"),
        credentials=StaticProvider(target.access_key, target.secret_key) if target.access_key else None,
        secure=scheme != "http",
        region=target.region or None,
        http_client=pool,
    )


def _marker(client: Minio, target: S3Target) -> Owner | None:
    try:
        response = client.get_object(target.bucket, target.path(MARKER))
    except S3Error as error:
        if error.code == "NoSuchKey":
            return None
        raise
    try:
        return owner_in(response.read(4096))
    finally:
        response.close()
        response.release_conn()


def _refused(target: S3Target, error: S3Error) -> BucketFact:
    if error.code == "NoSuchBucket":
        told = f"There is no bucket {target.bucket} at {target.endpoint}. Create it, or correct spec.objectStore."
        return BucketFact(Reason.BUCKET_NOT_FOUND, told)
    if error.code in _DENIED:
        return BucketFact(Reason.BUCKET_ACCESS_DENIED, f"{target!r} refuses access: {_DENIED[error.code]}.")
    return BucketFact(Reason.BUCKET_UNREACHABLE, f"{target!r} answers with {error.code}: {error.message}.")


def _words(error: BaseException, pool: BoundedPool) -> str:
    """What is wrong, without the addresses of objects in memory that texts of the library hold: new ones each time."""
    if pool.is_over:
        return f"it had not answered after {CALL_SECONDS:g} s"
    # Of some errors the text is that of a tuple, of which the last part speaks.
    said = str(error.args[-1]) if len(error.args) > 1 and isinstance(error.args[-1], str) else str(error)
    return _ADDRESS.sub("", said).strip().rstrip(".") or type(error).__name__
