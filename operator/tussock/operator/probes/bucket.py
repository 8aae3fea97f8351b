"""Checks that a bucket of S3's protocol exists, that this store may use it, and that no other store does.

Every problem has its own reason, since each asks something else of the user. The marker says to whom a prefix belongs
(`marker.py`).
"""

import base64
import contextlib
import re
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from xml.etree.ElementTree import ParseError

import urllib3
from minio import Minio
from minio.credentials.providers import StaticProvider
from minio.deleteobjects import DeleteObject
from minio.error import InvalidResponseError, S3Error, ServerError

from tussock.operator.planning.deletion import EmptiedFact
from tussock.operator.planning.words.conditions import Reason
from tussock.operator.planning.words.facts import BucketFact
from tussock.operator.probes.bounded_http import CONNECTIONS_MAX, BoundedPool
from tussock.operator.probes.marker import FOLDERS, Marker, Owner, marker_in, marker_of
from tussock.operator.probes.neighbours import marked_folders, path_in
from tussock.operator.probes.prefixes import NotRemoved, NotWritable, give_back, take
from tussock.operator.probes.redaction import without_values
from tussock.statestore.base.system import System
from tussock.statestore.contract.object_store import OWNER_MARKER

__all__ = ["S3Target", "check", "check_readers", "clean"]

CONNECT_SECONDS = 3.0
ANSWER_SECONDS = 6.0
CALL_SECONDS = 15.0

_OBJECT = re.compile(r"<[^<>]* at 0x[0-9a-f]+>:? ?|\b\w+\(host=[^()]*\):? ?")
"""A connection in the library's texts: an address in memory, or a call of Python."""
_DENIED = {
    "AccessDenied": "the credentials may not use it; give them a policy for the bucket, to read, write and delete",
    "AllAccessDisabled": "all access to it is disabled",
    "InvalidAccessKeyId": "its server does not know the access key id; correct it in the secret",
    "SignatureDoesNotMatch": "the secret access key is wrong; correct it in the secret",
    "ExpiredToken": "the credentials have expired; renew the secret",
}
_READERS = "spec.objectStore.s3.readerCredentialsSecret"
_READERS_DENIED = {
    "AccessDenied": "it may not read there; give it a policy to get objects below sst/ and log/ and to list, no more",
}
"""Other words than `_DENIED` has, for a pair that must not write."""
_WRONG_MD5 = base64.b64encode(bytes(16)).decode()
"""No object has it, so a server refuses a write with it; a user without the right is told so before that."""
_OVERTAKEN = {"PreconditionFailed", "ConditionalRequestConflict"}
"""Another client has written the object since it was read."""
_FULL = {"XMinioStorageFull", "QuotaExceeded", "XMinioAdminBucketQuotaExceeded", "SlowDownWrite"}


@dataclass(frozen=True)
class S3Target:
    """A bucket and how to reach it. Its text has no secret."""

    endpoint: str
    """`http://host:port` or `https://host`."""
    bucket: str
    prefix: str
    """Without slashes at its ends; empty for the whole bucket."""
    region: str = ""
    access_key: str = ""
    secret_key: str = ""
    create: bool = False
    """Create the bucket if it is missing: for the operator's own server."""
    call_seconds: float = CALL_SECONDS
    """The time for all of a check or a cleaning: below the limit of the probes' cache (`cache.PROBE_SECONDS`)."""

    def __repr__(self) -> str:
        return f"s3://{self.bucket}/{self.prefix} at {self.endpoint}"

    def path(self, name: str) -> str:
        """The key of an object below the prefix."""
        return path_in(self.prefix, name)


# `ParseError`: the response is not XML, from a server that does not speak S3.
_UNREACHABLE = (urllib3.exceptions.HTTPError, ServerError, InvalidResponseError, ParseError, OSError, ValueError)


