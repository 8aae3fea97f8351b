"""The owner's marker: one small object below a store's prefix that says which `StateStore` the prefix belongs to.

Operators of other clusters can read it, too, and writing it shows that the bucket is writable. Without this proof
nothing in a bucket is ever deleted: it names its `StateStore` by uid, and says whether a store existed already when it
was put.
"""

import hashlib
import json
import re
from dataclasses import dataclass, field
from typing import Any, Literal, get_args

from tussock.operator.planning.words.conditions import Reason
from tussock.operator.planning.words.facts import BucketFact

__all__ = [
    "FOLDERS",
    "Marker",
    "Owner",
    "in_use_fact",
    "is_of_store",
    "marker_in",
    "marker_of",
    "overlap_fact",
    "owner_marker",
]

FOLDERS = ("leader", "log", "applications", "snapshot", "pins", "backup", "tmp", "sst")
"""All folders of a store (`docs/formats.md`), the log first: what an interrupted deletion leaves is garbage to the next
store there, and not a store whose rows are missing."""

_OF_STORE = re.compile(
    r"leader/[0-9]{20}|leader/standby-[0-9a-f]{16}"
    r"|log/[0-9]{20}\.delta|log/boundary/[0-9]{20}"
    r"|applications/[A-Za-z_][A-Za-z0-9_-]{0,99}/input/[0-9]{20}"
    r"|applications/[A-Za-z_][A-Za-z0-9_-]{0,103}/program/[A-Za-z_][A-Za-z0-9_]{0,99}\.py"
    r"|applications/[A-Za-z_][A-Za-z0-9_-]{0,103}/events/eventlog_v2_[A-Za-z0-9_-]{1,200}/"
    r"(?:appstatus_[A-Za-z0-9_-]{1,200}(?:\.inprogress)?"
    r"|events_[0-9]{1,9}_[A-Za-z0-9_-]{1,200}(?:\.[a-z0-9]{1,10}){0,2})"
    r"|snapshot/[0-9]{20}"
    r"|pins/[0-9]{20}-[0-9a-f]{16}"
    r"|backup/[A-Za-z0-9][A-Za-z0-9._-]{0,99}\.[0-9a-f]{32}"
    r"|tmp/clock-[0-9a-f]{16}"
    r"|sst/[0-9a-f]{32}\.(?:data|meta)"
)

_UNREADABLE = "unreadable-"

Found = Literal["nothing", "store", "adopted"]
"""What was below the prefix when the marker was put: no store; one of unknown origin; or one that `spec.adopt` has
given to this owner."""


@dataclass(frozen=True)
class Owner:
    """The owner of a prefix."""

    uid: str
    namespace: str
    name: str

    @property
    def is_known(self) -> bool:
        """Whether the marker could be read; else the uid stands for its very bytes, and no other marker has it."""
        return not self.uid.startswith(_UNREADABLE)

    def __str__(self) -> str:
        if not self.is_known:
            return "an owner whose marker cannot be read"
        return f"StateStore {self.namespace}/{self.name} (uid {self.uid})"


@dataclass(frozen=True)
class Marker:
    """The content of a marker."""

    owner: Owner
    found: Found = "nothing"
    version: str = field(default="", compare=False)
    """The version for a conditional replacement; empty if the server has none."""


def is_of_store(path: str) -> bool:
    """Whether an object has a name that a store uses; others may have files in the folders of a store, too."""
    return _OF_STORE.fullmatch(path) is not None


def marker_of(marker: Marker) -> bytes:
    """The bytes of a marker."""
    owner = marker.owner
    return json.dumps(
        {"uid": owner.uid, "namespace": owner.namespace, "name": owner.name, "found": marker.found}
    ).encode()


def marker_in(data: bytes, version: str = "") -> Marker:
    """The marker in `data`; an unreadable one belongs to an unknown owner, and proves nothing."""
    try:
        body: Any = json.loads(data)
        owner = Owner(str(body["uid"]), str(body["namespace"]), str(body["name"]))
        # Markers of operators before this field: they were put on their own store's data.
        found = body.get("found", "nothing")
    except (ValueError, KeyError, TypeError, AttributeError):
        return Marker(Owner(f"{_UNREADABLE}{hashlib.sha256(data).hexdigest()[:16]}", "", ""), "store", version)
    return Marker(owner, found if found in get_args(Found) else "store", version)


def owner_marker(marker: Marker | None, owner: Owner, adopt: str, *, has_store: bool) -> Marker | None:
    """The marker with which `owner` has the prefix; `None` if it is another's.

    `adopt` is the uid of a StateStore whose data `owner` takes over: a former one, or itself, for a store that it found
    without a marker. `has_store`: a store exists. Data under an unreadable marker are taken over, and not deleted with
    the new owner: nothing shows whose they were.
    """
    if marker is None:
        if not has_store:
            return Marker(owner)
        return Marker(owner, "adopted" if adopt == owner.uid else "store")
    if marker.owner.uid == owner.uid:
        adopted = marker.found == "store" and adopt == owner.uid
        return Marker(owner, "adopted" if adopted else marker.found, marker.version)
    if adopt and marker.owner.uid == adopt:
        taken: Found = "adopted" if marker.owner.is_known else "store"
        return Marker(owner, taken if has_store else "nothing", marker.version)
    return None


def in_use_fact(place: str, path: str, owner: Owner) -> BucketFact:
    """The fact that a place belongs to another owner, whose marker is the object `path`."""
    return BucketFact(
        Reason.PREFIX_IN_USE,
        f"{place} belongs to {owner}, as the object {path} there says. Use another prefix; or, if that StateStore is "
        f"gone for good and this one is to continue with its data, set spec.adopt: {json.dumps(owner.uid)}.",
    )


def overlap_fact(place: str, path: str, owner: Owner) -> BucketFact:
    """The fact that a place contains that of another owner, or lies in it; its marker is the object `path`."""
    return BucketFact(
        Reason.PREFIX_IN_USE,
        f"{place} overlaps with the prefix of {owner}: its marker is the object {path} of the bucket. Use another "
        "prefix, which neither contains that one nor lies within it; or, if that StateStore is gone for good, delete "
        "that object.",
    )
