"""What is pushed with an id is taken once, however often it comes, and always has its first number."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from support.applications.serve_process import ServeProcess
from support.changelog.hand_clock import HandClock
from support.network.proxies import CutPort
from support.waiting import eventually
from tussock.compute import changelog as cl
from tussock.statestore import InvalidOption, StateStore, WaitTimeout, connect

SECONDS = 60
APP = "support.applications.served_orders:make"


@pytest.fixture
def store(tmp_path: Path) -> Iterator[StateStore]:
    with connect((tmp_path / "local").as_uri(), compaction=False) as opened:
        yield opened


def flow_of(store: StateStore, **options: float) -> cl.Flow:
    from support.applications.served_orders import SCHEMA

    prices = cl.Stream(store, "prices", schema=SCHEMA, key=["k"], queue=2)
    return cl.Flow(store, [prices, cl.Stream(store, "others", schema=SCHEMA, key=["k"])], **options)


def test_a_local_push_comes_again(store: StateStore) -> None:
    """In the same run, with a full queue, and after restarts, with a commit and without one."""
    with flow_of(store, checkpoint=3600) as flow:
        prices = flow.streams["prices"]
        first = prices.push([cl.insert(k="a", v=1)], request_id="one").result(SECONDS)
        flow.drain(SECONDS)
        assert prices.push([cl.insert(k="a", v=1)], request_id="one").result(SECONDS) == first
        flow.pause()
        second = prices.push([cl.insert(k="b", v=1)], request_id="two").result(SECONDS)
        prices.push([cl.insert(k="c", v=1)])
        with pytest.raises(cl.Full):
            prices.push([cl.insert(k="d", v=1)], wait=False, request_id="four")
        with pytest.raises(WaitTimeout):
            prices.push([cl.insert(k="d", v=1)], timeout=0.01, request_id="four")
        for options in ({"wait": False}, {"timeout": 0.01}):
            assert prices.push([cl.insert(k="b", v=1)], request_id="two", **options).result(SECONDS) == second
        with pytest.raises(InvalidOption, match="the request id 'two' was used for stream 'prices' before"):
            flow.streams["others"].push([cl.insert(k="b", v=1)], request_id="two").result(SECONDS)
        with pytest.raises(InvalidOption, match="request_id='no id'; expected 1 to 64 letters"):
            prices.push([], request_id="no id")
    with flow_of(store, checkpoint=3600) as flow:
        prices = flow.streams["prices"]
        third = prices.push([cl.insert(k="e", v=1)], request_id="three").result(SECONDS)
        # Its end is no end in order: the next one replays the log.
        with flow_of(store) as other:
            again = other.streams["prices"]
            assert again.push([cl.insert(k="b", v=1)], request_id="two").result(SECONDS) == second
            assert again.push([cl.insert(k="e", v=1)], request_id="three").result(SECONDS) == third
            other.drain(SECONDS)
            assert again.bad_rows() == []
            assert len(again.in_history()) == 4
        with pytest.raises(cl.ApplicationFenced):
            flow.stop()
        flow.stop()


class _Clock(HandClock):
    """All clocks stand where a test has set them, and the one of the time that has passed goes on besides."""

    def monotonic(self) -> float:
        return super().monotonic() + self.now_ms() / 1000


def test_an_id_is_kept_for_an_hour() -> None:
    """Then it goes, with a commit, and the same one is that of another transaction."""
    clock = _Clock()
    with connect("memory://", compaction=False, system=clock) as store, flow_of(store) as flow:

        def pushed() -> int:
            found: int = flow.streams["prices"].push([cl.upsert(k="a", v=1)], request_id="one").result(SECONDS)
            flow.drain(SECONDS)
            return found

        assert pushed() == 1
        clock.set(3599)
        assert pushed() == 1
        clock.set(3601)
        flow.streams["others"].push([cl.upsert(k="a", v=1)]).result(SECONDS)
        flow.drain(SECONDS)
        assert store.table("prices.push_ids").get("one") is None
        assert pushed() == 2


def test_a_reply_that_is_lost_comes_again(tmp_path: Path) -> None:
    """The connection breaks before it: the client sends the transaction once more, and it has one effect."""
    with (
        ServeProcess((tmp_path / "store").as_uri(), app=APP) as node,
        CutPort(node.address) as way,
        cl.Client(way.address) as client,
    ):
        prices = client.stream("prices")
        numbers = []
        for at in range(12):
            if at % 3 == 2:
                way.cut()
            numbers.append(prices.push([cl.insert(k=f"k{at}", v=1)]).result(SECONDS))
        assert way.cuts >= 3
        assert numbers == list(range(1, 13))
        eventually(lambda: client.status()["streams"][0]["taken"] == 12)
        assert prices.bad_rows() == []


def test_a_push_comes_again_after_the_node_was_killed(tmp_path: Path) -> None:
    """With its id, by another client; also where the queue is full, and it need not wait."""
    url = (tmp_path / "store").as_uri()
    with ServeProcess(url, app=APP) as node, cl.Client(node.address) as client:
        prices = client.stream("prices")
        client.pause()
        numbers = [prices.push([cl.insert(k=f"k{at}", v=1)], request_id=f"id-{at}").result(SECONDS) for at in range(4)]
        with pytest.raises(cl.Full):
            prices.push([cl.insert(k="other", v=1)], wait=False).result(SECONDS)
        for options in ({"wait": False}, {"timeout": 30}, {}):
            again = [prices.push([cl.insert(k="k2", v=1)], request_id="id-2", **options) for _ in range(2)]
            assert [one.result(SECONDS) for one in again] == [numbers[2]] * 2
        waiting = [prices.push([cl.insert(k="k4", v=1)], request_id="id-4") for _ in range(3)]
        client.resume()
        assert [one.result(SECONDS) for one in waiting] == [numbers[3] + 1] * 3
        with pytest.raises(InvalidOption, match="request_id='a b'; expected 1 to 64 letters"):
            prices.push([], request_id="a b")
        node.process.kill()
    with ServeProcess(url, app=APP) as node, cl.Client(node.address) as client:
        prices = client.stream("prices")
        for at, number in enumerate(numbers):
            assert prices.push([cl.insert(k=f"k{at}", v=1)], request_id=f"id-{at}").result(SECONDS) == number
        eventually(lambda: client.status()["streams"][0]["taken"] == 5)
        assert prices.bad_rows() == []
