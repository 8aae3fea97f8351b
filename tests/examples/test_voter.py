"""The voter of examples/voter: both programs reply and show what the checker says, also after restarts."""

import subprocess
import sys
from collections import deque
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from voter import application, board, checker, columns
from voter.checker import COUNTED, NOT_IN, VOTED, Checker
from voter.generator import make_votes

from tussock.compute import procedures as ps
from tussock.statestore import StateStore, connect

RULES = {"contestants": 9, "remove_every": 60}
OUTSTANDING = 64
WAIT = 60


@pytest.fixture
def store(tmp_path: Path) -> Iterator[StateStore]:
    with connect((tmp_path / "store").as_uri(), compaction=False) as opened:
        yield opened


def play(app: ps.App, rows: list[dict[str, int]], size: int, truth: Checker) -> None:
    """Submit all rows in batches, 64 at a time, with reads among them; compare each reply and each read."""
    expected: deque[tuple[Any, Any]] = deque()
    for at in range(0, len(rows), size):
        batch = rows[at : at + size]
        replies = truth.batch((row["phone"], row["contestant"]) for row in batch)
        expected.append((app.submit("validate", batch), replies))
        if at // size % 7 == 0:
            number = at // size % (RULES["contestants"] + 1)
            expected.append((app.call_async("board"), truth.board()))
            expected.append((app.call_async("votes_of", number), truth.votes_of(number)))
        while len(expected) >= OUTSTANDING:
            check(*expected.popleft())
    while expected:
        check(*expected.popleft())


def check(ticket: Any, expected: Any) -> None:
    assert ticket.result(WAIT) == expected


def rows_of(store: StateStore, name: str) -> list[dict[str, Any]]:
    return [row for batch in store.table(name).read() for row in batch.to_pylist()]


def check_votes(store: StateStore, truth: Checker) -> None:
    """The committed votes, without those for contestants that were removed, are just those that count."""
    votes = [(row["phone"], row["contestant"]) for row in rows_of(store, "votes")]
    assert sorted(vote for vote in votes if truth.votes_of(vote[1]) is not None) == truth.votes()


def check_tables(store: StateStore, truth: Checker) -> None:
    """The committed tables of the program that goes by rows agree with each other and with the checker."""
    standings = sorted(rows_of(store, "standings"), key=lambda row: row["place"])
    contestants = rows_of(store, "contestants")
    assert [row["place"] for row in standings] == list(range(1, len(standings) + 1))
    assert {row["contestant"]: row["place"] for row in standings} == {
        row["contestant"]: row["place"] for row in contestants if row["place"] is not None
    }
    assert {row["contestant"]: row["votes"] for row in standings} == {
        number: votes for number in range(RULES["contestants"] + 1) if (votes := truth.votes_of(number)) is not None
    }
    removed = [row["removed_after"] for row in contestants if row["place"] is None]
    assert len(removed) == RULES["contestants"] - len(standings)
    assert all(RULES["remove_every"] <= after <= truth.valid for after in removed)
    (trending,) = rows_of(store, "trending")
    pairs = [[trending[name], trending[f"{name}_votes"]] for name in ("first", "second", "third")]
    assert [pair for pair in pairs if pair[0] is not None] == truth.board()["trending"]


def test_the_checker_by_hand() -> None:
    """Three contestants, one goes after two valid votes, and the phone that voted for it may vote again."""
    truth = Checker(contestants=3, remove_every=2)
    assert truth.batch([(7, 1), (7, 2), (8, 4)]) == [COUNTED, VOTED, NOT_IN]
    assert truth.board() == {
        "valid": 1,
        "left": 3,
        "top": [[1, 1], [2, 0], [3, 0]],
        "bottom": [[3, 0], [2, 0], [1, 1]],
        "trending": [[1, 1]],
    }
    assert truth.batch([(8, 3)]) == [COUNTED]
    assert (truth.votes_of(1), truth.votes_of(2), truth.votes_of(3)) == (1, None, 1)
    assert truth.batch([(9, 2)]) == [NOT_IN]
    assert truth.votes() == [(7, 1), (8, 3)]
    # 1 and 3 have two votes each after these; of equally many the smaller number is ahead.
    assert truth.batch([(9, 3), (10, 1)]) == [COUNTED, COUNTED]
    assert truth.board() == {"valid": 4, "left": 1, "top": [[1, 2]], "bottom": [[1, 2]], "trending": [[1, 2]]}
    assert truth.batch([(8, 1), (9, 3)]) == [COUNTED, NOT_IN]
    assert truth.votes() == [(7, 1), (8, 1), (10, 1)]


