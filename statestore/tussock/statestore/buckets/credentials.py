"""Credentials of a bucket that change: handed out by a meta service, or kept in files that somebody else renews."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, TypeAlias

from tussock.statestore.base.system import System
from tussock.statestore.errors import InvalidOption

__all__ = [
    "FOLDER_VARIABLE",
    "BucketCredentials",
    "CredentialSource",
    "for_library",
    "has_own_credentials",
    "setting_files",
    "settings_in",
]

FOLDER_VARIABLE = "TUSSOCK_BUCKET_CREDENTIALS"
"""Names a folder whose files are settings of the bucket: each is named like the variable that it stands in for."""

_OWN = (
    {"AWS_ACCESS_KEY_ID"},
    {"AWS_WEB_IDENTITY_TOKEN_FILE", "AWS_ROLE_ARN"},
    {"AWS_CONTAINER_CREDENTIALS_RELATIVE_URI"},
    {"AWS_CONTAINER_CREDENTIALS_FULL_URI", "AWS_CONTAINER_AUTHORIZATION_TOKEN_FILE"},
    {"AWS_METADATA_ENDPOINT"},
    {"AWS_SKIP_SIGNATURE"},
)
"""Each tells the library where credentials of an S3 bucket come from: a key, the identity of a pod or of a task, a
server that is asked for them, or that none are needed. Without any of them it asks the cloud that the machine may be an
instance of."""

_EARLY_MS = 300_000
"""Renewed this long before they expire, so that no request begun with them outlives them."""


@dataclass(frozen=True, repr=False)
class BucketCredentials:
    """A key of an S3 bucket; nothing secret of it is printed."""

    access_key_id: str
    secret_access_key: str
    session_token: str = ""
    expires_ms: int = 0
    """Unix time; 0 for never."""
    renew_ms: int = 0
    """After this long others may be in force, though these still work; 0: not before they expire."""

    def __repr__(self) -> str:
        return f"BucketCredentials({self.access_key_id!r}, expires_ms={self.expires_ms})"


CredentialSource: TypeAlias = Callable[[], BucketCredentials]
"""Asked for credentials that are good for a while, when there are none or they are to be renewed."""


def for_library(source: CredentialSource, system: System) -> Callable[[], dict[str, Any]]:
    """`source` as obstore calls it, which keeps an answer until it is to be renewed."""
    return _Provider(source, system)


class _Provider:
    refresh_threshold = timedelta(0)
    """The library would ask 5 minutes before `expires_at`, however long that is; here it is when to ask."""

    def __init__(self, source: CredentialSource, system: System) -> None:
        self._source = source
        self._system = system

    def __call__(self) -> dict[str, Any]:
        found = self._source()
        due = [found.expires_ms - _EARLY_MS] if found.expires_ms else []
        due += [self._system.now_ms() + found.renew_ms] if found.renew_ms else []
        return {
            "access_key_id": found.access_key_id,
            "secret_access_key": found.secret_access_key,
            "token": found.session_token or None,
            "expires_at": datetime.fromtimestamp(min(due) / 1000, UTC) if due else None,
        }


def has_own_credentials(environ: Mapping[str, str]) -> bool:
    """Whether a process with these variables is told where its credentials of an S3 bucket come from.

    It may have some without: an instance of a cloud has those of its role, and nothing in its environment says so.
    """
    folder = environ.get(FOLDER_VARIABLE)
    told = {**environ, **settings_in(folder)} if folder else environ
    return any(all(told.get(name) for name in names) for names in _OWN)


def setting_files(folder: str) -> list[str]:
    """The files of a folder of settings, by name; `InvalidOption` if there are none."""
    try:
        found = sorted(path for path in Path(folder).iterdir() if not path.name.startswith(".") and path.is_file())
    except OSError as error:
        raise InvalidOption(f"{folder}, a folder of a bucket's settings, cannot be read: {error.strerror}") from None
    if not found:
        raise InvalidOption(
            f"{folder}, a folder of a bucket's settings, has no file; put the bucket's credentials there, each in "
            "a file named like its variable, such as AWS_ACCESS_KEY_ID"
        )
    return [str(path) for path in found]


def settings_in(folder: str) -> Mapping[str, str]:
    """What the files of a folder of settings say, by their names, without white space at the ends.

    Kubernetes changes the files of a secret together, by turning one link, `..data`. Read through what that leads to,
    an id and its key are always of one pair.
    """
    turned = Path(folder, "..data")
    root = turned.resolve() if turned.exists() else Path(folder)
    return {
        Path(file).name: (root / Path(file).name).read_text(encoding="utf-8").strip() for file in setting_files(folder)
    }
