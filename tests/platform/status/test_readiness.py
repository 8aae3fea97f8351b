"""Whether a replica is ready while its bucket is away: it says no, until the log has been read again."""

import threading
from collections.abc import Iterator
from contextlib import suppress

import pytest

from support.buckets.faulty_bucket import Fate, FaultyBucket
from support.store.versions import FakeSystem, ModelBucket
from support.waiting import WAIT_SECONDS, eventually
from tussock.meta.server.node import MetaNode
from tussock.meta.server.settings.node_options import NodeOptions
from tussock.meta.server.status.listed_pins import WAIT_SECONDS as LISTING_SECONDS
from tussock.meta.server.status.listed_pins import ListedPins
from tussock.meta.server.status.report import StatusReport
from tussock.statestore.base.system import RealSystem
from tussock.statestore.buckets import RequestCounts
from tussock.statestore.contract.backend import PinInfo
from tussock.statestore.errors import ObjectStoreUnavailable

PIN = PinInfo(id="a" * 16, epoch=7, owner="job", created_ms=1, expires_ms=2)


class Replica:
    """A follower, whose rounds the test makes."""

    def __init__(self) -> None:
        self.system = FakeSystem()
        self.bucket = FaultyBucket(ModelBucket(self.system))
        self.node = MetaNode(RequestCounts(self.bucket), self.system, NodeOptions())
        self.report = StatusReport(self.node, self.system)

    def follow(self, seconds: float) -> None:
        """Read the log, and let time pass."""
        with suppress(ObjectStoreUnavailable):
            self.node.meta.refresh()
        self.system.forward(seconds)

    def shows(self) -> tuple[bool, float, list[str]]:
        """Whether it is ready, the age of its version in seconds, and its problems of that kind."""
        status = self.report.whole()
        assert self.report.replica() == status.replica
        behind = [problem.kind for problem in status.problems if problem.kind == "behind"]
        return status.replica.ready, status.version.synced_age_ms / 1000, behind


@pytest.fixture
def replica() -> Replica:
    return Replica()


def test_a_replica_whose_bucket_is_away_is_not_ready_until_it_answers(replica: Replica) -> None:
    """Attempts that fail change nothing: the age grows until the log was read to its tail again."""
    replica.follow(1.0)
    assert replica.shows() == (True, 1.0, [])
    replica.bucket.script = lambda _: Fate.LOSE_REQUEST
    seen = []
    for _ in range(45):
        replica.follow(1.0)
        seen.append(replica.shows())
    assert seen[:3] == [(True, 2.0, []), (True, 3.0, []), (True, 4.0, [])]
    assert seen[4:] == [(False, float(age), ["behind"]) for age in range(6, 47)]
    replica.bucket.script = None
    replica.follow(0.5)
    assert replica.shows() == (True, 0.5, [])


def test_reads_of_a_bucket_that_is_away_ask_it_once_a_while(replica: Replica) -> None:
    """What is known stays readable: not each read waits for a request that fails."""
    replica.bucket.script = lambda _: Fate.LOSE_REQUEST
    replica.system.forward(1.0)
    replica.node.meta.recent()
    asked = len(replica.bucket.calls)
    for _ in range(10):
        replica.node.meta.recent()
    assert len(replica.bucket.calls) == asked


@pytest.fixture
def released() -> Iterator[threading.Event]:
    """Set at the end, so that no thread is left."""
    event = threading.Event()
    yield event
    event.set()


def test_a_status_waits_for_the_pins_a_moment_only(released: threading.Event) -> None:
    """While the bucket does not answer, one listing waits, and the pins of the one before are shown."""
    answers: list[list[PinInfo]] = [[PIN]]
    asked = []

    def ask() -> list[PinInfo]:
        asked.append(len(asked))
        if len(asked) == 2:
            released.wait(WAIT_SECONDS)
        return answers[-1]

    system = RealSystem()
    pins = ListedPins(ask, system)
    assert pins.live() == [PIN]
    began = system.monotonic()
    assert [pins.live(), pins.live()] == [[PIN], [PIN]]
    assert system.monotonic() - began >= 2 * LISTING_SECONDS
    assert len(asked) == 2, "the second of these did not ask once more"
    answers.append([])
    released.set()
    eventually(lambda: pins.live() == [])


def test_a_listing_that_fails_leaves_the_pins_as_they_were_known() -> None:
    """The status is there all the same, and the next one asks again."""
    failing = False

    def ask() -> list[PinInfo]:
        if failing:
            raise ObjectStoreUnavailable("the bucket is away")
        return [PIN]

    pins = ListedPins(ask, RealSystem())
    assert pins.live() == [PIN]
    failing = True
    assert pins.live() == [PIN]
    failing = False
    assert pins.live() == [PIN]
