"""Looks for markers of other stores around a prefix, in its parent folders, and within it.

The operator compares the places of the stores that it sees, but one server may have two names, and other clusters have
other operators: only the bucket shows those. Each look has a bounded number of requests, so it may miss a store that
lies deep in a large tree; and a policy for the one prefix hides what is around it.
"""

from collections import deque
from collections.abc import Callable, Iterable, Iterator
from itertools import islice
from typing import NamedTuple, Protocol

from tussock.operator.probes.marker import Marker, Owner
from tussock.statestore.contract.object_store import OWNER_MARKER

__all__ = ["LISTED_MAX", "Bucket", "Neighbour", "marked_folders", "neighbour_of", "path_in"]

PARENTS_MAX = 64
"""Parent folders of a prefix that are asked, from the bucket itself on."""
FOLDERS_MAX = 50
"""Folders within a prefix that are listed, the outer ones first."""
LISTED_MAX = 1000
"""Entries of a listing that are looked at: one page of S3's protocol."""
INNER_MAX = 10
"""Markers within a prefix that are read."""


class Neighbour(NamedTuple):
    """Another store whose prefix is around or within one."""

    owner: Owner
    path: str
    """Its marker, as an object of the bucket."""


class Bucket(Protocol):
    """What is asked of a bucket about other prefixes. Every method may raise what its library raises."""

    @property
    def prefix(self) -> str:
        """The prefix in question, without slashes at its ends; empty for the whole bucket."""

    def marker_at(self, prefix: str) -> Marker | None:
        """The marker of any prefix of the bucket; `None` if there is none, or if the credentials do not show it."""

    def inner_prefixes(self) -> Iterator[str]:
        """Prefixes within the one in question that have a marker, as far as a bounded number of requests finds them."""


def path_in(prefix: str, name: str) -> str:
    """The name in a bucket of an object below a prefix."""
    return f"{prefix}/{name}" if prefix else name


def neighbour_of(bucket: Bucket, owner: Owner) -> Neighbour | None:
    """A store of another owner whose prefix contains this one or lies within it; `None` if none is found."""
    for prefix in (*islice(_parents(bucket.prefix), PARENTS_MAX), *islice(bucket.inner_prefixes(), INNER_MAX)):
        found = bucket.marker_at(prefix)
        if found is not None and found.owner.uid != owner.uid:
            return Neighbour(found.owner, path_in(prefix, OWNER_MARKER))
    return None


def marked_folders(prefix: str, entries: Callable[[str], Iterable[str]]) -> Iterator[str]:
    """The folders within a prefix that have a marker; lists `FOLDERS_MAX` of them at most.

    `entries` lists what is directly in a folder of the bucket: objects and folders by their whole names, the latter
    with a slash at the end.
    """
    folders = deque([prefix])
    for _ in range(FOLDERS_MAX):
        if not folders:
            return
        folder = folders.popleft()
        marker = path_in(folder, OWNER_MARKER)
        for entry in islice(entries(folder), LISTED_MAX):
            if entry.endswith("/") and len(folders) < FOLDERS_MAX:
                folders.append(entry.rstrip("/"))
            elif entry == marker and folder != prefix:
                yield folder


def _parents(prefix: str) -> Iterator[str]:
    """The bucket itself and the folders above a prefix; none for the whole bucket."""
    parts = prefix.split("/") if prefix else []
    return ("/".join(parts[:depth]) for depth in range(len(parts)))
