"""`tussock call` and `tussock status` of a node of functions."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from support.applications.serve_process import ServeProcess
from support.store.command import Tussock
from support.waiting import eventually
from tussock.compute import functions as fn


@pytest.fixture
def node(tmp_path: Path) -> Iterator[ServeProcess]:
    with ServeProcess((tmp_path / "store").as_uri(), app="support.applications.served_bank:make") as serving:
        yield serving


def test_call_takes_operator_key_function_and_arguments(node: ServeProcess, tussock: Tussock) -> None:
    """Keys are read as the operator's keys are, so that text of digits stays text where they are text."""
    at = node.address
    assert tussock("call", at, "account", "7", "begin", "40") == (0, "null\n", "")
    assert tussock("call", at, "account", "7", "transfer", "p19", "10", "--timeout", "30").json() == 30
    assert tussock("call", at, "purse", "5", "fill", "3") == (0, "null\n", "")
    with fn.Client(at) as client:
        assert client.query("account", "7") == {"balance": 30}
        assert client.query("purse", 5) == {"coins": 3}


def test_call_says_what_is_wrong(node: ServeProcess, tussock: Tussock) -> None:
    """An abort and an unknown function end with 1, wrong usage with 2; nothing is printed as a reply."""
    at = node.address
    for code, text, arguments in (
        (1, "not enough credit: p1", ("account", "p1", "transfer", "p2", "1000")),
        (1, "no function 'steal'", ("account", "p1", "steal")),
        (1, "no operator 'vault'", ("vault", "p1", "steal")),
        (2, "OPERATOR KEY FUNCTION", ("account", "p1")),
        (2, "no key", ("purse", "five", "fill", "3")),
        (2, "nest too deep to be read", ("account", "p1", "transfer", "[" * 5000 + "]" * 5000)),
    ):
        ran = tussock("call", at, *arguments)
        assert (ran.code, ran.out) == (code, "")
        assert text in " ".join(ran.err.split())


def test_call_takes_bytes(tmp_path: Path, tussock: Tussock) -> None:
    """As hexadecimal digits or base64; text that begins so is JSON. What is neither ends with 2."""
    with ServeProcess((tmp_path / "store").as_uri(), app="support.applications.served_bank:with_bytes") as node:
        for given, found in (
            ("hex:00FF", b"\x00\xff"),
            ("hex:", b""),
            ("base64:AP8=", b"\x00\xff"),
            ('"hex:00ff"', "hex:00ff"),
            ('"base64:AP8="', "base64:AP8="),
            ("hexagon", "hexagon"),
        ):
            assert tussock("call", node.address, "seal", "k", "told", given).json() == repr(found)
        for wrong in ("hex:0", "hex:zz", "base64:AP8", "base64:?"):
            ran = tussock("call", node.address, "seal", "k", "told", wrong)
            assert (ran.code, ran.out) == (2, "")
            assert "is given as JSON, in double quotes" in " ".join(ran.err.split())


def test_call_and_status_say_what_was_raised_and_where(node: ServeProcess, tussock: Tussock) -> None:
    """The class tells a bug from what a function refuses, and the line where it is."""
    ran = tussock("call", node.address, "account", "p1", "transfer", "p2", "1000")
    assert "not enough credit: p1 (NotEnough at support/functions/accounts.py:" in " ".join(ran.err.split())
    shown = " ".join(tussock("status", node.address).out.split())
    assert "NotEnough at support/functions/accounts.py:" in shown


def test_trace_of_functions_says_what_they_have(node: ServeProcess, tussock: Tussock) -> None:
    """Their executions are transactions."""
    ran = tussock("trace", node.address)
    assert ran.code == 1
    assert "`status` has its newest transactions, and `call_graph`" in " ".join(ran.err.split())


def test_query_shows_an_entity(node: ServeProcess, tussock: Tussock) -> None:
    """By a key as `call` takes it; an entity that is not there ends with 1, as a row that is not there does."""
    at = node.address
    assert tussock("call", at, "purse", "5", "fill", "3").code == 0
    assert tussock("query", at, "purse", "5").json() == {"coins": 3}
    assert tussock("query", at, "account", "p1").json() == {"balance": 100}
    for code, text, arguments in (
        (1, "has no entity 6", ("purse", "6")),
        (1, "no operator 'vault'", ("vault", "6")),
        (2, "no key", ("purse", "five")),
    ):
        ran = tussock("query", at, *arguments)
        assert (ran.code, ran.out) == (code, "")
        assert text in " ".join(ran.err.split())


