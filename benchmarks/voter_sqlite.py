"""The voter of `examples/voter` in SQLite: WAL, synchronous=FULL, so that a commit is on the disk when it returns.

One connection in one process, as fast as we could make it: phones are row ids, statements are prepared once, counts are
kept beside contestants, and the board is only put in order when somebody reads it. A phone has one vote.
"""

import sqlite3
from array import array
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any

COUNTED, NOT_IN, VOTED = 0, 1, 2
RECENT = 100
CACHE_KIB = 256 << 10

SCHEMA = """
CREATE TABLE contestants (contestant INTEGER PRIMARY KEY, is_in INTEGER, votes INTEGER, recent INTEGER);
CREATE TABLE votes (phone INTEGER PRIMARY KEY, contestant INTEGER);
CREATE TABLE recent (position INTEGER PRIMARY KEY, contestant INTEGER);
CREATE TABLE newest (id INTEGER PRIMARY KEY, contestants BLOB);
CREATE TABLE totals (id INTEGER PRIMARY KEY, valid INTEGER, remaining INTEGER, removed INTEGER);
"""

VOTE = """
INSERT INTO votes VALUES (?, ?) ON CONFLICT (phone) DO UPDATE SET contestant = excluded.contestant
WHERE (SELECT NOT is_in FROM contestants WHERE contestant = votes.contestant)
"""
"""Writes the vote unless one of the phone counts: those for contestants that were removed do not."""

KNOWN = """
SELECT phone FROM votes JOIN contestants USING (contestant)
WHERE is_in AND phone IN (SELECT value FROM json_each(?))
"""

Vote = tuple[int, int]


class SqliteVoter:
    """`vote` and `batch` are for two separate databases: each keeps the newest hundred votes as suits it."""

    def __init__(self, file: Path, contestants: int, remove_every: int = 1000) -> None:
        self._remove_every = remove_every
        self._connection = sqlite3.connect(file, isolation_level=None)
        run = self._run = self._connection.execute
        run("PRAGMA journal_mode=WAL")
        run("PRAGMA synchronous=FULL")
        run(f"PRAGMA cache_size=-{CACHE_KIB}")
        self._connection.executescript(SCHEMA)
        rows = [(number, 1, 0, 0) for number in range(1, contestants + 1)]
        self._connection.executemany("INSERT INTO contestants VALUES (?, ?, ?, ?)", rows)
        run("INSERT INTO totals VALUES (0, 0, ?, 0)", (contestants,))

    def vote(self, phone: int, contestant: int) -> list[int]:
        """One vote, in a transaction; returns its reply once it is durable."""
        run = self._run
        run("BEGIN IMMEDIATE")
        row = run("SELECT is_in FROM contestants WHERE contestant = ?", (contestant,)).fetchone()
        if row is None or not row[0]:
            run("COMMIT")
            return [NOT_IN]
        if not run(VOTE, (phone, contestant)).rowcount:
            run("COMMIT")
            return [VOTED]
        (valid,) = run("UPDATE totals SET valid = valid + 1 WHERE id = 0 RETURNING valid").fetchone()
        # The newest hundred are a ring, whose counts are kept, too.
        position = valid % RECENT
        gone = run("SELECT contestant FROM recent WHERE position = ?", (position,)).fetchone()
        if gone is None or gone[0] != contestant:
            if gone is not None:
                run("UPDATE contestants SET recent = recent - 1 WHERE contestant = ?", gone)
            run("INSERT OR REPLACE INTO recent VALUES (?, ?)", (position, contestant))
            run("UPDATE contestants SET votes = votes + 1, recent = recent + 1 WHERE contestant = ?", (contestant,))
        else:
            run("UPDATE contestants SET votes = votes + 1 WHERE contestant = ?", (contestant,))
        if valid % self._remove_every == 0:
            self._remove_due(valid)
        run("COMMIT")
        return [COUNTED]

    def batch(self, votes: Sequence[Vote]) -> list[int]:
        """A batch of votes, in a transaction; returns its replies once it is durable."""
        run, run_many = self._run, self._connection.executemany
        run("BEGIN IMMEDIATE")
        are_in = {number for (number,) in run("SELECT contestant FROM contestants WHERE is_in")}
        asked = "[" + ",".join([str(phone) for phone, _ in votes]) + "]"
        voted = {phone for (phone,) in run(KNOWN, (asked,))}
        replies, accepted = [], []
        for vote in votes:
            phone, contestant = vote
            if contestant not in are_in:
                replies.append(NOT_IN)
            elif phone in voted:
                replies.append(VOTED)
            else:
                voted.add(phone)
                accepted.append(vote)
                replies.append(COUNTED)
        if accepted:
            run_many("INSERT OR REPLACE INTO votes VALUES (?, ?)", accepted)
            numbers = [contestant for _, contestant in accepted]
            counts = [(count, number) for number, count in Counter(numbers).items()]
            run_many("UPDATE contestants SET votes = votes + ? WHERE contestant = ?", counts)
            row = run("SELECT contestants FROM newest WHERE id = 0").fetchone()
            before = array("q", row[0]) if row else array("q")
            newest = (before + array("q", numbers))[-RECENT:]
            run("INSERT OR REPLACE INTO newest VALUES (0, ?)", (newest.tobytes(),))
            run("UPDATE contestants SET recent = 0 WHERE recent > 0")
            recent = [(count, number) for number, count in Counter(newest).items()]
            run_many("UPDATE contestants SET recent = ? WHERE contestant = ?", recent)
            added = "UPDATE totals SET valid = valid + ? WHERE id = 0 RETURNING valid"
            (valid,) = run(added, (len(accepted),)).fetchone()
            self._remove_due(valid)
        run("COMMIT")
        return replies

    def board(self) -> dict[str, Any]:
        """As call procedure `board` of the example replies."""
        run = self._run
        valid, left = run("SELECT valid, remaining FROM totals WHERE id = 0").fetchone()
        pairs = "SELECT contestant, votes FROM contestants WHERE is_in ORDER BY"
        trending = (
            "SELECT contestant, recent FROM contestants WHERE is_in AND recent > 0 "
            "ORDER BY recent DESC, contestant LIMIT 3"
        )
        return {
            "valid": valid,
            "left": left,
            "top": [list(row) for row in run(f"{pairs} votes DESC, contestant LIMIT 3")],
            "bottom": [list(row) for row in run(f"{pairs} votes, contestant DESC LIMIT 3")],
            "trending": [list(row) for row in run(trending)],
        }

    def votes(self) -> list[Vote]:
        """All, also those for contestants that were removed."""
        return self._run("SELECT phone, contestant FROM votes").fetchall()

    def close(self) -> None:
        self._connection.close()

    def _remove_due(self, valid: int) -> None:
        run = self._run
        left, removed = run("SELECT remaining, removed FROM totals WHERE id = 0").fetchone()
        while removed < valid // self._remove_every and left > 1:
            fewest = "SELECT contestant FROM contestants WHERE is_in ORDER BY votes, contestant DESC LIMIT 1"
            last = run(fewest).fetchone()
            run("UPDATE contestants SET is_in = 0 WHERE contestant = ?", last)
            left, removed = left - 1, removed + 1
            run("UPDATE totals SET remaining = ?, removed = ? WHERE id = 0", (left, removed))
