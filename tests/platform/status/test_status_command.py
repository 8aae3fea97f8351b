"""`tussock status` against real replicas over gRPC."""

import json
import re
import sys
from collections.abc import Iterator
from pathlib import Path

import msgspec
import pytest

from support.buckets.minio import free_port
from support.service.platforms import Platform, Replica
from support.waiting import eventually
from tussock.cli.main import main
from tussock.meta.server.status.document import ServiceStatus


@pytest.fixture
def platform(tmp_path: Path) -> Iterator[Platform]:
    with Platform((tmp_path / "store").as_uri(), replicas=2) as platform:
        yield platform


def run(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, *arguments: str) -> tuple[int, str, str]:
    monkeypatch.setattr(sys, "argv", ["tussock", "status", *arguments])
    with pytest.raises(SystemExit) as ended:
        main()
    out, err = capsys.readouterr()
    return int(ended.value.code or 0), out, err


def test_status_shows_tables_nodes_and_problems(
    platform: Platform, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The leader's status, whichever replica was named, with problems first."""
    store = platform.connect()
    kv = store.create_table("flights")
    epoch = store.new_epoch()
    kv.ingest_batch([(b"a", b"1")], epoch)
    store.commit_epoch(epoch)
    leader = platform.leader.address
    (other,) = (replica for replica in platform.replicas if replica.address != leader)
    # It looks at the lease now and then; until it has seen that somebody leads, it cannot send anybody there.
    eventually(lambda: other.node.leader_address == leader)
    follower = other.address
    code, out, err = run(capsys, monkeypatch, "--meta", follower)
    assert (code, err) == (0, "")
    lines = out.splitlines()
    assert lines[0].startswith("warning: No compactor is connected")
    assert any(line.split()[:2] == ["leader", f"{leader},"] for line in lines)
    assert any(line.split()[:5] == ["flights", "L0", "1", "1", "1"] for line in lines)
    assert any("client" in line.split() for line in lines)
    assert str(epoch) in out


def test_the_leader_shows_who_follows_it(
    platform: Platform, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each replica lists both: the leader has the follower with its last sign of life."""
    leader = platform.wait_for_leader()
    (other,) = (replica for replica in platform.replicas if replica is not leader)

    def roles(replica: Replica) -> dict[str, str]:
        return {one.address: one.role for one in replica.report.status().replicas}

    both = {leader.address: "leader", other.address: "follower"}
    eventually(lambda: roles(leader) == both and roles(other) == both)
    _, out, _ = run(capsys, monkeypatch, "--meta", leader.address)
    (line,) = (line for line in out.splitlines() if line.startswith("followers"))
    assert re.fullmatch(rf"followers +{other.address} \([0-9.]+ s ago\) *", line)


def test_status_as_json_is_the_documented_one(
    platform: Platform, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """One document, which parses as a status; an unreachable replica is reported on stderr."""
    away = f"127.0.0.1:{free_port()}"
    code, out, err = run(capsys, monkeypatch, "--json", "--meta", f"{away},{platform.leader.address}")
    assert code == 0
    told = msgspec.json.decode(out, type=ServiceStatus)
    assert told.replica.role == "leader"
    assert json.loads(out)["store_url"] == told.store_url
    assert f"no answer from {away}" in err


def test_status_reports_that_no_replica_answers(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    code, out, err = run(capsys, monkeypatch, "--meta", f"127.0.0.1:{free_port()}")
    assert (code, out) == (1, "")
    assert err.startswith("error: no replica of the meta service answered: 127.0.0.1:")
