"""A prefix belongs to one StateStore, and its clean-up deletes only objects that are provably that store's.

The same on MinIO, by the client for buckets of S3, and on a bucket in memory, behind the library for the other clouds.
"""

import io
import json
import re
from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from itertools import count
from threading import Barrier
from typing import Any, Protocol

import pytest
from minio import Minio

from support.buckets.minio import BUCKET, MinioServer
from support.operator.process import eventually
from tussock.operator.planning.deletion import EmptiedFact
from tussock.operator.planning.words.conditions import Reason
from tussock.operator.planning.words.facts import BucketFact
from tussock.operator.probes.bucket import S3Target, check, clean
from tussock.operator.probes.cloud import CloudTarget, check_cloud, clean_cloud
from tussock.operator.probes.marker import Owner, marker_in
from tussock.statestore.base.system import RealSystem, System
from tussock.statestore.buckets.opening import open_bucket
from tussock.statestore.contract.object_store import OWNER_MARKER

SYSTEM = RealSystem()
OURS, THEIRS = Owner("1", "data", "shop"), Owner("2", "far", "away")
_numbers = count(1)

ENTRY = f"log/{1:020d}.delta"
SST = f"sst/{'a' * 32}"
STORE = {
    *(f"leader/{1:020d}", ENTRY, f"log/boundary/{1:020d}", f"snapshot/{1:020d}", f"pins/{7:020d}-{'b' * 16}"),
    f"applications/bank-2/input/{1:020d}",
    "applications/totals/program/totals.py",
    "applications/totals/events/eventlog_v2_spark-1/appstatus_spark-1.inprogress",
    "applications/totals/events/eventlog_v2_spark-1/events_1_spark-1.zstd",
    "applications/totals/events/eventlog_v2_spark-1/events_2_spark-1.zstd.compact",
    *(f"leader/standby-{'e' * 16}", f"tmp/clock-{'c' * 16}", f"{SST}.data", f"{SST}.meta"),
}
"""One object of each kind that a store has."""
BACKUP = f"backup/nightly.{'d' * 32}"
FOREIGN = {"mine/x", "log/1.delta", "log/app.log", "tmp/report.csv", "backup/dump.sql", "sst/readme", f"sub/{ENTRY}"}
FOREIGN |= {"applications/totals/program/notes.txt", "applications/totals/program/a/b.py"}
FOREIGN |= {"applications/totals/events/notes", "applications/totals/events/eventlog_v2_a/core"}
FOREIGN |= {"applications/notes", f"applications/bank/output/{1:020d}", f"applications/a/b/input/{1:020d}"}
"""Foreign objects, some in folders that a store has, too."""


class Place(Protocol):
    """A prefix, and the operator's actions on it."""

    def check(self, owner: Owner, adopt: str = "", *, write: bool = False) -> BucketFact: ...
    def clean(self, owner: Owner, *, delete: bool = True) -> EmptiedFact: ...
    def put(self, names: Iterable[str], data: bytes = b"x") -> None: ...
    def marker(self) -> dict[str, Any]: ...
    def names(self) -> set[str]: ...


class OnMinio:
    def __init__(self, server: MinioServer) -> None:
        host = server.endpoint.removeprefix("http://")
        self._client = Minio(host, access_key=server.user, secret_key=server.password, secure=False)
        self._prefix = f"prefixes/{next(_numbers)}"
        self._target = S3Target(server.endpoint, BUCKET, self._prefix, "", server.user, server.password)
        # A server that has just started may answer slower than a probe waits.
        warm = replace(self._target, prefix="prefixes/warm")
        eventually("a server that answers", lambda: check(warm, OURS, "", write=False).reason is None)

    def check(self, owner: Owner, adopt: str = "", *, write: bool = False) -> BucketFact:
        return check(self._target, owner, adopt, write=write)

    def clean(self, owner: Owner, *, delete: bool = True, system: System = SYSTEM) -> EmptiedFact:
        return clean(self._target, owner, system, delete=delete)

    def put(self, names: Iterable[str], data: bytes = b"x") -> None:
        def one(name: str) -> None:
            self._client.put_object(BUCKET, f"{self._prefix}/{name}", io.BytesIO(data), len(data))

        with ThreadPoolExecutor(8) as pool:
            list(pool.map(one, names))

    def marker(self) -> dict[str, Any]:
        found: dict[str, Any] = json.loads(self._client.get_object(BUCKET, f"{self._prefix}/{OWNER_MARKER}").read())
        return found

    def names(self) -> set[str]:
        found = self._client.list_objects(BUCKET, prefix=f"{self._prefix}/", recursive=True)
        return {str(entry.object_name).removeprefix(f"{self._prefix}/") for entry in found}