def test_call_graph_shows_a_transaction(node: ServeProcess, tussock: Tussock) -> None:
    """By the id of its request or by its number; another one ends with 1, and both or neither with 2."""
    at = node.address
    with fn.Client(at) as client:
        client.send("account", "p1", "transfer", "p2", 10, request_id="order-7").result(60)
    shown = tussock("call-graph", at, "order-7").json()
    assert [call["function"] for call in shown["calls"]] == ["transfer", "credit"]
    assert tussock("call-graph", at, "--tid", str(shown["tid"])).json() == shown
    for code, arguments in ((1, ("order-8",)), (1, ("--tid", "999999")), (2, ()), (2, ("order-7", "--tid", "1"))):
        ran = tussock("call-graph", at, *arguments)
        assert (ran.code, ran.out) == (code, "")


def test_a_call_says_whether_it_has_begun_in_its_time(tmp_path: Path, tussock: Tussock) -> None:
    """Story: the command left by its own wait, with an empty error, and the request ran after the pause."""
    with ServeProcess((tmp_path / "store").as_uri(), app="support.applications.served_bank:with_limit") as node:
        at = node.address
        assert tussock("pause", at).code == 0
        ran = tussock("call", at, "purse", "5", "fill", "3", "--timeout", "1")
        assert (ran.code, ran.out) == (1, "")
        assert "did not begin" in " ".join(ran.err.split())
        assert tussock("resume", at).code == 0
        with fn.Client(at) as client:
            assert client.query("purse", 5) is None
        ran = tussock("call", at, "purse", "5", "count_for_ever", "--timeout", "0.5")
        assert (ran.code, ran.out) == (1, "")
        assert "outcome is not known" in " ".join(ran.err.split())


def test_status_shows_operators_and_transactions(node: ServeProcess, tussock: Tussock) -> None:
    """Story: of a program of functions it showed the counts of all applications, and that there are no calls."""
    at = node.address
    assert tussock("call", at, "account", "p1", "transfer", "p2", "10").code == 0
    assert tussock("call", at, "purse", "5", "fill", "3").code == 0
    assert tussock("call", at, "account", "p1", "transfer", "p2", "1000").code == 1
    shown = tussock("status", at)
    assert shown.code == 0
    told = " ".join(shown.out.split())
    for text in (
        "requests 0 wait, 0 without a reply clients 0 connections",
        "application bank",
        "state running",
        "transactions 2 without locks, 0 with locks, 1 aborted; 0 wait for the next epoch",
        "purse int64 1 coins count_for_ever, fill, give",
        "lock_free account.transfer p1 2",
        "lock_free purse.fill 5 1",
        "aborted account.transfer p1",
        "not enough credit: p1",
    ):
        assert text in told
    assert tussock("status", at, "--json").json()["transactions"][0]["phase"] == "lock_free"


def test_status_says_what_the_program_waits_for(tmp_path: Path, node: ServeProcess, tussock: Tussock) -> None:
    """Story: while the input log could not be written, callers waited, and the command said that all was well."""
    at, folder = node.address, tmp_path / "store" / "applications" / "bank" / "input"
    assert tussock("status", at).out.startswith("status")
    away = folder.rename(folder.with_name("away"))
    folder.write_text("no folder")
    with fn.Client(at) as client:
        asked = client.send("purse", 5, "fill", 3)
        eventually(lambda: node.status()["trouble"])
        told = " ".join(tussock("status", at).out.split())
        assert told.startswith("warning: input log, since 20")
        assert "ObjectStoreUnavailable: create of applications/bank/input/" in told
        assert "\ntussock_application_troubles 1.0\n" in node.get("/metrics")[1]
        folder.unlink()
        away.rename(folder)
        assert asked.result(60) is None
    assert tussock("status", at).out.startswith("status")
