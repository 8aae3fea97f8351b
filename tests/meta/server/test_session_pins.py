"""Pins of sessions across a change of leader: late requests of the old leader do not touch the new one's pins."""

import pytest

from support.buckets.faulty_bucket import Call, Fate, FaultyBucket, where
from support.store.versions import FakeSystem, ModelBucket, request, spec
from tussock.meta.log.log import VersionLog
from tussock.meta.meta_store import MetaStore
from tussock.meta.node.auth.caller import ANYONE
from tussock.meta.retention.pins import PinKeeper
from tussock.meta.rpc import meta_pb2 as pb
from tussock.meta.rpc.convert import pin_from_message
from tussock.meta.server.context import Context
from tussock.meta.server.feed import Feed
from tussock.meta.server.leadership import Leadership
from tussock.meta.server.settings.node_options import NodeOptions
from tussock.statestore.errors import ObjectStoreUnavailable

SESSION = "0123456789abcdef" * 2
TOKEN = "fedcba9876543210"
PIN = pb.PinRequest(session_id=SESSION, token=TOKEN)


class Leader:
    """A leadership of one term, with a way to the bucket that can be made to stall or fail."""

    def __init__(self, bucket: ModelBucket, system: FakeSystem, term: int) -> None:
        self.bucket = FaultyBucket(bucket)
        self.meta = MetaStore(self.bucket, system)
        context = Context(meta=self.meta, bucket=self.bucket, system=system, options=NodeOptions(), nudge=lambda: None)
        self.leadership = Leadership(context, Feed(self.meta.version()), term)

    def open(self, *pins: pb.PinInfo) -> pb.OpenSessionResponse:
        opening = pb.OpenSessionRequest(session_id=SESSION, kind=pb.CLIENT, name="client", pins=pins)
        answer = self.leadership.call("OpenSession", opening, ANYONE)
        assert isinstance(answer, pb.OpenSessionResponse)
        return answer

    def pin(self) -> pb.PinInfo:
        answer = self.leadership.call("Pin", PIN, ANYONE)
        assert isinstance(answer, pb.PinResponse)
        return answer.pin


def reads_log(call: Call) -> bool:
    return call.operation == "get" and call.path.startswith("log/")


@pytest.fixture
def old(bucket: ModelBucket, system: FakeSystem) -> Leader:
    """The leader of term 1 of a store with one commit."""
    setup = MetaStore(bucket, system)
    setup.create_table(spec())
    setup.commit(request(1))
    return Leader(bucket, system, term=1)


def test_a_leader_replaced_while_it_takes_a_pin_leaves_the_new_leaders_pin(
    old: Leader, bucket: ModelBucket, system: FakeSystem
) -> None:
    """The client repeats its call at the new leader, with the same token; then the old one sees that it is replaced."""
    new = Leader(bucket, system, term=2)
    old.open()
    new.open()
    granted: list[pb.PinInfo] = []

    def take_over() -> None:
        granted.append(new.pin())
        old.leadership.close("replaced")

    old.bucket.stall(reads_log, take_over)
    with pytest.raises(Exception, match="session"):
        old.pin()
    assert [pin.id for pin in new.meta.live_pins()] == [granted[0].id]
    assert new.pin() == granted[0]


def test_a_leader_replaced_while_it_adopts_a_pin_leaves_it_to_the_new_leader(
    old: Leader, bucket: ModelBucket, system: FakeSystem
) -> None:
    """Its bucket fails just then: it must not delete the pin's object, which is the new leader's."""
    old.open()
    pin = old.pin()
    middle, new = Leader(bucket, system, term=2), Leader(bucket, system, term=3)
    middle.bucket.stall(reads_log, lambda: list(new.open(pin).lost_pins))
    middle.bucket.script = where("get", "log/", Fate.LOSE_REQUEST)
    with pytest.raises(ObjectStoreUnavailable):
        middle.open(pin)
    assert [held.id for held in new.meta.live_pins()] == [pin.id]


def test_a_leadership_that_ends_while_it_adopts_a_pin_does_not_renew_it_for_ever(
    old: Leader, bucket: ModelBucket, system: FakeSystem
) -> None:
    """The new leader releases the pin for its client, and the old one does not bring it back."""
    old.open()
    pin = old.pin()
    middle, new = Leader(bucket, system, term=2), Leader(bucket, system, term=3)

    def replace_leader() -> None:
        middle.leadership.close("replaced")
        new.open(pin)

    middle.bucket.stall(lambda call: call.operation == "put", replace_leader)
    middle.open(pin)
    new.leadership.call("Unpin", pb.UnpinRequest(session_id=SESSION, pin_id=pin.id), ANYONE)
    middle.meta.pins.renew()
    assert new.meta.live_pins() == []


def test_a_holder_that_stood_still_leaves_an_adopted_pin_alone(bucket: ModelBucket, system: FakeSystem) -> None:
    """Its lease lapsed, so it gives the pin up; the object of the same name belongs to the new leader by now."""
    keepers = [
        PinKeeper(bucket, system, VersionLog(bucket, system, owner=name), owner=name, retention_ms=0) for name in "ab"
    ]
    pin = keepers[0].pin(None, holder="a session")
    system.forward(61)
    adopted = keepers[1].adopt(pin.info, "a session")
    keepers[0].renew()
    assert f"pins/{adopted.info.id}" in bucket.objects
    adopted.check()


def test_a_pin_is_renewed_while_its_holder_still_reads_the_log(bucket: ModelBucket, system: FakeSystem) -> None:
    """Many appends of the same process come before the read, which can take longer than the lease."""
    slow = FaultyBucket(bucket)
    log = VersionLog(slow, system, owner="a")
    keeper = PinKeeper(slow, system, log, owner="a", retention_ms=0)

    def two_leases() -> None:
        for _ in range(6):
            system.forward(20)
            keeper.renew()

    log.refresh()
    slow.stall(lambda call: reads_log(call) and any(one.operation == "put" for one in slow.calls), two_leases)
    keeper.pin(None).check()


def test_the_pin_in_the_status_is_the_one_granted(old: Leader, bucket: ModelBucket, system: FakeSystem) -> None:
    """The next leader and the client both know it by its id."""
    old.open()
    pin = old.pin()
    new = Leader(bucket, system, term=2)
    assert list(new.open(pin).lost_pins) == []
    assert pin_from_message(pin).id in new.leadership.sessions.all()[0].pins
