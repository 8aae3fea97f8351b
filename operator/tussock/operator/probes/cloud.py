"""The same as `bucket.py` for buckets of Google and containers of Azure, opened as the nodes open them."""

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from tussock.operator.planning.deletion import EmptiedFact
from tussock.operator.planning.words.conditions import Reason
from tussock.operator.planning.words.facts import BucketFact
from tussock.operator.probes.marker import Marker, Owner, marker_in, marker_of
from tussock.operator.probes.prefixes import NotWritable, give_back, take
from tussock.operator.probes.redaction import without_values
from tussock.statestore.base.system import System
from tussock.statestore.buckets.failures import DENIED, NO_BUCKET
from tussock.statestore.buckets.opening import open_bucket
from tussock.statestore.contract.object_store import OWNER_MARKER, ObjectStore
from tussock.statestore.errors import InvalidOption, ObjectNotFound, ObjectStoreUnavailable, TussockError

__all__ = ["CloudTarget", "check_cloud", "clean_cloud"]

ANSWER_SECONDS = 6.0
"""For one request with its repetitions: the operator repeats, and a user wants to know soon what is wrong."""

_MEASURED = re.compile(
    r" after \d+ attempts? in [\d.]+ s| in [\d.]+\w?s(?:, after \d+ retries, max_retries: \d+, retry_timeout: \w+)?"
)
"""Times in an error text, which differ at each probe: each would be another message, write and wake-up."""


@dataclass(frozen=True)
class CloudTarget:
    """A bucket and how to reach it. Its text has no secret."""

    url: str
    """`gs://bucket/prefix` or `az://container/prefix`."""
    settings: Mapping[str, str] = field(repr=False)
    """Credentials and account, by the names of the environment's variables."""
    answer_seconds: float = ANSWER_SECONDS

    def open(self, system: System) -> ObjectStore:
        """The bucket; `InvalidOption` if the settings are invalid."""
        return open_bucket(self.url, deadline_seconds=self.answer_seconds, system=system, options=self.settings)


def check_cloud(target: CloudTarget, owner: Owner, adopt: str, system: System, *, write: bool) -> BucketFact:
    """Check whether `owner` may use the bucket. Blocks for seconds; raises no error of the bucket.

    `adopt` is the uid of a StateStore whose data the owner takes over. `write`: try to write even if the marker is
    there.
    """
    try:
        return take(_CloudPlace(target.open(system), target), owner, adopt, write=write)
    except TussockError as error:
        return _refusal(target, error)


def clean_cloud(target: CloudTarget, owner: Owner, system: System, *, delete: bool) -> EmptiedFact:
    """Give the prefix back, as in `give_back`. Blocks for seconds; raises no error of the bucket."""
    try:
        return give_back(_CloudPlace(target.open(system), target), owner, system, delete=delete)
    except TussockError as error:
        fact = _refusal(target, error)
        if fact.reason is Reason.BUCKET_NOT_FOUND:
            return EmptiedFact(done=True)
        return EmptiedFact(done=False, message=fact.message, stuck=True)


class _CloudPlace:
    """The prefix of a store, through the library that the nodes use."""

    def __init__(self, bucket: ObjectStore, target: CloudTarget) -> None:
        self._bucket = bucket
        self._target = target

    @property
    def url(self) -> str:
        return self._target.url

    def path(self, name: str) -> str:
        return name

    def marker(self) -> Marker | None:
        try:
            return marker_in(self._bucket.get(OWNER_MARKER))
        except ObjectNotFound:
            return None

    def put_marker(self, marker: Marker, *, replaced: Marker | None) -> bool:
        try:
            if replaced is None:
                created = self._bucket.create(OWNER_MARKER, marker_of(marker))
                # The library repeats a create whose answer was lost, and then finds its own object.
                return created or self.marker() == marker
            # The library replaces without a condition. A writer that was overtaken since its read sees that here, or at
            # the next look; only a former owner's marker is ever replaced by another's, at a user's request.
            self._bucket.put(OWNER_MARKER, marker_of(marker))
            return self.marker() == marker
        except ObjectStoreUnavailable as error:
            if DENIED in str(error):
                told = "the credentials may not write; give them a role that may create and delete objects"
                raise NotWritable(told) from error
            raise

    def remove_marker(self, marker: Marker) -> None:  # noqa: ARG002 - the library deletes without a condition
        self._bucket.delete([OWNER_MARKER])

    def names(self, folder: str) -> Iterator[str]:
        return (found.path for found in self._bucket.list(f"{folder}/"))

    def delete(self, names: Sequence[str]) -> None:
        self._bucket.delete(names)


def _refusal(target: CloudTarget, error: TussockError) -> BucketFact:
    secrets = [value for name, value in target.settings.items() if name != "AZURE_STORAGE_ACCOUNT_NAME"]
    said = without_values(" ".join(_MEASURED.sub("", str(error)).split()), secrets)
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
        f"{target.url} does not answer: {said}. Correct spec.objectStore, or make it reachable from the cluster.",
    )
