"""The commands for a flow behind `tussock serve`: push, subscribe, history, bad-rows, break, breakpoints, step."""

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from support.applications.serve_process import ServeProcess
from support.store.command import Tussock
from support.waiting import eventually

APP = "support.applications.served_orders:make"


@pytest.fixture(scope="module")
def node(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServeProcess]:
    with ServeProcess((tmp_path_factory.mktemp("flow") / "store").as_uri(), app=APP) as process:
        yield process


@pytest.fixture
def push(tussock: Tussock, node: ServeProcess, tmp_path: Path) -> Iterator[object]:
    """Push records as JSON lines; returns the transaction's number."""

    def run(*rows: dict[str, object], to: str = "prices") -> int:
        file = tmp_path / "rows.jsonl"
        file.write_text("".join(json.dumps(row) + "\n" for row in rows))
        ran = tussock("push", node.address, to, "--rows", str(file))
        assert ran.code == 0, ran.err
        return int(ran.json())

    yield run
    assert tussock("resume", node.address).code == 0


def test_records_go_in_and_come_out(tussock: Tussock, node: ServeProcess, push: object) -> None:
    """Operations by `_op`; what the stream publishes from a number on, and in its history."""
    first = push({"k": "a", "v": 5}, {"k": "b", "v": 10, "_op": "Insert"})  # type: ignore[operator]
    assert push({"k": "a", "v": 20}, {"k": "b", "_op": "delete"}) == first + 1  # type: ignore[operator]
    ran = tussock("subscribe", node.address, "shares", "--from", "0", "--count", "2", "--timeout", "60")
    assert ran.code == 0
    assert [(line["_seq"], line["_op"], line["k"], line["v"]) for line in ran.lines()] == [
        *((1, "INSERT", "a", 20), (1, "INSERT", "b", 10), (2, "UPDATE", "a", 5), (2, "DELETE", "b", 10))
    ]
    blocks = tussock("subscribe", node.address, "shares", "-f", "2", "-n", "1", "--blocks").lines()
    assert [(line["_op"], line["v"]) for line in blocks] == [("UPDATE_BLOCK", 5), ("DELETE", 20), ("DELETE", 10)]
    quiet = tussock("subscribe", node.address, "shares", "--timeout", "0.2")
    assert (quiet.code, quiet.out) == (0, "")
    assert "published nothing for 0.2 s" in quiet.err
    history = tussock("history", node.address, "shares", "--json").lines()
    assert history[-2] == {"_seq": 2, "_time": history[-2]["_time"], "_op": "UPDATE_BLOCK", "k": "a", "v": 5} | {
        "_old": {"k": "a", "v": 20}
    }
    taken = tussock("history", node.address, "prices", "--side", "taken", "--last", "1").out
    assert "UPSERT" in taken
    assert "k=a v=20" in taken


def test_an_operation_that_is_none_is_told(tussock: Tussock, node: ServeProcess, tmp_path: Path) -> None:
    """With its line, and with all that there are."""
    file = tmp_path / "rows.jsonl"
    file.write_text('{"k": "a", "v": 5}\n{"k": "a", "_op": "merge"}\n')
    ran = tussock("push", node.address, "prices", "--rows", str(file))
    assert ran.code == 2
    assert "line 2 has the operation 'merge'; expected one of INSERT, UPDATE, UPSERT, DELETE, SAFEDELETE" in ran.err


def test_values_of_all_types(tussock: Tussock, node: ServeProcess, push: object) -> None:
    """Dates, decimals and bytes as every command writes them."""
    row = {"day": "2026-11-23", "n": 1, "price": "1.50", "raw": {"hex": "00ff"}}
    push(row, to="moments")  # type: ignore[operator]
    [line] = tussock("subscribe", node.address, "moments", "-f", "0", "-n", "1").lines()
    assert line == {"_seq": 1, "_op": "INSERT", **row}


