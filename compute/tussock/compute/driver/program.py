"""The file of a job's program: one of the image or of a ConfigMap, or an object of the store's bucket.

Every writer of a store may put objects below `applications/`, so an object is run only if its SHA-256 is the one that
the job's spec names. So only a change of the spec changes what a job runs, as with the other two.
"""

import hashlib
import re
from collections.abc import Callable
from pathlib import Path

from tussock.statestore import InvalidOption
from tussock.statestore.contract.object_store import ObjectStore
from tussock.statestore.errors import CorruptObject, ObjectNotFound

__all__ = ["PROGRAM_BYTES_MAX", "digest_of", "fetch_program"]

PROGRAM_BYTES_MAX = 4 << 20
"""A ConfigMap has room for 1 MiB; what is larger is data, or a package for the image."""
_DIGEST = re.compile("[0-9a-f]{64}")


def fetch_program(open_bucket: Callable[[], ObjectStore], path: str, sha256: str, folder: Path) -> Path:
    """Bring the object `path` into `folder` under its own name, and return the file.

    Raises `InvalidOption` if it is missing, too large, not the one that is meant, or no text; and an error of the store
    if that is away.
    """
    if not _DIGEST.fullmatch(sha256):
        raise InvalidOption(f"the program's SHA-256 is {sha256[:80]!r}; expected 64 lower-case hexadecimal digits")
    bucket = open_bucket()
    where = f"{bucket.url}/{path}"
    try:
        data = bucket.get(path, PROGRAM_BYTES_MAX)
    except ObjectNotFound:
        raise InvalidOption(f"there is no program at {where}; put the file there") from None
    except CorruptObject as error:
        raise InvalidOption(f"the program at {where} is too large, a program has at most 4 MiB: {error}") from None
    found = hashlib.sha256(data).hexdigest()
    if found != sha256:
        raise InvalidOption(
            f"the program at {where} has the SHA-256 {found}, and application.object.sha256 is {sha256}: it is another "
            "file, or was changed; put back the one that is meant, or name the other one's SHA-256"
        )
    try:
        data.decode()
    except UnicodeDecodeError as error:
        raise InvalidOption(
            f"the program at {where} is not Python in UTF-8: byte {error.start} is {data[error.start]:#04x}"
        ) from None
    file = folder / path.rpartition("/")[2]
    file.write_bytes(data)
    return file


def digest_of(file: Path) -> str:
    """The SHA-256 of a program's file; empty if it cannot be read, which running it will tell."""
    try:
        with file.open("rb") as opened:
            return hashlib.file_digest(opened, "sha256").hexdigest()
    except OSError:
        return ""
