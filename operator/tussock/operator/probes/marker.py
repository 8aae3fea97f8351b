"""The owner's marker: one small object below a store's prefix that says which `StateStore` the prefix belongs to.

It speaks also to operators of other clusters, and writing it shows that the bucket can be written.
"""

import json
from dataclasses import dataclass
from typing import Any

from tussock.operator.planning.conditions import Reason
from tussock.operator.planning.facts import BucketFact

__all__ = ["CLEAN_SECONDS", "FOLDERS", "MARKER", "Owner", "in_use", "marker_of", "owner_in"]

MARKER = "tussock-owner"
FOLDERS = ("leader", "log", "snapshot", "pins", "backup", "tmp", "sst")
"""All that a store has (`docs/formats.md`), the truth first: what is left of a deletion that was broken off is garbage
to the next store there, and not a store whose rows are missing."""
CLEAN_SECONDS = 12.0
"""One go at removing objects takes so long at most; the next one goes on."""


@dataclass(frozen=True)
class Owner:
    """Whom a prefix belongs to."""

    uid: str
    namespace: str
    name: str


def marker_of(owner: Owner) -> bytes:
    """What the marker holds."""
    return json.dumps({"uid": owner.uid, "namespace": owner.namespace, "name": owner.name}).encode()


def owner_in(marker: bytes) -> Owner:
    """Whom a marker names; one that cannot be understood names somebody else than anybody."""
    try:
        body: Any = json.loads(marker)
        return Owner(str(body["uid"]), str(body["namespace"]), str(body["name"]))
    except (ValueError, KeyError, TypeError):
        return Owner("unknown", "unknown", "unknown")


def in_use(place: str, path: str, found: Owner) -> BucketFact:
    """That a place is another's, whose marker is the object `path`."""
    return BucketFact(
        Reason.PREFIX_IN_USE,
        f"{place} belongs to StateStore {found.namespace}/{found.name} (uid {found.uid}). Take another prefix; "
        f"or, if that StateStore is gone for good, delete the object {path}.",
    )