def test_the_checker_has_the_replies_of_the_programs() -> None:
    """It imports nothing of them."""
    assert (checker.COUNTED, checker.NOT_IN, checker.VOTED) == (board.COUNTED, board.NOT_IN, board.VOTED)


@pytest.mark.parametrize("votes_per_phone", [1, 3])
@pytest.mark.parametrize("seed", [1, 2])
@pytest.mark.parametrize(
    ("program", "size", "count"),
    [
        pytest.param(application, 1, 1200, id="a vote a batch"),
        pytest.param(application, 100, 2000, id="100 votes a batch"),
        pytest.param(columns, 1, 300, id="columns, a vote a batch"),
        pytest.param(columns, 100, 2000, id="columns, 100 votes a batch"),
    ],
)
def test_replies_board_and_tables_are_the_checkers(
    store: StateStore, program: Any, size: int, count: int, seed: int, votes_per_phone: int
) -> None:
    """For every vote and every read, with a restart after each third of the votes, down to the last contestants."""
    rules = {**RULES, "votes_per_phone": votes_per_phone}
    rows = make_votes(count, seed, **RULES, phones=count // 2).to_pylist()
    truth = Checker(**rules)
    third = count // 300 * 100
    for start in range(0, count, third):
        with program.make(store, **rules) as app:
            play(app, rows[start : start + third], size, truth)
        check_votes(store, truth)
        if program is application:
            check_tables(store, truth)
    assert truth.board()["left"] < RULES["contestants"]


@pytest.mark.parametrize("recovery", ["weak", "strong"])
@pytest.mark.parametrize(
    ("program", "size"),
    [
        pytest.param(application, 1, id="a vote a batch"),
        pytest.param(application, 100, id="100 votes a batch"),
        pytest.param(columns, 100, id="columns, 100 votes a batch"),
    ],
)
def test_nothing_is_lost_when_another_runner_takes_over(
    store: StateStore, program: Any, size: int, recovery: str
) -> None:
    """The first runner is not stopped, and has committed nothing: all that it replied comes out of the input log."""
    rows = make_votes(800, 5, **RULES, phones=400).to_pylist()
    truth = Checker(**RULES)
    options: dict[str, Any] = {**RULES, "recovery": recovery, "checkpoint": 3600}
    first = program.make(store, **options)
    first.start()
    play(first, rows[:400], size, truth)
    with program.make(store, **options) as second:
        play(second, rows[400:], size, truth)
        with pytest.raises(ps.ApplicationFenced):
            first.submit("validate", rows[:1]).result(WAIT)
    check_votes(store, truth)
    if program is application:
        check_tables(store, truth)
    with pytest.raises(ps.ApplicationFenced):
        first.stop()


def test_the_demo_checks_itself(tmp_path: Path) -> None:
    """A short show, with its input log in another folder than its store."""
    program = Path(application.__file__).parent / "demo.py"
    folders = ["--store", str(tmp_path / "store"), "--input", str(tmp_path / "log")]
    command = [sys.executable, str(program), "--votes", "1500", *folders]
    ran = subprocess.run(command, capture_output=True, text=True, check=False, timeout=120)
    assert ran.returncode == 0, ran.stdout + ran.stderr
    assert "checked: all 1,500 replies and the board are right" in ran.stdout
    assert "1,500 of 1,500 votes" in ran.stdout
