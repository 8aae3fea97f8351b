"""The credentials of the bucket that clients are handed, so that no client needs its own secret for it.

`static` hands out one pair to those who write, and to readers another one, if there is one. `assume-role` asks an STS
(Amazon's, or MinIO's) for credentials that expire, with a policy by the caller's roles: readers read SSTs, and the log
entries in which small ones lie; writers and compactors also put new SSTs, and writers have the input logs of
applications, which run with that role. Nobody can write the store's log but the service and embedded processes. What is
handed out lasts for at least half of the duration; a client comes back before it is over. A service whose own pair is
in files has its clients come back every 20 seconds, so that a pair that was replaced is out of use within that time.
"""

import json
import threading
from collections.abc import Callable, Mapping, Sequence
from datetime import UTC

from minio.credentials.providers import AssumeRoleProvider
from urllib3 import PoolManager, Retry
from urllib3.exceptions import HTTPError

from tussock.meta.rpc import meta_pb2 as pb
from tussock.meta.rpc.methods import Role
from tussock.meta.server.settings.model import MetaSettings
from tussock.statestore.base.system import System
from tussock.statestore.base.watched_files import WatchedFiles
from tussock.statestore.buckets.credentials import FOLDER_VARIABLE, setting_files, settings_in
from tussock.statestore.buckets.urls import BucketUrl, parse_bucket_url, without_secrets
from tussock.statestore.errors import AccessDenied, InvalidOption, ObjectStoreUnavailable

__all__ = ["HandedOut", "credential_source", "policy"]

HandedOut = Callable[[Role, Sequence[str]], pb.GetCredentialsResponse]
"""Credentials for a caller with these roles, who may also read the SSTs of other stores, by their URLs: those that this
one was cloned from. `ObjectStoreUnavailable` if there are none to be had."""

RENEW_MS = 20_000
"""How often clients ask again for what may change in files."""
STS_SECONDS_MAX = 1.0
"""Each of two attempts; a client takes a replica that is silent for some seconds for dead."""

_PAIR = ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY")
Pair = tuple[str, str]
"""An access key's id, and its secret."""

_WRITING = Role.WRITER | Role.COMPACTOR | Role.ADMIN
_RUNNING = Role.WRITER | Role.ADMIN
"""Those whose applications have input logs in the bucket."""


def credential_source(settings: MetaSettings, environ: Mapping[str, str], system: System) -> HandedOut | None:
    """What the settings say; `None` where clients have their own. `InvalidOption` if a key is missing."""
    chosen = settings.credentials
    if chosen.mode == "none":
        return None
    pair, renew_ms = _pair(settings, environ, system)
    if chosen.mode == "static":
        for_readers = _for_readers(settings, system)

        def hand_out(roles: Role, _: Sequence[str]) -> pb.GetCredentialsResponse:
            if not roles & _WRITING:
                return for_readers()
            key, secret = pair()
            return pb.GetCredentialsResponse(access_key_id=key, secret_access_key=secret, renew_ms=renew_ms)

        return hand_out
    region = settings.bucket.region or environ.get("AWS_REGION", "us-east-1")
    endpoint = chosen.sts_endpoint or settings.bucket.endpoint or environ.get("AWS_ENDPOINT_URL", "")
    where = parse_bucket_url(settings.store)

    def ask(pair: Pair, roles: Role, sources: Sequence[str]) -> pb.GetCredentialsResponse:
        writes = bool(roles & _WRITING)
        provider = AssumeRoleProvider(
            sts_endpoint=endpoint or f"https://sts.{region}.amazonaws.com",
            access_key=pair[0],
            secret_key=pair[1],
            duration_seconds=chosen.duration_seconds,
            policy=json.dumps(policy(where, _buckets(sources), roles)),
            region=region,
            role_arn=chosen.role_arn or None,
            role_session_name="tussock-writer" if writes else "tussock-reader",
            http_client=PoolManager(timeout=STS_SECONDS_MAX, retries=Retry(total=1, backoff_factor=0.1)),
        )
        try:
            found = provider.retrieve()
        except (HTTPError, ValueError, OSError) as error:
            # Not chained: what the library was asked to send is in its errors' traces.
            raise ObjectStoreUnavailable(
                f"the STS at {without_secrets(endpoint) or region} gave no credentials for {where}: "
                f"{without_secrets(str(error))[:300]}; see credentials.* of the service's settings"
            ) from None
        expiration = found.expiration
        return pb.GetCredentialsResponse(
            access_key_id=found.access_key,
            secret_access_key=found.secret_key,
            session_token=found.session_token or "",
            expires_ms=int(expiration.replace(tzinfo=UTC).timestamp() * 1000) if expiration else 0,
            renew_ms=renew_ms,
        )

    return _Remembered(ask, pair, system, chosen.duration_seconds * 500)


