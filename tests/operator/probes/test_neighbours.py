"""Prefixes one inside the other belong to one StateStore, whatever the server is called and which operator asks."""

import io
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from itertools import count
from threading import Barrier

import pytest
from minio import Minio
from minio.credentials.providers import StaticProvider
from minio.minioadmin import MinioAdmin

from support.buckets.canned_cloud import Answer, azure_target, gcs_target, running_cloud
from support.buckets.minio import MinioServer
from tussock.operator.planning.deletion import EmptiedFact
from tussock.operator.planning.words.conditions import Reason
from tussock.operator.planning.words.facts import BucketFact
from tussock.operator.probes.bucket import S3Target, check, clean
from tussock.operator.probes.cloud import CloudTarget, check_cloud
from tussock.operator.probes.marker import Marker, Owner, marker_of
from tussock.operator.probes.neighbours import FOLDERS_MAX, LISTED_MAX, marked_folders
from tussock.statestore.base.system import RealSystem
from tussock.statestore.buckets.opening import open_bucket
from tussock.statestore.contract.object_store import OWNER_MARKER

SYSTEM = RealSystem()
OURS, THEIRS = Owner("1", "data", "shop"), Owner("2", "far", "away")
_numbers = count(1)


class Bucket:
    """A new bucket on MinIO, with stores at its prefixes."""

    def __init__(self, server: MinioServer) -> None:
        self.server = server
        host = server.endpoint.removeprefix("http://")
        self.client = Minio(host, access_key=server.user, secret_key=server.password, secure=False)
        self.name = f"neighbours-{next(_numbers)}"
        self.client.make_bucket(self.name)

    def at(self, prefix: str) -> S3Target:
        return S3Target(self.server.endpoint, self.name, prefix, "", self.server.user, self.server.password)

    def come(self, prefix: str, owner: Owner, adopt: str = "") -> BucketFact:
        return check(self.at(prefix), owner, adopt, write=True)

    def put(self, path: str, data: bytes = b"x") -> None:
        self.client.put_object(self.name, path, io.BytesIO(data), len(data))

    def markers(self) -> set[str]:
        found = (str(one.object_name) for one in self.client.list_objects(self.name, recursive=True))
        return {name for name in found if name.endswith(OWNER_MARKER)}


@pytest.fixture
def bucket(minio: MinioServer) -> Bucket:
    return Bucket(minio)


NESTED = [("", "x"), ("", "x/y/z"), ("x", "x/y"), ("x", "x/y/z/a"), ("x", "x/log"), ("x", "x/sst/backup")]


@pytest.mark.minio
@pytest.mark.parametrize("pair", [pair for outer, inner in NESTED for pair in ((outer, inner), (inner, outer))])
def test_a_prefix_around_or_within_that_of_another_store_is_in_use(pair: tuple[str, str], bucket: Bucket) -> None:
    """The first one keeps it; the later one leaves nothing, and begins once the first one has gone."""
    first, later = pair
    bucket.put(f"{first or later}/deep/er/mine")
    assert bucket.come(first, OURS) == BucketFact(None)
    before = bucket.markers()
    found = bucket.come(later, THEIRS)
    assert found.reason is Reason.PREFIX_IN_USE
    assert "StateStore data/shop (uid 1)" in found.message
    marker = f"{first}/{OWNER_MARKER}" if first else OWNER_MARKER
    assert f"its marker is the object {marker} of the bucket" in found.message
    assert bucket.markers() == before == {marker}
    assert bucket.come(first, OURS) == BucketFact(None)
    assert clean(bucket.at(first), OURS, SYSTEM, delete=False) == EmptiedFact(done=True)
    assert bucket.come(later, THEIRS) == BucketFact(None)


@pytest.mark.minio
def test_a_server_of_two_names_is_one_place(bucket: Bucket) -> None:
    """Story: stores at http://127.0.0.1 and http://localhost began with one prefix inside the other."""
    assert bucket.come("x", OURS) == BucketFact(None)
    inner = bucket.at("x/y")
    inner = replace(inner, endpoint=inner.endpoint.replace("127.0.0.1", "localhost"))
    assert inner.endpoint != bucket.server.endpoint
    assert check(inner, THEIRS, "", write=True).reason is Reason.PREFIX_IN_USE


@pytest.mark.minio
def test_prefixes_beside_each_other_are_free(bucket: Bucket) -> None:
    for number, prefix in enumerate(("x", "x1", "y/x", "y/z", "y/x1")):
        assert bucket.come(prefix, Owner(str(number), "data", "s")) == BucketFact(None), prefix


