"""A node of `tussock serve` whose functions run in workers."""

from pathlib import Path

from support.applications.serve_process import ServeProcess
from support.applications.served_bank import PEOPLE, START
from tussock.compute import functions as fn

SECONDS = 60
APP = "support.applications.served_bank:with_workers"
WITHOUT = "support.applications.served_bank:make"


def test_a_node_with_workers_serves_is_killed_and_drains(tmp_path: Path) -> None:
    """Clients notice nothing of workers; a successor that is told how many gives the first reply again, and drains."""
    url = (tmp_path / "store").as_uri()
    first = ServeProcess(url, app=APP)
    address = first.address
    with fn.Client(address, deadline=SECONDS) as client:
        futures = [
            client.send("account", f"p{at % PEOPLE}", "transfer", f"p{(at + 1) % PEOPLE}", 1) for at in range(200)
        ]
        assert [future.exception(SECONDS) for future in futures] == [None] * 200
        assert client.send("account", "p0", "transfer", "p1", 30, request_id="once").result(SECONDS) == 70
        assert client.status()["workers"] == 2
        client.send_many("purse", "fill", [1, 2], {"coins": [9, 0]})
        replies = client.send_many("purse", "give", [1], {"to": [2], "coins": [4]})
        assert replies["reply"].to_pylist() == [5]
        first.process.kill()
        first.wait()
        second = ServeProcess(url, "--listen", address, "--workers", "3", app=WITHOUT)
        assert client.send("account", "p0", "transfer", "p1", 30, request_id="once").result(SECONDS) == 70
        assert client.status()["workers"] == 3
        found = [client.query("account", f"p{at}") for at in range(PEOPLE)]
        assert found == [{"balance": START + {0: -30, 1: 30}.get(at, 0)} for at in range(PEOPLE)]
        assert client.query("purse", 2) == {"coins": 4}
    second.terminate()
    assert second.wait() == 0