def check(target: S3Target, owner: Owner, adopt: str, *, write: bool, mark: bool = True) -> BucketFact:
    """Check whether `owner` may use the bucket. Blocks for seconds; raises no error of the bucket.

    `adopt` is the uid of a StateStore whose data the owner takes over. `write`: try to write even if the marker is
    there. Without `mark` nothing is written: it only looks whose the prefix is.
    """
    pool = _pool(target)
    try:
        with pool:
            client = _client(target, pool)
            if target.create and not client.bucket_exists(target.bucket):
                client.make_bucket(target.bucket)
            found = take(_S3Place(client, target), owner, adopt, write=write, mark=mark)
            pool.check()
            return found
    except S3Error as error:
        return _refusal(target, error)
    except _UNREACHABLE as error:
        return BucketFact(
            Reason.BUCKET_UNREACHABLE,
            f"{target!r} does not answer: {_words(error, pool, target)}. Correct spec.objectStore, or make sure that "
            "its server runs and is reachable from the cluster.",
        )


def check_readers(target: S3Target, writers: S3Target, trial: str) -> BucketFact:
    """Check that the key pair for readers, of `target`, can read the data of a store, and can neither write nor delete.

    Leaves nothing behind. `writers` is the same place with the store's own pair, and `trial` makes the name of an
    object that no store has.
    """
    pool = _pool(target)
    try:
        with pool:
            client = _client(target, pool)
            for _ in client.list_objects(target.bucket, prefix=target.path("log/"), recursive=True):
                break
            _miss(client, target, "sst/")
            _miss(client, target, "log/")
            too_much = _Trial(client, _client(writers, pool), target, f"tussock-readers-trial-{trial}").too_much()
            pool.check()
    except S3Error as error:
        if error.code in _READERS_DENIED:
            told = f"{target!r} refuses access to the key pair of {_READERS}: {_READERS_DENIED[error.code]}."
            return BucketFact(Reason.BUCKET_ACCESS_DENIED, told)
        fact = _refusal(target, error)
        words = f"With the key pair of {_READERS}, which must read sst/ and log/:"
        return BucketFact(fact.reason, f"{words} {fact.message}")
    except _UNREACHABLE as error:
        return BucketFact(Reason.BUCKET_UNREACHABLE, f"{target!r} does not answer: {_words(error, pool, target)}.")
    if too_much:
        return BucketFact(
            Reason.READERS_MAY_WRITE,
            f"The key pair of {_READERS} may {too_much} {target!r}, and clients that may read the store get it. "
            "Limit its policy to getting objects below sst/ and log/ and to listing them.",
        )
    return BucketFact(None)


class _Trial:
    """Tries in each folder of a store whether a pair may write or delete, with requests that change nothing.

    A write has a checksum that does not fit. What is deleted does not exist, and has to: servers that know conditions
    say that it does not, and others do nothing. All ask for the right first.
    """

    def __init__(self, client: Minio, writers: Minio, target: S3Target, name: str) -> None:
        self._client = client
        self._writers = writers
        self._target = target
        self._name = name

    def too_much(self) -> str:
        """What the pair may do besides reading, in words; empty if that is nothing."""
        folders = ("", *(f"{folder}/" for folder in FOLDERS))
        with ThreadPoolExecutor(CONNECTIONS_MAX) as threads:
            tried = [(words, list(threads.map(may, folders))) for words, may in self._rights()]
        found = []
        for words, allowed in tried:
            where = [folder for folder, may in zip(folders, allowed, strict=True) if may]
            if where:
                found.append(words if "" in where else f"{words} below {', '.join(where)}")
        return f"{' and '.join(found)} in" if found else ""

    def _rights(self) -> tuple[tuple[str, Callable[[str], bool]], ...]:
        return ("write", self._may_put), ("delete", self._may_delete)

    def _may_put(self, folder: str) -> bool:
        path = self._target.path(folder + self._name)
        try:
            self._client._put_object(self._target.bucket, path, b"x", {"Content-MD5": _WRONG_MD5})  # noqa: SLF001
        except S3Error as error:
            if error.code in _DENIED:
                return False
            if error.code not in ("BadDigest", "InvalidDigest", *_FULL):
                raise
        else:
            # A server that does not look at the checksum.
            with contextlib.suppress(S3Error):
                _delete(self._writers, self._target, path, {})
        return True

    def _may_delete(self, folder: str) -> bool:
        path = self._target.path(folder + self._name)
        try:
            try:
                mark = _delete(self._client, self._target, path, {"If-Match": "*"})
            except S3Error as error:
                if error.code != "NotImplemented":
                    raise
                mark = _delete(self._client, self._target, path, {})
            if mark:
                with contextlib.suppress(S3Error):
                    _delete(self._writers, self._target, path, {}, mark)
        except S3Error as error:
            if error.code in _DENIED:
                return False
            if error.code not in _OVERTAKEN and error.code != "NoSuchKey":
                raise
        return True