@pytest.mark.minio
def test_what_is_adopted_was_a_stores_place_already(bucket: Bucket) -> None:
    """An earlier operator may have let both begin; their next ones may take both over."""
    inner = Marker(Owner("3", "data", "inner"))
    assert bucket.come("x", OURS) == BucketFact(None)
    bucket.put(f"x/y/{OWNER_MARKER}", marker_of(inner))
    assert bucket.come("x", THEIRS, adopt="1") == BucketFact(None)
    assert bucket.come("x/y", OURS, adopt="3") == BucketFact(None)


@pytest.mark.minio
@pytest.mark.parametrize("attempt", range(5))
def test_of_several_that_come_at_once_one_begins_at_most(attempt: int, bucket: Bucket) -> None:
    """And one does at last, since each that is refused takes its marker back."""
    prefixes = ["x", "x/y", "x/y/z", "x/y/z/a"]
    owners = [Owner(f"{attempt}-{number}", "far", f"s{number}") for number in range(len(prefixes))]
    barrier = Barrier(len(prefixes))

    def come(prefix: str, owner: Owner) -> BucketFact:
        barrier.wait()
        return bucket.come(prefix, owner)

    with ThreadPoolExecutor(len(prefixes)) as pool:
        found = list(pool.map(come, prefixes, owners))
    began = [place for place, fact in zip(prefixes, found, strict=True) if fact.reason is None]
    assert len(began) <= 1
    assert bucket.markers() == {f"{place}/{OWNER_MARKER}" for place in began}
    again = [bucket.come(*place).reason for place in zip(prefixes, owners, strict=True)]
    assert again.count(None) == 1
    assert set(again) == {None, Reason.PREFIX_IN_USE}


@pytest.mark.minio
def test_credentials_for_the_prefix_alone_are_enough(bucket: Bucket) -> None:
    """What is around it cannot be seen with them, and is no problem of the bucket."""
    admin = MinioAdmin(
        endpoint=bucket.server.endpoint.removeprefix("http://"),
        credentials=StaticProvider(bucket.server.user, bucket.server.password),
        secure=False,
    )
    where = f"arn:aws:s3:::{bucket.name}"
    within = {"StringLike": {"s3:prefix": ["x/y/*"]}}
    allow = [
        {"Effect": "Allow", "Action": ["s3:GetObject", "s3:PutObject"], "Resource": [f"{where}/x/y/*"]},
        {"Effect": "Allow", "Action": ["s3:ListBucket"], "Resource": [where], "Condition": within},
        {"Effect": "Allow", "Action": ["s3:GetBucketLocation"], "Resource": [where]},
    ]
    admin.user_add(bucket.name, "a-password-for-it")
    admin.policy_add(f"p-{bucket.name}", policy={"Version": "2012-10-17", "Statement": allow})
    admin.policy_set(f"p-{bucket.name}", bucket.name)
    limited = replace(bucket.at("x/y"), access_key=bucket.name, secret_key="a-password-for-it")
    assert check(limited, OURS, "", write=True) == BucketFact(None)


def test_the_search_within_a_prefix_has_a_limit() -> None:
    """Of folders, the outer ones first, and of what is in each."""
    asked: list[str] = []

    def entries(folder: str) -> Iterator[str]:
        asked.append(folder)
        for number in count():
            assert number < LISTED_MAX, "more than one page was taken"
            yield f"{folder}/{number:04d}/"

    assert list(marked_folders("x", entries)) == []
    assert asked == ["x", *(f"x/{number:04d}" for number in range(FOLDERS_MAX - 1))]


def test_a_marker_within_is_found_in_a_bucket_of_a_cloud() -> None:
    target = CloudTarget(f"memory://neighbours-{next(_numbers)}", {})
    open_bucket(target.url).put(f"x/y/{OWNER_MARKER}", marker_of(Marker(THEIRS)))
    found = check_cloud(target, OURS, "", SYSTEM, write=True)
    assert found.reason is Reason.PREFIX_IN_USE
    assert f"the object x/y/{OWNER_MARKER} of the bucket" in found.message


@pytest.mark.parametrize("target", [gcs_target, azure_target])
@pytest.mark.parametrize("denied", [False, True])
def test_a_marker_around_is_found_in_a_bucket_of_a_cloud(target: Callable[[str], CloudTarget], denied: bool) -> None:
    """If the role shows it: one for the prefix alone is a good one."""
    with running_cloud() as cloud:
        cloud.read = Answer(404, "NoSuchKey" if target is gcs_target else "BlobNotFound", "No such object.")
        place = "/warehouse/" if target is gcs_target else "/shop/"
        said = Answer(403, "AccessDenied", "Denied.") if denied else Answer(200, "", marker_of(Marker(THEIRS)).decode())
        cloud.objects = {f"{place}{OWNER_MARKER}": said}
        found = check_cloud(target(cloud.url), OURS, "", SYSTEM, write=True)
    assert found.reason is (None if denied else Reason.PREFIX_IN_USE)
