"""`tussock call`, `submit` and their like at an application: how long they wait, and what they say then."""

import json
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from support.applications.serve_process import ServeProcess
from support.service.platforms import addresses
from support.store.command import Tussock
from support.waiting import eventually
from tussock.compute import procedures as ps

SECONDS = 60
SOON_SECONDS = 15
"""Well below the 30 seconds for which a client looks for its application, and enough for a busy machine."""


@pytest.fixture
def node(tmp_path: Path) -> Iterator[ServeProcess]:
    with ServeProcess((tmp_path / "store").as_uri()) as process:
        yield process


@pytest.fixture
def rows(tmp_path: Path) -> str:
    file = tmp_path / "rows.jsonl"
    file.write_text('{"n": 1}\n')
    return str(file)


def test_a_timeout_holds_where_no_node_is(tussock: Tussock, rows: str) -> None:
    """The command ends in its time, and says that nothing was sent and why."""
    (nobody,) = addresses(1)
    for command in (("call", nobody, "total"), ("submit", nobody, "take", "--rows", rows)):
        began = time.monotonic()
        ran = tussock(*command, "--timeout", "1")
        assert time.monotonic() - began < SOON_SECONDS
        assert (ran.code, ran.out) == (1, "")
        assert "could not be written or read" not in ran.err
        assert nobody in ran.err


def test_a_timeout_withdraws_what_has_not_begun(tussock: Tussock, node: ServeProcess, rows: str) -> None:
    """At a node that is paused: the command ends in its time, and what it asked for never runs."""
    assert tussock("pause", node.address).code == 0
    for command in (("call", node.address, "set", "9"), ("submit", node.address, "take", "--rows", rows)):
        began = time.monotonic()
        ran = tussock(*command, "--timeout", "1")
        assert time.monotonic() - began < SOON_SECONDS
        assert ran.code == 1
        assert "was not run" in ran.err
    assert tussock("resume", node.address).code == 0
    assert tussock("call", node.address, "total").out == "0\n"


def test_a_timeout_of_what_runs_says_that_its_outcome_is_not_known(
    tussock: Tussock, node: ServeProcess, rows: str, tmp_path: Path
) -> None:
    """It says how to be sure, and does not wait for what runs."""
    with ps.Client(node.address) as client:
        blocked = client.call_async("wait", str(tmp_path / "begun"), str(tmp_path / "gate"))
        eventually(lambda: (tmp_path / "begun").exists())
        ran = tussock("call", node.address, "wait", str(tmp_path / "other"), str(tmp_path / "gate"), "--timeout", "0.2")
        assert "was not run" in ran.err
        (tmp_path / "gate").touch()
        assert blocked.result(SECONDS) == "waited"
    (tmp_path / "gate").unlink()
    ran = tussock("call", node.address, "wait", str(tmp_path / "other"), str(tmp_path / "gate"), "--timeout", "2")
    assert (ran.code, (tmp_path / "other").exists()) == (1, True)
    assert ran.err == "error: no reply to call 'wait' within 2 s; the outcome is not known\n"
    (tmp_path / "gate").touch()
    assert tussock("submit", node.address, "take", "--rows", rows, "--timeout", "60").out == "1\n"


def test_status_shows_an_application(tussock: Tussock, node: ServeProcess, rows: str) -> None:
    """State, what waits, and the last batch of each border; the same as JSON; also in a pause."""
    assert tussock("submit", node.address, "take", "--rows", rows, "--batch-id", "7").code == 0
    assert tussock("submit", node.address, "take", "--rows", rows, "--batch-id", "3").code == 1
    tussock("pause", node.address)
    ran = tussock("status", node.address)
    assert (ran.code, ran.err) == (0, "")
    lines = [line.split() for line in ran.out.splitlines()]
    assert ["application", "numbers"] in lines
    assert ["state", "paused"] in lines
    assert ["take", "7", "clients", "or", "a", "feed", "taken"] in lines
    assert ["newest", "taken", "4", "rows", "0", "1"] in lines
    assert any(line[1:3] == ["submit", "InvalidBatch"] for line in lines)
    found = json.loads(tussock("status", node.address, "--json").out)
    assert (found["state"], found["waiting"]) == ("paused", 0)


def test_status_needs_one_of_the_two(tussock: Tussock, monkeypatch: pytest.MonkeyPatch, node: ServeProcess) -> None:
    """An address goes before the variable that names a meta service, as for `pause`."""
    monkeypatch.delenv("TUSSOCK_META", raising=False)
    ran = tussock("status")
    assert ran.code == 2
    assert "HOST:PORT of an application; or --meta" in ran.err
    (nobody,) = addresses(1)
    assert tussock("status", nobody).code == 1
    monkeypatch.setenv("TUSSOCK_META", nobody)
    assert "numbers" in tussock("status", node.address).out


def test_a_batch_that_was_given_before_is_noted(
    tussock: Tussock, node: ServeProcess, rows: str, tmp_path: Path
) -> None:
    """Its first reply comes again, whatever the rows are now, and stderr says that they were not run."""
    (tmp_path / "bad.jsonl").write_text('{"n": -1}\n')
    for number, file, code, out in ((1, rows, 0, "1\n"), (2, str(tmp_path / "bad.jsonl"), 1, "")):
        command = ("submit", node.address, "take", "--batch-id", str(number), "--rows")
        first = tussock(*command, file)
        assert (first.code, first.out) == (code, out)
        assert "given before" not in first.err
        again = tussock(*command, rows)
        assert (again.code, again.out) == (code, out)
        assert f"batch {number} of take was given before" in again.err
    skipped = tussock("submit", node.address, "take", "--batch-id", "5", "--rows", rows)
    assert (skipped.out, skipped.err) == ("2\n", "")
    late = tussock("submit", node.address, "take", "--batch-id", "4", "--rows", rows)
    assert (late.code, "given before" in late.err) == (1, False)
