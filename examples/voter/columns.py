"""The voter of `application.py` on Arrow columns, for batches of a thousand votes: same procedures, same replies.

A batch reads `votes` once and writes it once, by `multi_get` and `upsert` of columns; between them is NumPy. All else
that the show is about is small, so it is one row, whose arrays are bytes: a row by itself costs microseconds, few rows
as columns some hundred. The price is that only the calls can read the board, as nobody else knows of the arrays.

The newest hundred votes are among them: a window that slides by one would fire its trigger a thousand times a batch,
and only the last time counts.
"""

from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from voter.board import COUNTED, NOT_IN, PLACES, RECENT, VOTE, VOTED

from tussock.compute.procedures import App
from tussock.statestore import StateStore

__all__ = ["make"]

_INT = pa.int64()
CONTESTANT = pa.schema([pa.field("contestant", _INT, nullable=False)])
VOTES = pa.schema([pa.field(name, _INT, nullable=False) for name in ("phone", "nth", "contestant")])
ARRAYS = ("contestants", "votes", "newest")
"""Contestants that are left, best first; their votes; the contestants of the newest votes, oldest first."""
SHOW = pa.schema(
    [
        *(pa.field(name, _INT, nullable=False) for name in ("id", "valid", "removed")),
        *(pa.field(name, pa.binary(), nullable=False) for name in ARRAYS),
    ]
)

Numbers = np.ndarray[Any, np.dtype[np.int64]]


def make(
    store: StateStore,
    name: str = "voter",
    *,
    contestants: int = 25,
    votes_per_phone: int = 1,
    remove_every: int = 1000,
    **options: Any,
) -> App:
    """As `application.make`; for a store where that has not run."""
    app = App(store, name, **options)
    app.table("votes", VOTES, primary_key=["phone", "nth"])
    app.table("show", SHOW, primary_key=["id"])
    if store.table("show").get(0) is None:
        numbers = np.arange(1, contestants + 1)
        arrays = {"contestants": numbers, "votes": np.zeros_like(numbers), "newest": numbers[:0]}
        with store.transaction() as tx:
            tx.table("show").upsert([_row({"id": 0, "valid": 0, "removed": 0, **arrays})])
    valid, counted = (app.stream(stream, CONTESTANT) for stream in ("valid", "counted"))

    @app.procedure("validate", border=True, schema=VOTE, emits=valid)
    def validate(tx: Any, batch: pa.Table) -> pa.Table | None:
        phones, numbers = batch["phone"].to_numpy(), batch["contestant"].to_numpy()
        left = _show(tx)["contestants"]
        replies = np.full(len(phones), NOT_IN)
        candidates = np.flatnonzero(np.isin(numbers, left))
        nths = _free_nths(tx, phones[candidates], left, votes_per_phone)
        replies[candidates] = np.where(nths >= 0, COUNTED, VOTED)
        tx.reply(replies.tolist())
        accepted = candidates[nths >= 0]
        if not len(accepted):
            return None
        chosen = numbers[accepted]
        tx.table("votes").upsert(pa.table([phones[accepted], nths[nths >= 0], chosen], schema=VOTES))
        return pa.table([chosen], schema=CONTESTANT)

    @app.procedure("count", consumes=valid, emits=counted)
    def count(tx: Any, batch: pa.Table) -> pa.Table:
        if batch.num_rows:
            numbers = batch["contestant"].to_numpy()
            show = _show(tx)
            left = show["contestants"]
            votes = show["votes"] + np.bincount(numbers, minlength=int(left.max()) + 1)[left]
            order = np.lexsort((left, -votes))
            newest = np.concatenate([show["newest"], numbers])[-RECENT:]
            arrays = {"contestants": left[order], "votes": votes[order], "newest": newest}
            tx.table("show").upsert([_row({**show, "valid": show["valid"] + len(numbers), **arrays})])
        return batch

    @app.procedure("remove", consumes=counted)
    def remove(tx: Any, batch: pa.Table) -> None:
        show = _show(tx)
        left = len(show["contestants"])
        # What is due since the last time; one is left in any case.
        gone = min(show["valid"] // remove_every - show["removed"], left - 1)
        if batch.num_rows and gone > 0:
            arrays = {name: show[name][: left - gone] for name in ("contestants", "votes")}
            tx.table("show").upsert([_row({**show, "removed": show["removed"] + gone, **arrays})])

    _declare_calls(app)
    return app


def _declare_calls(app: App) -> None:
    """`board` and `votes_of`, with the replies that the other program's have."""

    @app.call_procedure("board")
    def board(tx: Any) -> dict[str, Any]:
        show = _show(tx)
        ranked = np.column_stack([show["contestants"], show["votes"]]).tolist()
        numbers, counts = np.unique(show["newest"][np.isin(show["newest"], show["contestants"])], return_counts=True)
        order = np.argsort(-counts, kind="stable")[:PLACES]
        return {
            "valid": show["valid"],
            "left": len(ranked),
            "top": ranked[:PLACES],
            "bottom": ranked[::-1][:PLACES],
            "trending": np.column_stack([numbers, counts])[order].tolist(),
        }

    @app.call_procedure("votes_of")
    def votes_of(tx: Any, contestant: int) -> int | None:
        show = _show(tx)
        at = np.flatnonzero(show["contestants"] == contestant)
        return int(show["votes"][at[0]]) if len(at) else None


def _show(tx: Any) -> dict[str, Any]:
    """The row of the show, with arrays."""
    row = tx.table("show").get(0)
    return {**row, **{name: np.frombuffer(row[name], np.int64) for name in ARRAYS}}


def _row(show: dict[str, Any]) -> dict[str, Any]:
    return {**show, **{name: show[name].tobytes() for name in ARRAYS}}


def _free_nths(tx: Any, phones: Numbers, left: Numbers, votes_per_phone: int) -> Numbers:
    """For each vote which of its phone's votes it is, from 0; -1 where none is left. Phones may come repeatedly."""
    asked, at = np.unique(phones, return_inverse=True)
    keys = {"phone": np.repeat(asked, votes_per_phone), "nth": np.tile(np.arange(votes_per_phone), len(asked))}
    found = tx.table("votes").multi_get(pa.table(keys), columns=["contestant"])
    # No contestant has the number 0.
    before = pc.fill_null(pc.struct_field(found, "contestant"), 0).to_numpy()
    is_taken = np.isin(before, left).reshape(len(asked), votes_per_phone)
    # Votes that were given back may be in between: the free ones of each phone first, in their order.
    free_first = np.argsort(is_taken, axis=1, kind="stable")
    free = votes_per_phone - is_taken.sum(axis=1)
    rank = _ranks(at)
    return np.where(rank < free[at], free_first[at, np.minimum(rank, votes_per_phone - 1)], -1)


def _ranks(groups: Numbers) -> Numbers:
    """For each element how many before it are of the same group."""
    order = np.argsort(groups, kind="stable")
    in_order = groups[order]
    positions = np.arange(len(groups))
    begins = np.diff(in_order, prepend=-1) != 0
    ranks = np.empty(len(groups), np.int64)
    ranks[order] = positions - np.maximum.accumulate(np.where(begins, positions, 0))
    return ranks
