"""`tussock call` and `tussock status` of a node of functions."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from support.applications.serve_process import ServeProcess
from support.store.command import Tussock
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
    ):
        ran = tussock("call", at, *arguments)
        assert (ran.code, ran.out) == (code, "")
        assert text in " ".join(ran.err.split())


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
        "application bank",
        "state running",
        "transactions 2 without locks, 0 with locks, 1 aborted; 0 wait for the next epoch",
        "purse int64 1 coins fill, give",
        "lock-free account.transfer p1 2",
        "lock-free purse.fill 5 1",
        "aborted account.transfer p1",
        "not enough credit: p1",
    ):
        assert text in told
    assert tussock("status", at, "--json").json()["transactions"][0]["phase"] == "lock-free"
