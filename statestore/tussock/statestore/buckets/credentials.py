"""Credentials of a bucket that somebody hands out, and renews: a meta service, as a rule."""

from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, TypeAlias

__all__ = ["BucketCredentials", "CredentialSource", "for_library"]


@dataclass(frozen=True, repr=False)
class BucketCredentials:
    """A key of an S3 bucket; nothing secret of it is printed."""

    access_key_id: str
    secret_access_key: str
    session_token: str = ""
    expires_ms: int = 0
    """Unix time; 0 for never."""

    def __repr__(self) -> str:
        return f"BucketCredentials({self.access_key_id!r}, expires_ms={self.expires_ms})"


CredentialSource: TypeAlias = Callable[[], BucketCredentials]
"""Asked for credentials that are good for a while, when there are none or they are about to expire."""


def for_library(source: CredentialSource) -> Callable[[], dict[str, Any]]:
    """`source` as obstore calls it, which keeps an answer until a few minutes before it expires."""

    def credential() -> dict[str, Any]:
        found = source()
        return {
            "access_key_id": found.access_key_id,
            "secret_access_key": found.secret_access_key,
            "token": found.session_token or None,
            "expires_at": datetime.fromtimestamp(found.expires_ms / 1000, UTC) if found.expires_ms else None,
        }

    return credential
