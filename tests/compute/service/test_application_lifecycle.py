"""How a node begins, pauses, is replaced and ends."""

import contextlib
import signal
import threading
import time
from pathlib import Path

import pytest

from support.applications.serve_process import ServeProcess
from support.waiting import eventually
from tussock.compute import procedures as ps
from tussock.compute.service.server.serve import FENCED
from tussock.statestore import connect
from tussock.statestore.errors import WaitTimeout

SECONDS = 60


def test_sigterm_answers_what_was_taken(tmp_path: Path) -> None:
    """With 64 requests under way all are answered and committed, none is run behind them, and the code is 0."""
    url = (tmp_path / "store").as_uri()
    with ServeProcess(url, environment={}) as node, ps.Client(node.address, deadline=2.0) as client:
        blocked = client.call_async("wait", str(tmp_path / "begun"), str(tmp_path / "gate"))
        tickets = [client.submit("take", [{"n": 1}]) for _ in range(63)]
        eventually(lambda: (tmp_path / "begun").exists() and node.status()["outstanding"] == 64)
        node.terminate()
        node.wait_for(event="draining")
        assert node.get("/readyz")[0] == 503
        assert node.get("/healthz")[0] == 200
        assert node.status()["state"] == "draining"
        late = client.submit("take", [{"n": 1000}])
        (tmp_path / "gate").touch()
        assert blocked.result(SECONDS) == "waited"
        assert [ticket.result(SECONDS) for ticket in tickets] == list(range(1, 64))
        assert node.wait() == 0
        with pytest.raises(ps.ServiceUnavailable):
            late.result(SECONDS)
    with connect(url) as store:
        assert store.table("sums").get(0) == {"id": 0, "sum": 63}


def test_a_request_behind_a_drain_reaches_the_successor(tmp_path: Path) -> None:
    """What the first node did not take goes to the next one at the address, once."""
    url = (tmp_path / "store").as_uri()
    with ServeProcess(url) as first:
        address = first.address
        with ps.Client(address) as client:
            blocked = client.call_async("wait", str(tmp_path / "begun"), str(tmp_path / "gate"))
            eventually(lambda: (tmp_path / "begun").exists())
            client.drain()
            first.wait_for(event="draining")
            # Told on the conversation before anything else is sent on it.
            late = [client.submit("take", [{"n": 1}]) for _ in range(10)]
            (tmp_path / "gate").touch()
            assert blocked.result(SECONDS) == "waited"
            assert first.wait() == 0
            with ServeProcess(url, "--listen", address):
                assert [ticket.result(SECONDS) for ticket in late] == list(range(1, 11))


def test_a_second_signal_ends_at_once(tmp_path: Path) -> None:
    """What waits is given up; the next start has what was durable."""
    with ServeProcess((tmp_path / "store").as_uri()) as node, ps.Client(node.address) as client:
        blocked = client.call_async("wait", str(tmp_path / "begun"), str(tmp_path / "gate"))
        eventually(lambda: (tmp_path / "begun").exists())
        node.terminate()
        node.wait_for(event="draining")
        node.process.send_signal(signal.SIGINT)
        assert node.wait() == 1
        with pytest.raises(ps.OutcomeUnknown):
            blocked.result(SECONDS)


def test_a_drain_ends_in_its_time(tmp_path: Path) -> None:
    """A procedure that does not return keeps the process no longer than `drain_seconds`; the code tells."""
    process = ServeProcess((tmp_path / "store").as_uri(), "--drain-seconds", "0.5")
    with process as node, ps.Client(node.address) as client:
        blocked = client.call_async("wait", str(tmp_path / "begun"), str(tmp_path / "gate"))
        eventually(lambda: (tmp_path / "begun").exists())
        node.terminate()
        began = time.monotonic()
        assert node.wait() == 1
        # The procedure itself gives up after a minute.
        assert time.monotonic() - began < SECONDS / 2
        with pytest.raises(ps.OutcomeUnknown):
            blocked.result(SECONDS)


def test_a_second_node_shuts_the_first_one_out(tmp_path: Path) -> None:
    """The first one learns of it at its next write, says so, is not ready, and ends with a code for it."""
    url = (tmp_path / "store").as_uri()
    with ServeProcess(url) as first, ps.Client(first.address) as old:
        assert old.submit("take", [{"n": 1}]).result(SECONDS) == 1
        with ServeProcess(url) as second, ps.Client(second.address) as new:
            assert new.submit("take", [{"n": 2}]).result(SECONDS) == 3
            with pytest.raises(ps.ApplicationFenced):
                old.submit("take", [{"n": 4}]).result(SECONDS)
            # For a second it says so; on a busy machine it may be over before this asks.
            with contextlib.suppress(OSError):
                code, text = first.get("/readyz")
                assert (code, "has ended" in text) == (503, True)
            assert first.wait() == FENCED
            assert any(line["event"].startswith("fenced") for line in first.lines)
            assert new.submit("take", [{"n": 5}]).result(SECONDS) == 8


