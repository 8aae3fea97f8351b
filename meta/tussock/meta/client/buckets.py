"""The bucket as a meta service says that it is reached: endpoint, region, and credentials where it hands them out."""

from tussock.meta.client.connection import MetaConnection
from tussock.meta.rpc import meta_pb2 as pb
from tussock.statestore.buckets import open_source
from tussock.statestore.buckets.credentials import BucketCredentials, CredentialSource
from tussock.statestore.errors import MetaUnavailable
from tussock.statestore.logs import get_logger
from tussock.statestore.object_store import ObjectStore
from tussock.statestore.system import System

__all__ = ["credentials_of", "open_session_bucket"]

log = get_logger("tussock.meta.client")

RENEW_SECONDS_MAX = 3.0
"""How long a request to the bucket waits for newer credentials while those at hand still work."""
LEFT_MS_MIN = 60_000
"""Credentials that expire sooner than that do not stand in for newer ones."""


def open_session_bucket(connection: MetaConnection, url: str, deadline_seconds: float, system: System) -> ObjectStore:
    """The bucket at `url`, which is the store's own or that of the one it was cloned from; the session is open.

    Its credentials are asked for again before they expire, for as long as the session lives.
    """
    opened = connection.opened
    return open_source(
        url,
        deadline_seconds=deadline_seconds,
        system=system,
        options=dict(opened.store_options),
        credentials=credentials_of(connection, system) if opened.hands_out_credentials else None,
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
