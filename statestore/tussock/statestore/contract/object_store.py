"""The few operations that the store needs of a bucket; the implementations are in `buckets/`.

`create` is what all safety rests on: of several callers that create the same path, exactly one succeeds.
"""

from collections.abc import Iterable, Iterator, Sequence
from typing import NamedTuple, Protocol

from tussock.statestore.errors import CorruptObject

__all__ = ["OWNER_MARKER", "ObjectInfo", "ObjectStore", "check_size"]

OWNER_MARKER = "tussock-owner"
"""An operator's word, beside a store or before there is one, on whose the place is. No store reads or writes it."""


class ObjectInfo(NamedTuple):
    """What a listing says of one object."""

    path: str
    size: int
    modified_ms: int
    """Milliseconds since the Unix epoch by the object store's own clock."""


class ObjectStore(Protocol):
    """A bucket, or a prefix in one. Paths are relative, with `/` between parts.

    Every method may raise `ObjectStoreUnavailable`; every read may raise `ObjectNotFound`.
    """

    @property
    def url(self) -> str:
        """Where this is, without credentials, for messages."""

    def put(self, path: str, data: bytes | Iterable[bytes | memoryview]) -> None:
        """Write an object whole and durably, replacing one of that path; parts are concatenated.

        They may come one by one, and take their time. What is raised instead of one is raised here, and nothing was
        written then.
        """

    def create(self, path: str, data: bytes) -> bool:
        """Write an object durably if none has that path; `False` if one has, and it is left alone."""

    def get(self, path: str, bytes_max: int | None = None) -> bytes:
        """The whole object; `CorruptObject` if it has more bytes than are expected there, of which none is read."""

    def get_range(self, path: str, start: int, length: int) -> memoryview:
        """`length` bytes from `start`; fewer if the object ends before."""

    def list(self, prefix: str, after: str = "") -> Iterator[ObjectInfo]:
        """Objects whose path starts with `prefix` (a folder such as `log/`), by path ascending, those after `after`."""

    def delete(self, paths: Sequence[str]) -> None:
        """Delete objects; those that are not there are no error."""

    def leftovers(self, before_ms: int) -> Sequence[ObjectInfo]:
        """What interrupted writes left, last touched before that time (Unix milliseconds); no listing shows these.

        `delete` takes their paths. The caller gives a time so far back that no writer can still be busy with them.
        """

    def close(self) -> None:
        """Release connections; the store cannot be used afterwards."""


def check_size(path: str, size: int, bytes_max: int | None) -> None:
    """Raise `CorruptObject` if an object of `size` bytes is larger than any that belongs there."""
    if bytes_max is not None and size > bytes_max:
        raise CorruptObject(
            f"{path}: expected at most {bytes_max} bytes, found {size}; the object is damaged or foreign, and was not "
            "read"
        )
