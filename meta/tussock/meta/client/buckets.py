"""The bucket as a meta service says that it is reached: endpoint, region, and credentials where it hands them out."""

import os
from collections.abc import Iterable, Iterator, Sequence

from tussock.meta.client.connection import MetaConnection
from tussock.meta.rpc import meta_pb2 as pb
from tussock.statestore.base.logs import get_logger
from tussock.statestore.base.system import System
from tussock.statestore.buckets import open_source, refuse_bucket
from tussock.statestore.buckets.credentials import (
    FOLDER_VARIABLE,
    BucketCredentials,
    CredentialSource,
    has_own_credentials,
)
from tussock.statestore.buckets.urls import parse_bucket_url
from tussock.statestore.contract.object_store import ObjectInfo, ObjectStore
from tussock.statestore.errors import AccessDenied, MetaUnavailable

__all__ = ["credentials_of", "open_session_bucket"]

log = get_logger("tussock.meta.client")

RENEW_SECONDS_MAX = 3.0
"""How long a request to the bucket waits for newer credentials while those at hand still work."""
LEFT_MS_MIN = 60_000
"""Credentials that expire sooner than that do not stand in for newer ones."""


def open_session_bucket(connection: MetaConnection, url: str, deadline_seconds: float, system: System) -> ObjectStore:
    """The bucket at `url`, which is the store's own or that of the one it was cloned from; the session is open.

    Its credentials are asked for again before they expire, for as long as the session lives. Where others are handed
    some and this client is not, it has to be told where its own come from: to ask the machine's cloud for the role of
    an instance takes 12 seconds where there is none. Without, each request is refused with `AccessDenied`.
    """
    opened = connection.opened
    withheld = opened.withholds_credentials and parse_bucket_url(url).scheme == "s3"
    if withheld and not has_own_credentials({**os.environ, **opened.store_options}):
        return refuse_bucket(url, _withheld(url), system)
    bucket = open_source(
        url,
        deadline_seconds=deadline_seconds,
        system=system,
        options=dict(opened.store_options),
        credentials=credentials_of(connection, system) if opened.hands_out_credentials else None,
    )
    return _ReadOnlyBucket(bucket) if opened.reads_only else bucket


class _ReadOnlyBucket:
    """A bucket of which this client is handed credentials that may only read: `AccessDenied` for all that writes.

    The bucket itself would refuse, too, and its refusal looks like wrong credentials.
    """

    def __init__(self, bucket: ObjectStore) -> None:
        self._bucket = bucket

    @property
    def url(self) -> str:
        return self._bucket.url

    def put(self, path: str, data: bytes | Iterable[bytes | memoryview]) -> None:  # noqa: ARG002 -- refused
        raise self._refusal(f"put of {path}")

    def create(self, path: str, data: bytes) -> bool:  # noqa: ARG002 -- refused
        raise self._refusal(f"create of {path}")

    def get(self, path: str, bytes_max: int | None = None) -> bytes:
        return self._bucket.get(path, bytes_max)

    def get_range(self, path: str, start: int, length: int) -> memoryview:
        return self._bucket.get_range(path, start, length)

    def list(self, prefix: str, after: str = "") -> Iterator[ObjectInfo]:
        return self._bucket.list(prefix, after)

    def delete(self, paths: Sequence[str]) -> None:
        if paths:
            raise self._refusal(f"delete of {paths[0]}")

    def leftovers(self, before_ms: int) -> Sequence[ObjectInfo]:
        return self._bucket.leftovers(before_ms)

    def close(self) -> None:
        self._bucket.close()

    def _refusal(self, what: str) -> AccessDenied:
        return AccessDenied(
            f"{what} in {self.url}: this client has the role reader at the meta service, and to write rows needs the "
            "role writer or admin; nothing was stored",
            self.url,
        )


def _withheld(url: str) -> str:
    return (
        f"the meta service hands this client's role no keys of the bucket {url}, and it has no others. Bring "
        "some, with AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, or files of these names (in Kubernetes, a Secret) in "
        f"the folder that {FOLDER_VARIABLE} names; where an instance has a role, set AWS_METADATA_ENDPOINT. Or give "
        "the store a pair for readers: credentials.reader_access_key_id and credentials.reader_secret_access_key of "
        "the service, or objectStore.s3.readerCredentialsSecret of a StateStore"
    )


def credentials_of(connection: MetaConnection, system: System) -> CredentialSource:
    """Asks the service for credentials of the bucket, for as long as the session lives.

    A service that is away for a while stops nobody who has credentials that still work.
    """
    known: BucketCredentials | None = None

    def credentials() -> BucketCredentials:
        nonlocal known
        former = known
        lasts = former is not None and (not former.expires_ms or former.expires_ms - system.now_ms() > LEFT_MS_MIN)
        request = pb.GetCredentialsRequest(session_id=connection.session_id)
        try:
            answer = connection.call("GetCredentials", request, timeout=RENEW_SECONDS_MAX if lasts else None)
        except MetaUnavailable as error:
            if former is None or not lasts:
                raise
            log.warning("credentials of the bucket were not renewed, the former stay in use", error=str(error))
            return former
        assert isinstance(answer, pb.GetCredentialsResponse)
        known = BucketCredentials(
            access_key_id=answer.access_key_id,
            secret_access_key=answer.secret_access_key,
            session_token=answer.session_token,
            expires_ms=answer.expires_ms,
            renew_ms=answer.renew_ms,
        )
        return known

    return credentials
