"""Service, clients and compactors of two really different releases: the oldest that is promised, and the present one.

The older one is unpacked from the history (`OLDEST`), and runs in processes of the same Python. Without the history the
tests are skipped.
"""

import threading
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from support.depth import DEPTH
from support.releases.older import OLDEST, ClientProcess, Release
from support.service.meta_process import CompactorProcess, MetaProcess
from tussock.meta.log.format import FORMAT_VERSION
from tussock.meta.rpc.methods import PROTOCOL_VERSION
from tussock.operator.plugin.kubectl import KubectlFailed
from tussock.operator.plugin.meta_nodes.access import meta_node
from tussock.operator.plugin.meta_nodes.promotion import hand_over, standing_of

pytestmark = pytest.mark.timeout(300)


@pytest.fixture(params=["older service", "older clients"])
def releases(request: pytest.FixtureRequest, older: Release, present: Release) -> tuple[Release, Release]:
    """Of the service, and of what talks to it."""
    return (older, present) if request.param == "older service" else (present, older)


@pytest.fixture
def service(releases: tuple[Release, Release], tmp_path: Path) -> Iterator[MetaProcess]:
    with MetaProcess((tmp_path / "store").as_uri(), environment=releases[0].environment) as meta:
        yield meta.wait_until_it_leads()


@pytest.fixture
def client(releases: tuple[Release, Release], service: MetaProcess) -> Iterator[ClientProcess]:
    with ClientProcess(releases[1], service.url) as found:
        found.create()
        yield found


def test_the_releases_are_really_two(older: Release, present: Release, tmp_path: Path) -> None:
    """Each process runs the code that its name says; the older one lacks calls that the present one has.

    Both have the format of the log and the protocol that the promise is about.
    """
    with MetaProcess((tmp_path / "store").as_uri(), environment=older.environment) as meta:
        for release in (older, present):
            with ClientProcess(release, meta.url) as client:
                assert client.folder.startswith(release.environment["PYTHONPATH"].partition(":")[0])
    folders = [Path(one.environment["PYTHONPATH"].split(":")[1], "tussock/meta") for one in (older, present)]
    texts = [(folder / "rpc/methods.py").read_text() for folder in folders]
    for line in (f"FORMAT_VERSION = {FORMAT_VERSION}\n", f"PROTOCOL_VERSION = {PROTOCOL_VERSION}\n"):
        files = "log/format.py" if line.startswith("FORMAT") else "rpc/methods.py"
        assert [line in (folder / files).read_text() for folder in folders] == [True, True], "move OLDEST"
    assert ["CommitEach" in text for text in texts] == [False, True], OLDEST
    assert ["HandOver" in text for text in texts] == [False, True], OLDEST


def test_commits_and_reads(client: ClientProcess, releases: tuple[Release, Release], service: MetaProcess) -> None:
    """A repeated commit is known; a client of the service's own release sees the same rows and epochs."""
    first = client.commit({"a": "1", "b": "1"}, "w", 1)
    second = client.commit({"a": "2", "b": None}, "w", 2)
    assert client.commit({"a": "2", "b": None}, "w", 2) == second > first
    with ClientProcess(releases[0], service.url) as other:
        other.wait(second)
        third = other.commit({"c": "3"})
        for one in (client, other):
            one.wait(third)
            assert (one.get("a"), one.get("b"), one.get("c")) == ("2", None, "3")
            assert (one.get("a", first), one.get("b", first)) == ("1", "1")


def test_commits_of_many_threads(client: ClientProcess) -> None:
    """The present client sends them together, and one by one where the service has no call for that."""
    epochs = client.commit_in_threads(8, 5)
    assert len(epochs) == 40
    assert client.count() == 40


def test_pins_hold_what_they_show(
    client: ClientProcess, releases: tuple[Release, Release], service: MetaProcess
) -> None:
    """Whatever compactors of the other release merge meanwhile, which drop what no pin needs."""
    client.commit({f"k{number}": "old" for number in range(50)})
    pin = client.pin()
    with CompactorProcess(service, "c", environment=releases[1].environment) as node:
        node.wait_until_connected()
        for turn in range(6):
            last = client.commit({f"k{number}": str(turn) for number in range(50)})
        client.compact()
    assert client.get_pinned(pin, "k7") == "old"
    assert client.get("k7", last) == "5"
    client.release(pin)