def test_what_is_no_record_is_refused(tussock: Tussock, node: ServeProcess, tmp_path: Path) -> None:
    """A wrong column, operation or value, and a stream that there is not."""
    file = tmp_path / "rows.jsonl"
    for text, code, why in (
        ('{"k": "a", "x": 1}', 1, "'x'"),
        ('{"k": "a", "v": 1, "_op": "REPLACE"}', 2, "operation"),
        ("nothing", 2, "no JSON"),
        ('{"k": "a", "v": "many"}', 2, "'many'"),
    ):
        file.write_text(text)
        ran = tussock("push", node.address, "prices", "--rows", str(file))
        assert (ran.code, ran.out) == (code, "")
        assert why in ran.err
    assert "no stream 'nothing'" in tussock("history", node.address, "nothing").err


def test_a_flow_is_stepped_through(tussock: Tussock, node: ServeProcess, push: object) -> None:
    """A breakpoint by a condition, where the flow stands, steps, queues that are worked off, and on."""
    number = tussock("break", node.address, "shares", "v == 50 and op == 'INSERT'").json()
    push({"k": "c", "v": 50})  # type: ignore[operator]
    eventually(lambda: "shares COMPUTE" in tussock("status", node.address).out)
    [found] = tussock("breakpoints", node.address, "--json").lines()
    assert (found["number"], found["hits"], found["enabled"]) == (number, 1, True)
    stood = tussock("step", node.address).json()
    assert (stood["stream"], stood["location"], stood["out_row"]) == (
        *("shares", "PUT", [{"_op": "UPSERT", "k": "c", "v": 2}]),
    )
    assert tussock("step", node.address, "location").json()["location"] == "INPUT"
    assert tussock("step", node.address, "base").json()["location"] == "INPUT"
    assert tussock("step", node.address, "--every", "0.05").code == 0
    assert tussock("step", node.address, "--every", "0").code == 0
    assert tussock("step", node.address, "base", "--every", "1").code == 2
    assert tussock("breakpoints", node.address, "--disable", str(number), "--json").lines()[0]["enabled"] is False
    assert "each record" not in tussock("breakpoints", node.address, "--enable", str(number)).out
    assert tussock("breakpoints", node.address, "--remove", str(number), "--json").out == ""
    assert tussock("breakpoints", node.address, "--remove", str(number)).code == 2
    assert tussock("break", node.address, "shares", "v >").code == 1
    assert tussock("resume", node.address).code == 0
    assert "not paused" in tussock("step", node.address).err


def test_bad_transactions(tussock: Tussock, node: ServeProcess, push: object) -> None:
    """Listed with their causes, tried without an effect, and given again."""
    push({"k": "zero", "v": 0})  # type: ignore[operator]
    eventually(lambda: "ZeroDivisionError" in tussock("bad-rows", node.address, "shares").out)
    bad = tussock("bad-rows", node.address, "shares", "--json").lines()[-1]
    assert (bad["source"], bad["row"], bad["location"]) == ("prices", 0, "COMPUTE")
    tried = tussock("bad-rows", node.address, "shares", "--what-if", str(bad["number"])).json()
    assert (tried["row"], tried["has published"]) == (0, None)
    assert "ZeroDivisionError" in tried["error"]
    assert tussock("bad-rows", node.address, "shares", "--replay", str(bad["number"])).code == 0
    eventually(lambda: tussock("bad-rows", node.address, "shares", "--json").lines()[-1]["number"] == bad["number"] + 1)
    assert tussock("bad-rows", node.address, "shares", "--replay", "1", "--what-if", "1").code == 2


def test_a_transaction_of_the_history_is_tried(tussock: Tussock, node: ServeProcess, push: object) -> None:
    """What it would publish stands beside what it has published."""
    push({"k": "w", "v": 4})  # type: ignore[operator]
    eventually(lambda: '"w"' in tussock("history", node.address, "shares", "--side", "taken", "--json").out)
    newest = tussock("history", node.address, "shares", "--side", "taken", "--json").lines()[-1]["_seq"]
    tried = tussock("history", node.address, "shares", "--what-if", str(newest)).json()
    assert tried["would publish"] == tried["has published"] == [{"_op": "INSERT", "k": "w", "v": 25}]


def test_the_status_of_a_flow(tussock: Tussock, node: ServeProcess) -> None:
    """Streams with what they read, where they are, and their queues."""
    told = tussock("status", node.address).out
    assert "pushes or a feed" in told
    assert "0 of 4" in told