def _miss(client: Minio, target: S3Target, folder: str) -> None:
    """Read an object of a name that no store uses: with the right to read, the answer is that there is none."""
    try:
        client.stat_object(target.bucket, target.path(f"{folder}tussock-readers"))
    except S3Error as error:
        if error.code != "NoSuchKey":
            raise


def clean(target: S3Target, owner: Owner, system: System, *, delete: bool) -> EmptiedFact:
    """Give the prefix back, as in `give_back`. Blocks for seconds; raises no error of the bucket."""
    pool = _pool(target)
    try:
        with pool:
            cleaned = give_back(_S3Place(_client(target, pool), target), owner, system, delete=delete)
            pool.check()
            return cleaned
    except S3Error as error:
        if error.code == "NoSuchBucket":
            return EmptiedFact(done=True)
        return EmptiedFact(done=False, message=_refusal(target, error).message, stuck=True)
    except _UNREACHABLE as error:
        told = f"{target!r} does not answer: {_words(error, pool, target)}."
        return EmptiedFact(done=False, message=told, stuck=True)


class _S3Place:
    """The prefix of a store, through MinIO's client."""

    def __init__(self, client: Minio, target: S3Target) -> None:
        self._client = client
        self._target = target

    @property
    def url(self) -> str:
        return repr(self._target)

    def path(self, name: str) -> str:
        return self._target.path(name)

    @property
    def prefix(self) -> str:
        return self._target.prefix

    def marker(self) -> Marker | None:
        return self._marker(self.path(OWNER_MARKER))

    def marker_at(self, prefix: str) -> Marker | None:
        try:
            return self._marker(path_in(prefix, OWNER_MARKER))
        except S3Error as error:
            # A policy for the store's prefix alone, which is a good one.
            if error.code == "AccessDenied":
                return None
            raise

    def inner_prefixes(self) -> Iterator[str]:
        def entries(folder: str) -> Iterator[str]:
            for found in self._client.list_objects(self._target.bucket, prefix=f"{folder}/" if folder else None):
                if found.object_name:
                    yield found.object_name

        return marked_folders(self.prefix, entries)

    def _marker(self, path: str) -> Marker | None:
        try:
            response = self._client.get_object(self._target.bucket, path)
        except S3Error as error:
            if error.code == "NoSuchKey":
                return None
            raise
        try:
            return marker_in(response.read(4096), str(response.headers.get("ETag", "")))
        finally:
            response.close()
            response.release_conn()

    def put_marker(self, marker: Marker, *, replaced: Marker | None) -> bool:
        condition = {"If-None-Match": "*"} if replaced is None else {"If-Match": replaced.version}
        try:
            try:
                self._put(marker, condition)
            except S3Error as error:
                # Every server fit for a store can create conditionally, but not each can replace conditionally.
                if replaced is None or error.code != "NotImplemented":
                    raise
                self._put(marker, {})
        except S3Error as error:
            if error.code in _OVERTAKEN:
                return False
            if error.code in _FULL:
                raise NotWritable("it is full", is_full=True) from error
            known = _DENIED.get(error.code or "")
            raise NotWritable(known or _said(f"{error.code}: {error.message}", self._target)) from error
        return True

    def remove_marker(self, marker: Marker) -> None:
        condition = {"If-Match": marker.version} if marker.version else {}
        try:
            try:
                _delete(self._client, self._target, self.path(OWNER_MARKER), condition)
            except S3Error as error:
                if not condition or error.code != "NotImplemented":
                    raise
                _delete(self._client, self._target, self.path(OWNER_MARKER), {})
        except S3Error as error:
            # Somebody else has written it since, or it has gone: it is not ours any more.
            if error.code not in _OVERTAKEN and error.code != "NoSuchKey":
                raise

    def names(self, folder: str) -> Iterator[str]:
        start = len(self.path(""))
        for found in self._client.list_objects(self._target.bucket, prefix=self.path(f"{folder}/"), recursive=True):
            if found.object_name:
                yield found.object_name[start:]

    def delete(self, names: Sequence[str]) -> None:
        paths = [DeleteObject(self.path(name)) for name in names]
        for failed in self._client.remove_objects(self._target.bucket, paths):
            raise NotRemoved(_said(f"{failed.name} cannot be deleted: {failed.code}", self._target))

    def _put(self, marker: Marker, condition: dict[str, str]) -> None:
        headers: dict[str, str | list[str] | tuple[str]] = {"Content-Type": "application/json", **condition}
        # The public method of this library has no conditions.
        self._client._put_object(self._target.bucket, self.path(OWNER_MARKER), marker_of(marker), headers)  # noqa: SLF001


