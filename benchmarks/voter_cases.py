"""Cases of `compute_bench.py`, run by `measure.py`: the same votes through the programs of `examples/voter` and SQLite.

Each case takes an empty folder and the number of votes, and returns votes a second. It ends with an error if a reply,
the board or the votes that count differ from what `examples/voter/checker.py` says.
"""

import sys
import time
from collections import deque
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from voter_sqlite import SqliteVoter

from tussock.compute.procedures import App
from tussock.statestore import connect

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "examples"))
from voter import application, columns
from voter.checker import Checker
from voter.generator import make_votes

SEED = 7
CLIENTS = 64
"""Votes, or batches, that are under way at any time."""
READ_EVERY = 100
"""Votes between two reads of the board; where a batch has more votes, there is one after each batch."""
BATCH = 1_000
VOTES_PER_CONTESTANT = 1_200
"""So that contestants go until the end, and some are left."""
CONTESTANTS_MIN = 25

Sample = dict[str, Any]


def tussock_votes(folder: Path, votes: int) -> Sample:
    """A vote a batch, by rows, from 64 clients."""
    return _tussock(application.make, folder, votes, 1, CLIENTS)


def tussock_votes_alone(folder: Path, votes: int) -> Sample:
    """A vote a batch, by rows, from one client that waits for each reply."""
    return _tussock(application.make, folder, votes, 1, 1)


def tussock_columns(folder: Path, votes: int) -> Sample:
    """1,000 votes a batch, on columns, from 64 clients."""
    return _tussock(columns.make, folder, votes, BATCH, CLIENTS)


def tussock_columns_alone(folder: Path, votes: int) -> Sample:
    """1,000 votes a batch, on columns, from one client that waits for each reply."""
    return _tussock(columns.make, folder, votes, BATCH, 1)


def tussock_rows(folder: Path, votes: int) -> Sample:
    """1,000 votes a batch, by rows, from 64 clients."""
    return _tussock(application.make, folder, votes, BATCH, CLIENTS)


def sqlite_votes(folder: Path, votes: int) -> Sample:
    """A transaction a vote."""
    return _sqlite(folder, votes, 1)


def sqlite_batches(folder: Path, votes: int) -> Sample:
    """A transaction for 1,000 votes."""
    return _sqlite(folder, votes, BATCH)


def _tussock(make: Callable[..., App], folder: Path, votes: int, size: int, clients: int) -> Sample:
    table, contestants = _votes(votes)
    rows = table.to_pylist() if size == 1 else []
    batches = [[row] for row in rows] if size == 1 else [table.slice(at, size) for at in range(0, votes, size)]
    log = (folder / "log").as_uri()
    with connect((folder / "store").as_uri()) as store:
        with make(store, contestants=contestants, input=log) as app:
            began = time.perf_counter()
            replies = _submit(app, batches, max(READ_EVERY // size, 1), clients)
            seconds = time.perf_counter() - began
            board = app.call("board")
            stats = app.stats()
        found = store.table("votes").read(["phone", "contestant"])
        counted = [(row["phone"], row["contestant"]) for batch in found for row in batch.to_pylist()]
    _check(votes, size, replies, board, counted)
    return {"rate": votes / seconds, "seconds": seconds, **stats, "valid": board["valid"]}


def _submit(app: App, batches: Sequence[Any], read_every: int, clients: int) -> list[list[int]]:
    """One thread is all clients: as soon as the oldest reply is there, the next batch goes."""
    replies: list[list[int]] = []
    tickets: deque[Any] = deque()
    reads: deque[Any] = deque()
    for at, batch in enumerate(batches):
        if len(tickets) == clients:
            replies.append(tickets.popleft().result())
        tickets.append(app.submit("validate", batch))
        if at % read_every == 0:
            reads.append(app.call_async("board"))
    replies.extend(ticket.result() for ticket in tickets)
    for read in reads:
        read.result()
    return replies


def _sqlite(folder: Path, votes: int, size: int) -> Sample:
    table, contestants = _votes(votes)
    pairs = list(zip(table["phone"].to_pylist(), table["contestant"].to_pylist(), strict=True))
    voter = SqliteVoter(folder / "voter.sqlite", contestants)
    read_every = max(READ_EVERY // size, 1)
    replies = []
    began = time.perf_counter()
    for at in range(0, votes, size):
        replies.append(voter.vote(*pairs[at]) if size == 1 else voter.batch(pairs[at : at + size]))
        if at // size % read_every == 0:
            voter.board()
    seconds = time.perf_counter() - began
    board = voter.board()
    _check(votes, size, replies, board, voter.votes())
    voter.close()
    return {"rate": votes / seconds, "seconds": seconds, "valid": board["valid"]}


def _votes(count: int) -> tuple[Any, int]:
    """The votes and the number of contestants."""
    contestants = max(count // VOTES_PER_CONTESTANT, CONTESTANTS_MIN)
    return make_votes(count, SEED, contestants=contestants), contestants


def _check(count: int, size: int, replies: list[list[int]], board: Any, counted: list[tuple[int, int]]) -> None:
    table, contestants = _votes(count)
    pairs = list(zip(table["phone"].to_pylist(), table["contestant"].to_pylist(), strict=True))
    checker = Checker(contestants=contestants)
    for number, at in enumerate(range(0, count, size)):
        expected = checker.batch(pairs[at : at + size])
        if replies[number] != expected:
            raise SystemExit(f"batch {number}: replied {replies[number]}, expected {expected}")
    if board != checker.board():
        raise SystemExit(f"the board is {board}, expected {checker.board()}")
    counted = sorted(vote for vote in counted if checker.votes_of(vote[1]) is not None)
    if counted != checker.votes():
        raise SystemExit(f"{len(counted)} votes count, expected {len(checker.votes())}, or others")
