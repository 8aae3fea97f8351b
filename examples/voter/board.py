"""The tables of the voter that goes by rows, and what follows a count: removals, what is trending, the calls.

The leaderboard is kept in order, row by row, so that no vote needs a scan: `standings` has a row a place, and
`contestants` says at which place each contestant is. The last place is the contestant with the fewest votes; of
contestants with equally many votes the one with the smaller number is ahead.

    contestants   contestant -> place; of one that was removed no place, and after how many valid votes that was
    standings     place, from 1 -> contestant, votes
    trending      one row: first, second and third, each with its votes among the newest hundred valid ones
    votes         phone, nth -> contestant; the vote counts while its contestant is at a place
    totals        one row: valid votes so far, contestants that are left, contestants that were removed
"""

from collections.abc import Sequence
from typing import Any

import numpy as np
import pyarrow as pa

from tussock.compute.procedures import App
from tussock.statestore import StateStore

__all__ = ["COUNTED", "NOT_IN", "PLACES", "RECENT", "VOTE", "VOTED", "declare", "remove_due", "write_trending"]

COUNTED, NOT_IN, VOTED = 0, 1, 2
"""What the voter replies to a vote: it counts; there is no such contestant (any more); the phone has no vote left."""

RECENT = 100
"""Valid votes in which contestants are trending."""
PLACES = 3
"""Of the top, of the bottom, and of those that are trending."""
TRENDING = ("first", "second", "third")


def _schema(*names: str, optional: Sequence[str] = ()) -> pa.Schema:
    """Integers; those that are `optional` may be null."""
    fields = [pa.field(name, pa.int64(), nullable=False) for name in names]
    return pa.schema([*fields, *(pa.field(name, pa.int64()) for name in optional)])


VOTE = _schema("phone", "contestant")
TABLES = {
    "contestants": (_schema("contestant", optional=("place", "removed_after")), ["contestant"]),
    "standings": (_schema("place", "contestant", "votes"), ["place"]),
    "trending": (_schema("id", optional=[name + end for name in TRENDING for end in ("", "_votes")]), ["id"]),
    "votes": (_schema("phone", "nth", "contestant"), ["phone", "nth"]),
    "totals": (_schema("id", "valid", "left", "removed"), ["id"]),
}


def declare(app: App, store: StateStore, contestants: int) -> None:
    """The tables, which begin with contestants 1, 2, 3 ... without votes; and the calls `board` and `votes_of`."""
    for name, (schema, key) in TABLES.items():
        app.table(name, schema, primary_key=key)
    if store.table("totals").get(0) is None:
        numbers = range(1, contestants + 1)
        with store.transaction() as tx:
            rows = [{"contestant": number, "place": number, "removed_after": None} for number in numbers]
            tx.table("contestants").upsert(rows)
            tx.table("standings").upsert([{"place": number, "contestant": number, "votes": 0} for number in numbers])
            tx.table("totals").upsert([{"id": 0, "valid": 0, "left": contestants, "removed": 0}])

    @app.call_procedure("board")
    def board(tx: Any) -> dict[str, Any]:
        """Pairs of contestant and votes: the top three, the bottom three (the last one first), the trending three."""
        totals = tx.table("totals").get(0)
        left = totals["left"]
        trending = tx.table("trending").get(0) or {}
        return {
            "valid": totals["valid"],
            "left": left,
            "top": _pairs(tx.table("standings"), range(1, min(PLACES, left) + 1)),
            "bottom": _pairs(tx.table("standings"), range(left, max(left - PLACES, 0), -1)),
            "trending": [[trending[name], trending[f"{name}_votes"]] for name in TRENDING if trending.get(name)],
        }

    @app.call_procedure("votes_of")
    def votes_of(tx: Any, contestant: int) -> int | None:
        """The votes of a contestant that is in; `None` for others."""
        row = tx.table("contestants").get(contestant)
        if row is None or row["place"] is None:
            return None
        return int(tx.table("standings").get(row["place"])["votes"])


def _pairs(table: Any, places: range) -> list[list[int]]:
    rows = [table.get(place) for place in places]
    return [[row["contestant"], row["votes"]] for row in rows]


def remove_due(tx: Any, every: int) -> None:
    """Remove one contestant for each `every` valid votes, except the last one left.

    Their votes are given back by that alone: a phone may vote again where its vote is for somebody without a place. So
    nobody has to look for such votes, which would take a scan, or an index that costs each vote more.
    """
    standings, contestants = tx.table("standings"), tx.table("contestants")
    totals = tx.table("totals").get(0)
    due = totals["valid"] // every - totals["removed"]
    for left in range(totals["left"], max(totals["left"] - due, 1), -1):
        contestant = standings.get(left)["contestant"]
        standings.delete([left])
        contestants.upsert([{"contestant": contestant, "place": None, "removed_after": totals["valid"]}])
        totals = {**totals, "left": left - 1, "removed": totals["removed"] + 1}
        tx.table("totals").upsert([totals])


def write_trending(tx: Any, recent: np.ndarray[Any, Any]) -> None:
    """Write the three that are in and have most of the `recent` votes."""
    counts = np.bincount(recent)
    contestants = tx.table("contestants")
    row: dict[str, Any] = {"id": 0}
    places = iter(TRENDING)
    # Stable: of equally many votes the smaller number is ahead.
    for number in np.argsort(-counts, kind="stable").tolist():
        if not counts[number]:
            break
        if contestants.get(number)["place"] is None:
            continue
        place = next(places, None)
        if place is None:
            break
        row[place], row[f"{place}_votes"] = number, int(counts[number])
    tx.table("trending").upsert([row])