@pytest.mark.parametrize("asks", ["other"] if DEPTH == 1 else ["same", "other"])
def test_compactions(releases: tuple[Release, Release], service: MetaProcess, asks: str) -> None:
    """A compactor of one release works for a service of the other; clients of both read what it has merged."""
    with ExitStack() as stack:
        clients = [stack.enter_context(ClientProcess(release, service.url)) for release in releases]
        chosen = clients[asks == "other"]
        chosen.create()
        for turn in range(8):
            last = chosen.commit({f"k{number}": str(turn) for number in range(turn, 100)})
        node = stack.enter_context(CompactorProcess(service, "c", environment=releases[1].environment))
        node.wait_until_connected()
        chosen.compact()
        for one in clients:
            one.wait(last)
            assert one.count() == 100
            assert [one.get(f"k{number}") for number in (0, 3, 99)] == ["0", "3", "7"]


@pytest.mark.parametrize("way", ["forward", "back"])
def test_a_roll_of_the_service(older: Release, present: Release, tmp_path: Path, way: str) -> None:
    """A replica more of the next release, then the former leader drains, as in Kubernetes; and the same way back.

    Clients of both releases commit all the while and see no failure; nothing is lost or doubled.
    """
    former, following = (older, present) if way == "forward" else (present, older)
    store = (tmp_path / "store").as_uri()
    with ExitStack() as stack:
        first = stack.enter_context(MetaProcess(store, environment=former.environment)).wait_until_it_leads()
        second = stack.enter_context(MetaProcess(store, environment=following.environment))
        url = f"tussock://{first.address},{second.address}"
        clients = [stack.enter_context(ClientProcess(release, url)) for release in (former, following)]
        clients[0].create()
        stop, failures = threading.Event(), list[BaseException]()
        epochs: list[list[int]] = [[], []]

        def write(number: int) -> None:
            turn = 0
            while not stop.is_set():
                try:
                    made = clients[number].commit({f"c{number}-{turn}": "1"}, f"w{number}", turn)
                except BaseException as error:
                    failures.append(error)
                    return
                epochs[number].append(made)
                turn += 1

        writers = [threading.Thread(target=write, args=(number,)) for number in range(2)]
        for writer in writers:
            writer.start()
        try:
            second.wait_for(event="serving")
            waited = threading.Event()
            waited.wait(2)
            first.terminate()
            second.wait_until_it_leads()
            assert first.wait() == 0
            waited.wait(2)
        finally:
            stop.set()
            for writer in writers:
                writer.join(120)
        assert failures == []
        assert all(len(found) > 3 for found in epochs), epochs
        last = max(epochs[0][-1], epochs[1][-1])
        for one in clients:
            one.wait(last)
            assert one.count() == sum(map(len, epochs))


def test_a_pin_outlives_the_roll(older: Release, present: Release, tmp_path: Path) -> None:
    """The client brings its session and its pins along to a leader of the next release."""
    store = (tmp_path / "store").as_uri()
    with ExitStack() as stack:
        first = stack.enter_context(MetaProcess(store, environment=older.environment)).wait_until_it_leads()
        second = stack.enter_context(MetaProcess(store, environment=present.environment))
        url = f"tussock://{first.address},{second.address}"
        with ClientProcess(older, url) as client:
            client.create()
            client.commit({"a": "1"})
            pin = client.pin()
            last = client.commit({"a": "2"})
            first.terminate()
            second.wait_until_it_leads()
            again = client.commit({"b": "3"})
            assert again > last
            node = stack.enter_context(CompactorProcess(second, "c", environment=present.environment))
            node.wait_until_connected()
            client.compact()
            assert client.get_pinned(pin, "a") == "1"
            assert client.get("a") == "2"


def test_a_leader_of_the_older_release_cannot_hand_over(older: Release, tmp_path: Path) -> None:
    """`kubectl tussock promote` says what to do, and the leader leads on."""
    with (
        MetaProcess((tmp_path / "store").as_uri(), environment=older.environment) as meta,
        meta_node(meta.wait_until_it_leads().address, "", None) as node,
    ):
        with pytest.raises(KubectlFailed, match="the leader is of a release that cannot hand over; upgrade the meta"):
            hand_over(node, "127.0.0.1:1")
        assert standing_of(node).role == "leader"
