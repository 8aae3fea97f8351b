"""Reading a bucket's URL: what kind of bucket it is, where it is, and nothing secret.

Credentials come from the environment only. A URL ends up in configuration files, process lists and logs, so one that
carries credentials is refused, and the refusal does not repeat them.
"""

import re
from pathlib import Path
from typing import NamedTuple
from urllib.parse import unquote

from tussock.statestore.errors import InvalidOption
from tussock.statestore.shown import show_value

__all__ = ["BucketUrl", "is_endpoint", "parse_bucket_url", "without_secrets"]

ACCEPTED = (
    "memory://, memory://NAME, file:///absolute/path, s3://bucket/prefix, gs://bucket/prefix, az://container/prefix"
)

_BUCKET = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,221}", re.ASCII)
_PREFIX = re.compile(r"[A-Za-z0-9_=-][A-Za-z0-9_.=-]*(?:/[A-Za-z0-9_=-][A-Za-z0-9_.=-]*)*", re.ASCII)


class BucketUrl(NamedTuple):
    """A bucket's URL in parts."""

    scheme: str
    """`memory`, `file`, `s3`, `gs` or `az`."""
    bucket: str
    """Name of the bucket or container, or of the memory store; empty for `file` and for a private memory store."""
    prefix: str
    """Path in the bucket without `/` at its ends; for `file` the absolute path of the folder."""

    def __str__(self) -> str:
        """The URL in its plain form, fit for messages."""
        if self.scheme == "file":
            return Path(self.prefix).as_uri()
        return f"{self.scheme}://{self.bucket}" + (f"/{self.prefix}" if self.prefix else "")


def parse_bucket_url(url: str) -> BucketUrl:
    """Take a URL apart; raises `InvalidOption` naming what is wrong with it and the accepted forms."""
    if not isinstance(url, str):
        raise InvalidOption(f"a store is named by a URL, found {show_value(url)}; expected such as file:///data/state")
    scheme, separator, rest = url.partition("://")
    bucket, _, path = rest.partition("/")
    if not separator or scheme not in ("memory", "file", "s3", "gs", "az"):
        raise _url_error(url, "its scheme is unknown")
    if "?" in rest or "#" in rest:
        raise _url_error(url, "it has a query or a fragment; options and credentials are not given in the URL")
    if scheme == "file":
        folder = unquote(rest)
        if not folder.startswith("/") or "\0" in folder or ".." in folder.split("/"):
            raise _url_error(url, "a folder is given by its absolute path, after three slashes and without '..'")
        return BucketUrl("file", "", str(Path(folder)))
    if "@" in rest:
        raise _url_error(
            url, "it carries credentials; give them in the environment (for S3: AWS_ACCESS_KEY_ID and so on)"
        )
    if scheme == "memory":
        if path or (bucket and not _BUCKET.fullmatch(bucket)):
            raise _url_error(url, "a memory store has at most a plain name")
        return BucketUrl("memory", bucket, "")
    prefix = path.strip("/")
    if not _BUCKET.fullmatch(bucket) or (prefix and not _PREFIX.fullmatch(prefix)):
        raise _url_error(url, "the bucket's name is missing, or it or the prefix has characters that cannot be in one")
    return BucketUrl(scheme, bucket, prefix)


def is_endpoint(text: str) -> bool:
    """Whether the text is a URL of a server: a scheme, a host, perhaps a port and a path."""
    return re.fullmatch(r"https?://[^\s/?#]+(/[^\s?#]*)?", text) is not None


def without_secrets(text: str) -> str:
    """`text` with user names, passwords and queries of the URLs in it replaced."""
    text = re.sub(r"//[^\s/'\"()]*@", "//***@", text)
    return re.sub(r"\?[^\s'\"()]+", "?***", text)


def _url_error(url: str, why: str) -> InvalidOption:
    # A URL with a missing slash or scheme has its credentials where no parser looks for them: all before the last `@`
    # goes. In the path of a folder an `@` is a character like others.
    shown = re.sub(r"[?#].*", "?***", url, flags=re.DOTALL)
    if not shown.startswith("file:///"):
        shown = re.sub(r"^([a-z0-9]*:/+|).*@", r"\1***@", shown, flags=re.DOTALL)
    return InvalidOption(f"cannot open the bucket {show_value(shown)}: {why}. Accepted forms: {ACCEPTED}")
