"""The marks of replicas that follow: what the leader knows of them, how old it is, and that no mark stays for ever."""

import pytest

from support.buckets.faulty_bucket import Fate, FaultyBucket, where
from support.store.versions import FakeSystem, ModelBucket
from tussock.meta.log.format import lease_path
from tussock.meta.server.standbys import GONE_SECONDS, MARK_SECONDS, STANDBYS_MAX, Standbys


class Leader:
    """A leader whose lease is renewed each second."""

    def __init__(self, bucket: ModelBucket) -> None:
        self.bucket = FaultyBucket(bucket)
        self.system = bucket.system
        self.standbys = Standbys(self.bucket, self.system, address="leader:7370")

    def look(self) -> dict[str, float]:
        """The replicas that it knows, with their ages in seconds."""
        self.bucket.inner.put(lease_path(1), b"a lease")
        self.standbys.step(leads=True)
        return {one.address: self.system.monotonic() - one.heard for one in self.standbys.known}


@pytest.fixture
def leader(bucket: ModelBucket) -> Leader:
    return Leader(bucket)


def follower(bucket: ModelBucket, name: str = "one") -> Standbys:
    return Standbys(bucket, bucket.system, address=f"{name}:7370")


def marks(bucket: ModelBucket) -> list[str]:
    return [path for path in bucket.objects if path.startswith("leader/standby-")]


def test_the_leader_knows_who_follows_and_since_when(leader: Leader, bucket: ModelBucket, system: FakeSystem) -> None:
    """Ages are by the bucket's clock, and grow until the next mark is seen."""
    one, two = follower(bucket), follower(bucket, "two")
    one.step(leads=False)
    system.forward(4.0)
    two.step(leads=False)
    system.forward(1.0)
    assert leader.look() == {"one:7370": 5.0, "two:7370": 1.0}
    system.forward(MARK_SECONDS / 2)
    one.step(leads=False)
    assert leader.look() == {"one:7370": 10.0, "two:7370": 6.0}, "it does not look again before it is due"
    system.forward(MARK_SECONDS / 2)
    one.step(leads=False)
    assert leader.look() == {"one:7370": 5.0, "two:7370": 11.0}


def test_marks_cost_a_request_each_ten_seconds(leader: Leader, bucket: ModelBucket, system: FakeSystem) -> None:
    """A follower writes one object, a leader lists once; a mark is read when it is new."""
    way = FaultyBucket(bucket)
    one = Standbys(way, system, address="one:7370")
    for _ in range(int(6 * MARK_SECONDS)):
        one.step(leads=False)
        leader.look()
        system.forward(1.0)
    assert [call.operation for call in way.calls] == ["put"] * 6
    assert [call.operation for call in leader.bucket.calls] == ["list", "get", *["list"] * 5]
    assert len(marks(bucket)) == 1


def test_a_replica_that_ended_is_forgotten(leader: Leader, bucket: ModelBucket, system: FakeSystem) -> None:
    """One that was told to end takes its mark away; that of one that was killed is deleted after a minute."""
    killed, drained = follower(bucket), follower(bucket, "two")
    for one in (killed, drained):
        one.step(leads=False)
    assert leader.look().keys() == {"one:7370", "two:7370"}
    drained.withdraw()
    system.forward(GONE_SECONDS)
    assert leader.look() == {"one:7370": GONE_SECONDS}
    system.forward(MARK_SECONDS)
    assert leader.look() == {}
    assert marks(bucket) == []


def test_a_replica_that_leads_follows_no_more(leader: Leader, bucket: ModelBucket) -> None:
    """It takes its mark away, and one that led before knows nobody who follows it."""
    one = follower(bucket)
    one.step(leads=False)
    assert leader.look().keys() == {"one:7370"}
    leader.standbys.step(leads=False)
    one.step(leads=True)
    assert leader.standbys.known == ()
    assert [standby.address for standby in one.known] == ["leader:7370"]
    assert len(marks(bucket)) == 1


def test_a_bucket_in_trouble_is_asked_again_later(leader: Leader, bucket: ModelBucket, system: FakeSystem) -> None:
    """What fails is left for the next time: nothing depends on it."""
    way = FaultyBucket(bucket, where("put", "leader/", Fate.LOSE_REQUEST))
    one = Standbys(way, system, address="one:7370")
    one.step(leads=False)
    assert leader.look() == {}
    system.forward(MARK_SECONDS)
    one.step(leads=False)
    leader.bucket.script = where("list", "leader/", Fate.LOSE_REQUEST)
    assert leader.look() == {}
    system.forward(MARK_SECONDS)
    assert leader.look() == {"one:7370": MARK_SECONDS}


def test_damaged_and_foreign_objects_are_no_replicas(leader: Leader, bucket: ModelBucket) -> None:
    """A mark that cannot be read stands for nobody, and other names are not read."""
    bucket.put(f"leader/standby-{'a' * 16}", b"damaged")
    bucket.put("leader/standby-mine", b"foreign")
    assert leader.look() == {}
    assert sorted(marks(bucket)) == [f"leader/standby-{'a' * 16}", "leader/standby-mine"]


def test_the_leader_reads_a_bounded_number_of_marks(leader: Leader, bucket: ModelBucket, system: FakeSystem) -> None:
    """The newest count."""
    for number in range(STANDBYS_MAX + 2):
        follower(bucket, f"r{number}").step(leads=False)
        system.forward(0.001)
    assert leader.look().keys() == {f"r{number}:7370" for number in range(2, STANDBYS_MAX + 2)}