def _pool(target: S3Target) -> BoundedPool:
    # One short attempt: the operator repeats, and a user wants to know soon what is wrong.
    return BoundedPool(CONNECT_SECONDS, ANSWER_SECONDS, target.call_seconds)


def _client(target: S3Target, pool: BoundedPool) -> Minio:
    scheme, _, host = target.endpoint.rpartition("://")
    return Minio(
        host.rstrip("/"),
        credentials=StaticProvider(target.access_key, target.secret_key) if target.access_key else None,
        secure=scheme != "http",
        region=target.region or None,
        http_client=pool,
    )


def _delete(client: Minio, target: S3Target, path: str, headers: dict[str, str], version: str = "") -> str:
    """Delete an object, or one version of it; returns the version of the mark that a bucket with versions puts."""
    query: dict[str, str | list[str] | tuple[str]] | None = {"versionId": version} if version else None
    # The public method of this library has no conditions.
    answer = client._execute("DELETE", target.bucket, path, headers={**headers}, query_params=query)  # noqa: SLF001
    return str(answer.headers.get("x-amz-version-id") or "") if answer.headers.get("x-amz-delete-marker") else ""


def _refusal(target: S3Target, error: S3Error) -> BucketFact:
    if error.code == "NoSuchBucket":
        told = f"There is no bucket {target.bucket} at {target.endpoint}. Create it, or correct spec.objectStore."
        return BucketFact(Reason.BUCKET_NOT_FOUND, told)
    if error.code in _DENIED:
        return BucketFact(Reason.BUCKET_ACCESS_DENIED, f"{target!r} refuses access: {_DENIED[error.code]}.")
    told = f"{error.code}: {error.message}"
    return BucketFact(Reason.BUCKET_UNREACHABLE, f"{target!r} answers with {_said(told, target)}.")


def _said(text: str, target: S3Target) -> str:
    """A text of the library or of the server without the key pair that was sent."""
    return without_values(text, (target.access_key, target.secret_key))


def _words(error: BaseException, pool: BoundedPool, target: S3Target) -> str:
    """The error's text without secrets, and without Python objects: their addresses differ each time."""
    if pool.is_over:
        return f"it had not answered after {target.call_seconds:g} s"
    # The text of some errors is that of a tuple, whose last part is the message.
    said = str(error.args[-1]) if len(error.args) > 1 and isinstance(error.args[-1], str) else str(error)
    return _OBJECT.sub("", _said(said, target)).strip().rstrip(".") or type(error).__name__