class InMemory:
    def __init__(self) -> None:
        self._target = CloudTarget(f"memory://prefixes-{next(_numbers)}", {})
        self._bucket = open_bucket(self._target.url)

    def check(self, owner: Owner, adopt: str = "", *, write: bool = False) -> BucketFact:
        return check_cloud(self._target, owner, adopt, SYSTEM, write=write)

    def clean(self, owner: Owner, *, delete: bool = True) -> EmptiedFact:
        return clean_cloud(self._target, owner, SYSTEM, delete=delete)

    def put(self, names: Iterable[str], data: bytes = b"x") -> None:
        for name in names:
            self._bucket.put(name, data)

    def marker(self) -> dict[str, Any]:
        found: dict[str, Any] = json.loads(self._bucket.get(OWNER_MARKER))
        return found

    def names(self) -> set[str]:
        return {found.path for found in self._bucket.list("")}


@pytest.fixture(params=["memory", pytest.param("minio", marks=pytest.mark.minio)])
def place(request: pytest.FixtureRequest) -> Place:
    return InMemory() if request.param == "memory" else OnMinio(request.getfixturevalue("minio"))


def test_a_prefix_belongs_to_its_first_owner(place: Place) -> None:
    """A second look changes nothing; a later store learns the owner, and what to write if that owner is gone."""
    assert place.check(OURS, write=True) == BucketFact(None)
    assert place.check(OURS) == place.check(OURS, write=True) == BucketFact(None)
    found = place.check(THEIRS, write=True)
    assert found.reason is Reason.PREFIX_IN_USE
    assert "StateStore data/shop (uid 1)" in found.message
    assert 'spec.adopt: "1"' in found.message
    assert place.marker()["uid"] == "1"


@pytest.mark.parametrize("attempt", range(5))
def test_of_several_owners_at_once_one_gets_the_prefix(place: Place, attempt: int) -> None:
    """As operators of several clusters do: never do two answers allow a start."""
    owners = [Owner(f"{attempt}-{number}", "far", f"s{number}") for number in range(8)]
    barrier = Barrier(len(owners))

    def come(owner: Owner) -> BucketFact:
        barrier.wait()
        return place.check(owner, write=True)

    with ThreadPoolExecutor(len(owners)) as pool:
        reasons = [found.reason for found in pool.map(come, owners)]
    assert reasons.count(None) == 1
    assert reasons.count(Reason.PREFIX_IN_USE) == len(owners) - 1


@pytest.mark.parametrize("delete", [False, True])
def test_a_prefix_is_released_with_or_without_the_data(place: Place, delete: bool) -> None:
    """Foreign objects stay, also in folders that a store has; a second clean-up is no error."""
    place.check(OURS)
    place.put([*STORE, *FOREIGN])
    for _ in range(2):
        assert place.clean(OURS, delete=delete) == EmptiedFact(done=True)
        assert place.names() == (FOREIGN if delete else FOREIGN | STORE)


def test_no_object_is_left_out_of_thousands(place: Place) -> None:
    """More than two pages in one folder: once the 1,001st object of each page was skipped."""
    place.check(OURS)
    place.put(f"sst/{number:032x}.data" for number in range(2_010))
    while not (found := place.clean(OURS)).done:
        assert "more are left" in found.message
    assert place.names() == set()


def test_without_a_marker_nothing_is_deleted(place: Place) -> None:
    """A store whose operator has no credentials has no marker: what is deleted on its prefix may be another store."""
    place.put(STORE)
    found = place.clean(OURS)
    assert (found.done, found.hopeless) == (False, True)
    assert "its objects stay, because no object" in found.message
    assert place.names() == STORE


