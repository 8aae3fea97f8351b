"""Pins are shared out: a reader that takes as many as it can leaves room for others, and for those that come back."""

import hashlib

import pytest

from support.store.versions import FakeSystem, ModelBucket, request, spec
from tussock.meta.meta_store import MetaStore
from tussock.meta.node.auth.caller import Caller
from tussock.meta.rpc import meta_pb2 as pb
from tussock.meta.rpc.methods import Role
from tussock.meta.server.context import Context
from tussock.meta.server.feed import Feed
from tussock.meta.server.handlers.pins import PINS_MAX
from tussock.meta.server.leadership import Leadership
from tussock.meta.server.settings.node_options import NodeOptions
from tussock.statestore.errors import LimitReached

SESSIONS = 2
"""Of each caller: one may hold 1,000 pins."""


class Service:
    """One leader, on a bucket in memory that is shared with the next one."""

    def __init__(self, bucket: ModelBucket, system: FakeSystem, term: int = 1) -> None:
        context = Context(
            meta=MetaStore(bucket, system),
            bucket=bucket,
            system=system,
            options=NodeOptions(),
            nudge=lambda: None,
        )
        self.leadership = Leadership(context, Feed(context.meta.version()), term)

    def take(self, who: Caller, most: int = PINS_MAX) -> list[pb.PinInfo]:
        """Pin until the service refuses, or up to that many; returns the pins."""
        taken: list[pb.PinInfo] = []
        for session in sessions_of(who):
            self.open(who, session)
            for number in range(1000):
                if len(taken) == most:
                    return taken
                try:
                    answer = self.leadership.call("Pin", pb.PinRequest(session_id=session, token=f"{number:016x}"), who)
                except LimitReached:
                    return taken
                assert isinstance(answer, pb.PinResponse)
                taken.append(answer.pin)
        return taken

    def open(self, who: Caller, session: str, pins: list[pb.PinInfo] | None = None) -> list[str]:
        """Open a session with the pins that it had; returns those that are lost."""
        opening = pb.OpenSessionRequest(session_id=session, kind=pb.CLIENT, name="a", pins=pins or [])
        answer = self.leadership.call("OpenSession", opening, who)
        assert isinstance(answer, pb.OpenSessionResponse)
        return list(answer.lost_pins)


def sessions_of(who: Caller) -> list[str]:
    return [
        hashlib.sha256(f"{who.identity} {who.host} {number}".encode()).hexdigest()[:32] for number in range(SESSIONS)
    ]


def caller(identity: str, host: str = "10.0.0.1") -> Caller:
    return Caller(identity, Role.READER, host=host)


@pytest.fixture
def bucket(system: FakeSystem) -> ModelBucket:
    found = ModelBucket(system)
    setup = MetaStore(found, system)
    setup.create_table(spec())
    setup.commit(request(1))
    return found


@pytest.fixture
def system() -> FakeSystem:
    return FakeSystem()


def test_one_reader_cannot_take_all_pins(bucket: ModelBucket, system: FakeSystem) -> None:
    """From one host it gets a half, from three hosts three quarters; then others of any identity find room."""
    service = Service(bucket, system)
    hosts = [len(service.take(caller("reader", host))) for host in ("10.0.0.1", "10.0.0.2", "10.0.0.3")]
    assert hosts == [1000, 500, 0]
    assert len(service.take(caller("writer", "10.0.0.9"))) == 250
    assert len(service.take(caller("admin", "10.0.0.1"))) == 125


def test_a_change_of_leader_loses_no_pin_by_the_order_of_coming_back(bucket: ModelBucket, system: FakeSystem) -> None:
    """An identity that has more than its share by now, since others came back first, keeps what it was granted."""
    service = Service(bucket, system)
    first, second = caller("reader", "10.0.0.1"), caller("other", "10.0.0.2")
    pins = {first: service.take(first), second: service.take(second)}
    assert [len(found) for found in pins.values()] == [1000, 500]
    service.leadership.close("replaced")
    later = Service(bucket, system, term=2)
    for who in (second, first):
        shown = pins[who]
        lost = [
            later.open(who, session, shown[1000 * n : 1000 * (n + 1)]) for n, session in enumerate(sessions_of(who))
        ]
        assert lost == [[], []]
    assert later.take(caller("third", "10.0.0.3"), most=100)
    with pytest.raises(LimitReached, match="from one host as many"):
        later.leadership.call("Pin", pb.PinRequest(session_id=sessions_of(first)[1], token="f" * 16), first)
