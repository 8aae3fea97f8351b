"""The bucket as a meta service says that it is reached: endpoint, region, and credentials where it hands them out."""

from tussock.meta.client.connection import MetaConnection
from tussock.meta.rpc import meta_pb2 as pb
from tussock.statestore.buckets import open_bucket
from tussock.statestore.buckets.credentials import BucketCredentials, CredentialSource
from tussock.statestore.object_store import ObjectStore
from tussock.statestore.system import System

__all__ = ["credentials_of", "open_session_bucket"]


def open_session_bucket(connection: MetaConnection, url: str, deadline_seconds: float, system: System) -> ObjectStore:
    """The bucket at `url`, which is the store's own or that of the one it was cloned from; the session is open.

    Its credentials are asked for again before they expire, for as long as the session lives.
    """
    opened = connection.opened
    return open_bucket(
        url,
        deadline_seconds=deadline_seconds,
        system=system,
        options=dict(opened.store_options),
        credentials=credentials_of(connection) if opened.hands_out_credentials else None,
    )


def credentials_of(connection: MetaConnection) -> CredentialSource:
    """Asks the service for credentials of the bucket, for as long as the session lives."""

    def credentials() -> BucketCredentials:
        answer = connection.call("GetCredentials", pb.GetCredentialsRequest(session_id=connection.session_id))
        assert isinstance(answer, pb.GetCredentialsResponse)
        return BucketCredentials(
            answer.access_key_id, answer.secret_access_key, answer.session_token, answer.expires_ms
        )

    return credentials