def test_under_the_marker_of_another_nothing_is_deleted(place: Place) -> None:
    place.check(THEIRS)
    place.put(STORE)
    found = place.clean(OURS)
    assert (found.done, found.hopeless) == (False, True)
    assert "belongs to StateStore far/away" in found.message
    assert place.clean(OURS, delete=False) == EmptiedFact(done=True)
    assert place.names() == {OWNER_MARKER, *STORE}


class Adopting(RealSystem):
    """In the middle of a deletion, which looks at the clock, another owner adopts the place."""

    def __init__(self, place: Place) -> None:
        self._place = place

    def monotonic(self) -> float:
        self._place.check(THEIRS, OURS.uid)
        return super().monotonic()


@pytest.mark.minio
def test_a_marker_that_another_has_adopted_meanwhile_stays(minio: MinioServer) -> None:
    """A deletion reads the marker again before it removes it: deleting the store's objects may take long."""
    place = OnMinio(minio)
    place.check(OURS)
    place.put(STORE)
    assert place.clean(OURS, system=Adopting(place)) == EmptiedFact(done=True)
    assert place.marker()["uid"] == THEIRS.uid


def test_an_unreadable_marker_counts_as_foreign(place: Place) -> None:
    place.put([OWNER_MARKER], b"{")
    place.put(STORE)
    assert place.clean(OURS).hopeless
    assert place.names() == {OWNER_MARKER, *STORE}
    message = place.check(OURS).message
    assert "belongs to an owner whose marker cannot be read" in message
    name = re.search(r'spec\.adopt: "(unreadable-[0-9a-f]{16})"', message)
    assert name is not None
    # A name of these very bytes: left in a manifest, it fits no other marker that is damaged later.
    assert place.check(OURS, "unknown").reason is Reason.PREFIX_IN_USE
    assert place.check(OURS, f"unreadable-{'0' * 16}").reason is Reason.PREFIX_IN_USE
    assert place.check(OURS, name[1]) == BucketFact(None, has_store=True)


def test_an_existing_store_is_served_and_not_deleted(place: Place) -> None:
    """Its owner is unknown, so its objects stay and the message says how to allow their deletion."""
    place.put(STORE)
    assert place.check(OURS) == place.check(OURS) == BucketFact(None, has_store=True)
    found = place.clean(OURS)
    assert (found.done, found.hopeless) == (False, True)
    assert "spec.adopt: 1" in found.message
    assert place.names() == STORE


def test_an_existing_store_that_was_adopted_is_deleted(place: Place) -> None:
    place.put(STORE)
    place.check(OURS)
    assert place.check(OURS, OURS.uid) == BucketFact(None, has_store=True)
    assert place.clean(OURS).done
    assert place.names() == set()


def test_garbage_alone_is_no_store(place: Place) -> None:
    """The leftovers of an interrupted deletion have no log any more."""
    place.put([f"{SST}.data"])
    assert place.check(OURS) == BucketFact(None)
    assert place.clean(OURS).done
    assert place.names() == set()


def test_the_data_of_a_former_owner_are_adopted_by_its_uid(place: Place) -> None:
    """No other value adopts them; from then on the former store is the foreign one."""
    place.check(THEIRS)
    place.put(STORE)
    assert place.check(OURS, "3").reason is Reason.PREFIX_IN_USE
    assert place.check(OURS, THEIRS.uid) == BucketFact(None, has_store=True)
    assert place.check(OURS, THEIRS.uid) == BucketFact(None, has_store=True)
    assert place.check(THEIRS, write=True).reason is Reason.PREFIX_IN_USE
    assert place.clean(OURS).done
    assert place.names() == set()


@pytest.mark.parametrize("backups", [1, 9])
def test_backups_keep_all_objects_that_they_need(place: Place, backups: int) -> None:
    """Their SSTs and log entries stay, too; the message names the backups."""
    place.check(OURS)
    held = {f"backup/nightly-{number}.{number:032x}" for number in range(backups)}
    place.put([*STORE, *held])
    found = place.clean(OURS)
    assert (found.done, found.hopeless) == (False, True)
    assert "nightly-0" in found.message
    assert ("and others" in found.message) is (backups > 3)
    assert place.names() == STORE | held


def test_a_marker_of_an_older_operator_is_still_valid() -> None:
    marker = marker_in(b'{"uid": "1", "namespace": "data", "name": "shop"}')
    assert (marker.owner, marker.found) == (OURS, "nothing")
