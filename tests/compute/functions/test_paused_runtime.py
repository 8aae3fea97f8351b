"""Requests of a runtime that wait: in a pause, for a caller that withdraws them, and when there are too many."""

import threading
from collections.abc import Iterator
from concurrent.futures import CancelledError, Future
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from support.applications.served_bank import START, bank
from tussock.compute import functions as fn
from tussock.compute.applications.ipc_streams import ipc_bytes
from tussock.compute.service.rpc import application_pb2 as pb
from tussock.statestore import StateStore, connect

SECONDS = 120


@pytest.fixture
def store(tmp_path: Path) -> Iterator[StateStore]:
    with connect((tmp_path / "store").as_uri(), compaction=False) as opened:
        yield opened


def test_a_pause_holds_epochs_back_and_a_stop_ends_it(store: StateStore) -> None:
    """Looks answer meanwhile; what waits at the stop runs."""
    with bank(store) as runtime:
        runtime.pause()
        kept = runtime.send("account", "p0", "transfer", "p1", 10)
        assert runtime.query("account", "p0") == {"balance": START}
        assert (runtime.status()["state"], runtime.stats()["waiting"]) == ("paused", 1)
        runtime.resume()
        assert kept.result(SECONDS) == START - 10
        assert runtime.status()["state"] == "running"
        runtime.pause()
        last = runtime.send("account", "p0", "transfer", "p1", 10)
    assert last.result(SECONDS) == START - 20
    assert runtime.status()["state"] == "stopped"
    for ask in (runtime.pause, runtime.resume):
        with pytest.raises(fn.ApplicationStopped):
            ask()


def test_an_epoch_has_its_most_requests_and_no_more(store: StateStore) -> None:
    """X14: by number, of those that wait; the last one ends by time."""
    with bank(store, epoch_ms=1, epoch_max=3) as runtime:
        runtime.pause()
        asked = [runtime.send("cell", f"k{at}", "write", at, request_id=f"r{at}") for at in range(7)]
        runtime.resume()
        for one in asked:
            one.result(SECONDS)
        graphs = [runtime.call_graph(f"r{at}") for at in range(7)]
        assert [(one["tid"], one["epoch"]) for one in graphs if one] == list(enumerate([1, 1, 1, 2, 2, 2, 3], 1))


def test_what_is_withdrawn_before_its_epoch_does_not_run(store: StateStore) -> None:
    """The others of its epoch do, and its id is free for another request."""
    with bank(store) as runtime:
        runtime.pause()
        withdrawn = runtime.send("account", "p0", "transfer", "p1", 10, request_id="one")
        kept = runtime.send("account", "p0", "transfer", "p1", 1)
        assert withdrawn.cancel()
        again = runtime.send("account", "p0", "transfer", "p1", 2, request_id="one")
        runtime.resume()
        assert (kept.result(SECONDS), again.result(SECONDS)) == (START - 1, START - 3)
        assert not kept.cancel()
        assert runtime.stats()["lock_free"] + runtime.stats()["locked"] == 2
        assert runtime.query("account", "p0") == {"balance": START - 3}


def test_no_epoch_begins_once_a_pause_has_returned(store: StateStore) -> None:
    """Story: one for which requests were being gathered took those that came behind the pause."""
    with bank(store, epoch_ms=60_000) as runtime:
        gathered = runtime.send("account", "p0", "transfer", "p1", 10)
        runtime.pause()
        later = [runtime.send("account", "p0", "transfer", "p1", 1) for _ in range(2)]
        # Between two epochs, so it answers when the one that was being gathered has been given up.
        assert runtime.query("account", "p0") == {"balance": START}
        assert not gathered.done()
        assert later[0].cancel()
        assert runtime.stats()["epochs"] == 0
        # A stop runs what waits.
    assert (gathered.result(SECONDS), later[1].result(SECONDS)) == (START - 10, START - 11)


def test_many_are_withdrawn_until_the_first_begins(store: StateStore) -> None:
    """All or none of them; then the future of the table is not to be cancelled, as that of one request."""
    columns = {"to": ["p2"] * 2, "amount": [10, 20]}
    with bank(store) as runtime:
        runtime.pause()
        withdrawn = runtime.send_many_async("account", "transfer", ["p0", "p1"], columns)
        kept = runtime.send_many_async("account", "transfer", ["p0", "p1"], columns)
        assert withdrawn.cancel()
        assert withdrawn.cancelled()
        runtime.resume()
        assert kept.result(SECONDS)["reply"].to_pylist() == [START - 10, START - 20]
        assert not kept.cancel()
        assert runtime.query("account", "p2") == {"balance": START + 30}
    with pytest.raises(CancelledError):
        withdrawn.result(SECONDS)


def test_a_node_refuses_what_has_no_room(store: StateStore) -> None:
    """Its loop must not wait: five times ten thousand requests wait in a pause, and one more is `Full`."""
    keys = [f"k{at}" for at in range(10_000)]
    many = pb.SendMany(operator="cell", function="write", arrow=ipc_bytes(pa.table({"": keys, "value": range(10_000)})))
    one = pb.Send(operator="cell", key=b"\xa1k", function="value")
    with bank(store) as runtime:
        served = runtime.served()
        runtime.pause()
        futures = [served.begin("send_many", pb.Request(send_many=many)) for _ in range(5)]
        for kind, request in (("send_many", pb.Request(send_many=many)), ("send", pb.Request(send=one))):
            with pytest.raises(fn.Full):
                served.begin(kind, request)
        runtime.resume()
        assert [future.result(SECONDS).num_rows for future in futures] == [10_000] * 5
        assert served.begin("send", pb.Request(send=one)).result(SECONDS) is None
        assert runtime.query("cell", "k9999") == {"value": 9999}


def test_withdrawn_requests_make_room(store: StateStore) -> None:
    """Story: they kept their place until the end of the pause, and a sender waited a minute for `Full`."""
    with bank(store) as runtime:
        runtime.pause()
        futures = [runtime.send("cell", f"k{at}", "write", at, request_id=f"r{at}") for at in range(50_000)]
        assert runtime.room == 0
        sent: list[Future[Any]] = []
        sender = threading.Thread(target=lambda: sent.append(runtime.send("cell", "late", "write", 7)))
        # All of them before anybody looks for room, which may be amid them otherwise.
        assert sum(future.cancel() for future in futures[:25_000]) == 25_000
        sender.start()
        sender.join(30)
        assert not sender.is_alive()
        assert runtime.stats()["waiting"] == 25_001
        runtime.resume()
        assert [future.result(SECONDS) for future in (*sent, futures[-1])] == [None, None]
        assert (runtime.query("cell", "k0"), runtime.query("cell", "k49999")) == (None, {"value": 49_999})