def _for_readers(settings: MetaSettings, system: System) -> Callable[[], pb.GetCredentialsResponse]:
    """Asks for the pair of readers; `AccessDenied` if there is none: the other one may write, and delete the store.

    `InvalidOption` if its files cannot be read.
    """
    chosen = settings.credentials
    if chosen.reader_folder:
        folder = chosen.reader_folder
        files = WatchedFiles(setting_files(folder), lambda _: _reader_pair(folder), system)

        def of_files() -> pb.GetCredentialsResponse:
            key, secret = files.current()
            return pb.GetCredentialsResponse(access_key_id=key, secret_access_key=secret, renew_ms=RENEW_MS)

        return of_files

    def of_settings() -> pb.GetCredentialsResponse:
        if not chosen.reader_access_key_id:
            raise AccessDenied(
                "a reader is handed no credentials of the bucket by this service: set credentials.reader_access_key_id "
                "and credentials.reader_secret_access_key to a pair that may only read, use the mode assume-role, or "
                "connect with a role that writes"
            )
        return pb.GetCredentialsResponse(
            access_key_id=chosen.reader_access_key_id,
            secret_access_key=chosen.reader_secret_access_key.get_secret_value(),
        )

    return of_settings


def _reader_pair(folder: str) -> Pair:
    found = settings_in(folder)
    missing = [name for name in _PAIR if not found.get(name)]
    if missing:
        raise InvalidOption(f"credentials.reader_folder: {folder} has no {' and no '.join(missing)}", folder)
    return found[_PAIR[0]], found[_PAIR[1]]


def _pair(settings: MetaSettings, environ: Mapping[str, str], system: System) -> tuple[Callable[[], Pair], int]:
    """The service's own pair at this moment, and after how many milliseconds it may be another; 0 for never.

    The settings come first, then the files that the bucket is opened with, then the environment.
    """
    chosen = settings.credentials
    given = (chosen.access_key_id, chosen.secret_access_key.get_secret_value())
    folder = environ.get(FOLDER_VARIABLE, "")

    def told(found: Mapping[str, str]) -> Pair:
        key, secret = (
            value or found.get(name) or environ.get(name, "") for value, name in zip(given, _PAIR, strict=True)
        )
        if not key or not secret:
            raise InvalidOption(
                f"credentials.mode is {chosen.mode!r} and there is no key: set credentials.access_key_id and "
                f"credentials.secret_access_key, or {' and '.join(_PAIR)}, as variables or as files in the folder that "
                f"{FOLDER_VARIABLE} names"
            )
        return key, secret

    if folder:
        return WatchedFiles(setting_files(folder), lambda _: told(settings_in(folder)), system).current, RENEW_MS
    pair = told({})
    return lambda: pair, 0


class _Remembered:
    """Asks for new credentials only when the last ones of the same rights have less than `left_ms` milliseconds left.

    Those of a pair that was replaced are forgotten: an STS may end what it gave to the former.
    """

    def __init__(
        self,
        ask: Callable[[Pair, Role, Sequence[str]], pb.GetCredentialsResponse],
        pair: Callable[[], Pair],
        system: System,
        left_ms_min: int,
    ) -> None:
        self._ask = ask
        self._pair = pair
        self._system = system
        self._left_ms_min = left_ms_min
        self._lock = threading.Lock()
        self._asked_with: Pair | None = None
        self._known: dict[tuple[bool, bool, tuple[str, ...]], pb.GetCredentialsResponse] = {}

    def __call__(self, roles: Role, sources: Sequence[str]) -> pb.GetCredentialsResponse:
        rights = (bool(roles & _WRITING), bool(roles & _RUNNING), tuple(sources))
        pair = self._pair()
        with self._lock:
            if pair != self._asked_with:
                self._asked_with = pair
                self._known = {}
            known = self._known.get(rights)
        if known is None or known.expires_ms - self._system.now_ms() < self._left_ms_min:
            known = self._ask(pair, roles, sources)
            with self._lock:
                if pair == self._asked_with:
                    self._known[rights] = known
        return known


def policy(where: BucketUrl, sources: Sequence[BucketUrl], roles: Role) -> dict[str, object]:
    """What a client with these roles may do in the buckets: an IAM policy."""
    stores = [where, *sources]
    statements = [
        {
            "Effect": "Allow",
            "Action": ["s3:GetObject"],
            "Resource": [_objects(store, what) for store in stores for what in ("sst/*", "log/*.delta")],
        },
        # Without it S3 answers a read of an object that vacuum has deleted with "denied" and not with "not found".
        {
            "Effect": "Allow",
            "Action": ["s3:ListBucket"],
            "Resource": sorted({f"arn:aws:s3:::{store.bucket}" for store in stores}),
        },
    ]
    adding = ["s3:PutObject", "s3:AbortMultipartUpload"]
    if roles & _WRITING:
        statements.append({"Effect": "Allow", "Action": adding, "Resource": [_objects(where, "sst/*")]})
    if roles & _RUNNING:
        having = ["s3:GetObject", "s3:DeleteObject", *adding]
        statements.append({"Effect": "Allow", "Action": having, "Resource": [_objects(where, "applications/*")]})
    return {"Version": "2012-10-17", "Statement": statements}


def _objects(store: BucketUrl, what: str) -> str:
    return f"arn:aws:s3:::{'/'.join(part for part in (store.bucket, store.prefix, what) if part)}"


def _buckets(urls: Sequence[str]) -> list[BucketUrl]:
    return [where for where in map(parse_bucket_url, urls) if where.scheme == "s3"]