def test_a_pause_holds_requests_back(tmp_path: Path) -> None:
    """They are taken and not run; looks are answered; after it they run in their order."""
    with ServeProcess((tmp_path / "store").as_uri()) as node, ps.Client(node.address) as client:
        client.pause()
        tickets = [client.submit("take", [{"n": 1}]) for _ in range(20)]
        eventually(lambda: node.status()["waiting"] == 20)
        status = client.status()
        assert (status["state"], status["paused"], status["ready"]) == ("paused", True, True)
        assert client.trace() == []
        assert client.stats()["records"] == 0
        assert client.window_rows("newest").num_rows == 0
        assert not any(ticket.done() for ticket in tickets)
        client.resume()
        assert [ticket.result(SECONDS) for ticket in tickets] == list(range(1, 21))
        client.pause()
        tickets = [client.submit("take", [{"n": 1}]) for _ in range(5)]
        eventually(lambda: node.status()["waiting"] == 5)
        node.terminate()
        assert [ticket.result(SECONDS) for ticket in tickets] == list(range(21, 26))
        assert node.wait() == 0


def test_the_local_application_pauses_too(tmp_path: Path) -> None:
    """`App.pause` and `App.resume`, and a stop that runs what waits."""
    from support.applications.served_program import make

    with connect((tmp_path / "store").as_uri()) as store:
        app = make(store)
        with pytest.raises(ps.ApplicationStopped):
            app.pause()
        with app:
            app.pause()
            tickets = [app.submit("take", [{"n": 1}]) for _ in range(3)]
            withdrawn = app.submit("take", [{"n": 100}])
            assert app.trace() == []
            assert app.status()["state"] == "paused"
            assert withdrawn.cancel()
            app.resume()
            assert [ticket.result(SECONDS) for ticket in tickets] == [1, 2, 3]
            app.pause()
            last = app.submit("take", [{"n": 1}])
        assert last.result(0) == 4


def test_a_deadline_withdraws_what_has_not_begun(tmp_path: Path) -> None:
    """The service answers that it was not run, and it was not."""
    from tussock.compute.procedures.remote.client import Client
    from tussock.compute.service.rpc import application_pb2 as pb

    with ServeProcess((tmp_path / "store").as_uri()) as node, Client(node.address) as client:
        client.pause()
        request = pb.Request(call=pb.Call(name="set", arguments=b"\x91\x09"), deadline_ms=50)
        late = client.ask(request, is_repeatable=False)
        with pytest.raises(WaitTimeout):
            late.result(SECONDS)
        client.resume()
        assert client.call("total", timeout=SECONDS) == 0


def test_a_lost_connection_is_honest(tmp_path: Path) -> None:
    """A call that was sent has an unknown outcome; a batch with an id goes again, for its first reply."""
    url = (tmp_path / "store").as_uri()
    with ServeProcess(url) as first:
        address = first.address
        with ps.Client(address) as client:
            client.stats()
            client.pause()
            named = client.submit("take", [{"n": 1}], batch_id=5)
            unnamed = client.submit("take", [{"n": 10}])
            called = client.call_async("total")
            eventually(lambda: first.status()["waiting"] == 3)
            first.process.kill()
            first.wait()
            for ticket in (unnamed, called):
                with pytest.raises(ps.OutcomeUnknown):
                    ticket.result(SECONDS)
            with ServeProcess(url, "--listen", address):
                assert named.result(SECONDS) == 1
                assert client.call("total", timeout=SECONDS) == 1


def test_many_clients_at_once(tmp_path: Path) -> None:
    """Sixteen clients in threads: each gets the replies of its requests."""
    with ServeProcess((tmp_path / "store").as_uri()) as node:
        wrong: list[object] = []

        def work(name: int) -> None:
            with ps.Client(node.address, outstanding=7) as client:
                tickets = [(at, client.call_async("echo", name, at)) for at in range(50)]
                wrong.extend(at for at, ticket in tickets if ticket.result(SECONDS) != [name, at])

        threads = [threading.Thread(target=work, args=(name,)) for name in range(16)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert wrong == []
        eventually(lambda: node.status()["conversations"] == 0)
