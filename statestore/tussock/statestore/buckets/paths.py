"""What a path in a bucket may look like: the same rules for every kind of bucket.

The alphabet is the part of ASCII that no store, file system or URL escapes, so a path reads the same everywhere and
sorts the same everywhere. A part that starts with a dot is kept for the buckets themselves: `FileBucket` gives its
unfinished files such names, and no object can be mistaken for one.

Where others write and the store only reads, any name is one: `any_names`.
"""

import re

from tussock.statestore.errors import InvalidOption

__all__ = ["check_path", "check_prefix", "is_path"]

PATH_BYTES_MAX = 900
"""Below the 1,024 bytes that S3 and GCS allow, which leaves room for the bucket's own prefix."""

_PART = r"[A-Za-z0-9_=-][A-Za-z0-9_.=-]{0,199}"
_PATH = re.compile(rf"{_PART}(?:/{_PART})*", re.ASCII)
_PREFIX = re.compile(rf"(?:{_PART}/)*(?:{_PART})?", re.ASCII)


def is_path(path: str, *, any_names: bool = False) -> bool:
    """Whether an object may have this path. Listings skip what may not: files of others, such as `lost+found`.

    With `any_names` only what begins with a dot may not, in any part.
    """
    if any_names:
        return "\0" not in path and all(part and not part.startswith(".") for part in path.split("/"))
    return _PATH.fullmatch(path) is not None and len(path) <= PATH_BYTES_MAX


def check_path(path: str, *, any_names: bool = False) -> str:
    """Return `path` if an object may have it, else raise `InvalidOption`."""
    if not is_path(path, any_names=any_names):
        raise InvalidOption(
            f"{path!r} is not an object path; expected parts of 1 to 200 letters, digits, '_', '-', '=' and '.' (not "
            f"in front), separated by single '/', at most {PATH_BYTES_MAX} bytes in all"
        )
    return path


def check_prefix(prefix: str, *, any_names: bool = False) -> str:
    """Return `prefix` if it is the beginning of a path (or empty), else raise `InvalidOption`."""
    if not (is_path(f"{prefix}x", any_names=True) if any_names else _PREFIX.fullmatch(prefix)):
        raise InvalidOption(f"{prefix!r} is not the beginning of an object path; give a folder such as 'log/' or ''")
    return prefix
