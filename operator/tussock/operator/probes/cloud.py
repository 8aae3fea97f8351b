"""The same as `bucket.py` for buckets of Google and containers of Azure, opened as the nodes open them."""

import re
from collections.abc import Mapping
from dataclasses import dataclass, field

from tussock.operator.planning.conditions import Reason
from tussock.operator.planning.deletion import EmptiedFact
from tussock.operator.planning.facts import BucketFact
from tussock.operator.probes.marker import CLEAN_SECONDS, FOLDERS, MARKER, Owner, in_use, marker_of, owner_in
from tussock.statestore.buckets.failures import DENIED, NO_BUCKET
from tussock.statestore.buckets.opening import open_bucket
from tussock.statestore.errors import InvalidOption, ObjectNotFound, ObjectStoreUnavailable, TussockError
from tussock.statestore.object_store import ObjectStore
from tussock.statestore.system import System

__all__ = ["CloudTarget", "check_cloud", "clean_cloud"]

ANSWER_SECONDS = 6.0
"""Of one request, its repetitions included: the operator repeats, and a user wants to hear soon what is wrong."""
DELETED_AT_ONCE = 100

_MEASURED = re.compile(
    r" after \d+ attempts? in [\d.]+ s| in [\d.]+\w?s, after \d+ retries, max_retries: \d+, retry_timeout: \w+"
)
"""Times in an error text, which differ at each probe: each would be another message, write and wake-up."""


@dataclass(frozen=True)
class CloudTarget:
    """A bucket and how to reach it. Its text has no secret."""

    url: str
    """`gs://bucket/prefix` or `az://container/prefix`."""
    settings: Mapping[str, str] = field(repr=False)
    """Credentials and account, by the names of the environment's variables."""

    def open(self, system: System) -> ObjectStore:
        """The bucket; `InvalidOption` if the settings make no sense."""
        return open_bucket(self.url, deadline_seconds=ANSWER_SECONDS, system=system, options=self.settings)


def check_cloud(target: CloudTarget, owner: Owner, system: System, *, write: bool) -> BucketFact:
    """Look whether `owner` may use the bucket. Blocks for seconds; raises nothing that a bucket may cause.

    `write`: try that too, even if the marker is there.
    """
    try:
        bucket = target.open(system)
        found = _marker(bucket)
        if found is not None and found.uid != owner.uid:
            return in_use(target.url, MARKER, found)
    except TussockError as error:
        return _refused(target, error)
    if found is not None and not write:
        return BucketFact(None)
    try:
        bucket.put(MARKER, marker_of(owner))
    except ObjectStoreUnavailable as error:
        if DENIED in str(error):
            told = "the credentials may not write; give them a role that may create and delete objects"
            return BucketFact(Reason.BUCKET_NOT_WRITABLE, f"{target.url} can be read and not written: {told}.")
        return _refused(target, error)
    return BucketFact(None)


def clean_cloud(target: CloudTarget, owner: Owner, system: System, *, delete: bool) -> EmptiedFact:
    """Give the prefix back: remove the owner's marker, and before it (`delete`) the store.

    Goes on for `CLEAN_SECONDS` at most. A prefix of another owner is left alone, and so is what is no store's.
    """
    try:
        bucket = target.open(system)
        found = _marker(bucket)
        if (found is None and not delete) or (found is not None and found.uid != owner.uid):
            return EmptiedFact(done=True)
        if delete:
            deleted, more = _delete_all(bucket, system)
            if more:
                told = f"{deleted} objects were removed just now, and more are left"
                return EmptiedFact(done=False, message=f"{target.url}: {told}.")
        bucket.delete([MARKER])
    except TussockError as error:
        fact = _refused(target, error)
        if fact.reason is Reason.BUCKET_NOT_FOUND:
            return EmptiedFact(done=True)
        return EmptiedFact(done=False, message=fact.message, stuck=True)
    return EmptiedFact(done=True)


def _delete_all(bucket: ObjectStore, system: System) -> tuple[int, bool]:
    """Remove the objects of the store: how many, and whether more are left."""
    until = system.monotonic() + CLEAN_SECONDS
    deleted = 0
    for folder in FOLDERS:
        names: list[str] = []
        for found in bucket.list(f"{folder}/"):
            names.append(found.path)
            if len(names) == DELETED_AT_ONCE:
                bucket.delete(names)
                deleted, names = deleted + len(names), []
                if system.monotonic() >= until:
                    return deleted, True
        bucket.delete(names)
        deleted += len(names)
    return deleted, False


def _marker(bucket: ObjectStore) -> Owner | None:
    try:
        return owner_in(bucket.get(MARKER))
    except ObjectNotFound:
        return None


def _refused(target: CloudTarget, error: TussockError) -> BucketFact:
    said = _MEASURED.sub("", str(error))
    if isinstance(error, InvalidOption):
        return BucketFact(
            Reason.BUCKET_ACCESS_DENIED,
            f"The credentials for {target.url} cannot be used: {said.partition(';')[0]}. Correct the secret.",
        )
    if NO_BUCKET in said:
        told = f"There is no bucket {target.url}. Create it, or correct spec.objectStore."
        return BucketFact(Reason.BUCKET_NOT_FOUND, told)
    if DENIED in said:
        told = "the secret is wrong, or its owner may not use the bucket; correct it, or give a role to read and write"
        return BucketFact(Reason.BUCKET_ACCESS_DENIED, f"{target.url} refuses access: {told}.")
    return BucketFact(
        Reason.BUCKET_UNREACHABLE,
        f"{target.url} does not answer: {said}. Correct spec.objectStore, or see to it that it can be reached from the "
        "cluster.",
    )
