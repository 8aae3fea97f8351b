"""The voter of `application.py` on Arrow columns, for batches of a thousand votes: same tables, same replies.

Each table is read once and written once a batch, by `multi_get` and `upsert` of columns; between them is NumPy. The
newest hundred votes are a row of a table here: a window that slides by one would fire its trigger a thousand times a
batch, and only the last time counts.
"""

from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from voter.board import COUNTED, NOT_IN, RECENT, VOTE, VOTED, declare, remove_due, write_trending

from tussock.compute.procedures import App
from tussock.statestore import StateStore

__all__ = ["make"]

CONTESTANT = pa.schema([pa.field("contestant", pa.int64(), nullable=False)])
NEWEST = pa.schema([pa.field("id", pa.int64(), nullable=False), pa.field("contestants", pa.binary(), nullable=False)])

Numbers = np.ndarray[Any, np.dtype[np.int64]]
Flags = np.ndarray[Any, np.dtype[np.bool_]]


def make(
    store: StateStore,
    name: str = "voter",
    *,
    contestants: int = 25,
    votes_per_phone: int = 1,
    remove_every: int = 1000,
    **options: Any,
) -> App:
    """As `application.make`."""
    app = App(store, name, **options)
    declare(app, store, contestants)
    app.table("newest", NEWEST, primary_key=["id"])
    valid, counted = (app.stream(stream, CONTESTANT) for stream in ("valid", "counted"))

    @app.procedure("validate", border=True, schema=VOTE, emits=valid)
    def validate(tx: Any, batch: pa.Table) -> pa.Table | None:
        phones, numbers = batch["phone"].to_numpy(), batch["contestant"].to_numpy()
        replies = np.full(len(phones), NOT_IN)
        candidates = np.flatnonzero(_are_in(tx, numbers))
        if len(candidates):
            nths = _free_nths(tx, phones[candidates], votes_per_phone)
            replies[candidates] = np.where(nths >= 0, COUNTED, VOTED)
        tx.reply(replies.tolist())
        accepted = np.flatnonzero(replies == COUNTED)
        if not len(accepted):
            return None
        chosen = numbers[accepted]
        tx.table("votes").upsert(pa.table({"phone": phones[accepted], "nth": nths[nths >= 0], "contestant": chosen}))
        return pa.table([pa.array(chosen)], schema=CONTESTANT)

    @app.procedure("count", consumes=valid, emits=counted)
    def count(tx: Any, batch: pa.Table) -> pa.Table:
        if batch.num_rows:
            totals = tx.table("totals").get(0)
            tx.table("totals").upsert([{**totals, "valid": totals["valid"] + batch.num_rows}])
            _count_all(tx, batch["contestant"].to_numpy(), totals["left"])
        return batch

    @app.procedure("remove", consumes=counted)
    def remove(tx: Any, batch: pa.Table) -> None:
        if not batch.num_rows:
            return
        remove_due(tx, remove_every)
        row = tx.table("newest").get(0)
        before = np.frombuffer(row["contestants"], np.int64) if row else np.empty(0, np.int64)
        newest = np.concatenate([before, batch["contestant"].to_numpy()])[-RECENT:]
        tx.table("newest").upsert([{"id": 0, "contestants": newest.tobytes()}])
        write_trending(tx, newest)

    return app


def _are_in(tx: Any, numbers: Numbers) -> Flags:
    """Whether the contestant of each vote is in."""
    asked, at = np.unique(numbers, return_inverse=True)
    rows = tx.table("contestants").multi_get(pa.table({"contestant": asked}), columns=["place"])
    return pc.struct_field(rows, "place").is_valid().to_numpy(zero_copy_only=False)[at]


def _free_nths(tx: Any, phones: Numbers, votes_per_phone: int) -> Numbers:
    """For each vote which of its phone's votes it is, from 0; -1 where none is left. Phones may come repeatedly."""
    asked, at = np.unique(phones, return_inverse=True)
    keys = {"phone": np.repeat(asked, votes_per_phone), "nth": np.tile(np.arange(votes_per_phone), len(asked))}
    found = tx.table("votes").multi_get(pa.table(keys), columns=["contestant"]).is_valid()
    is_taken = found.to_numpy(zero_copy_only=False).reshape(len(asked), votes_per_phone)
    # Votes that were given back leave gaps: the free ones of each phone first, in their order.
    free_first = np.argsort(is_taken, axis=1, kind="stable")
    free = votes_per_phone - is_taken.sum(axis=1)
    rank = _ranks(at)
    return np.where(rank < free[at], free_first[at, np.minimum(rank, votes_per_phone - 1)], -1)


def _ranks(groups: Numbers) -> Numbers:
    """For each element how many before it are of the same group."""
    order = np.argsort(groups, kind="stable")
    in_order = groups[order]
    positions = np.arange(len(groups))
    begins = np.concatenate([[True], in_order[1:] != in_order[:-1]])
    ranks = np.empty(len(groups), np.int64)
    ranks[order] = positions - np.maximum.accumulate(np.where(begins, positions, 0))
    return ranks


def _count_all(tx: Any, numbers: Numbers, left: int) -> None:
    """The votes of a batch go to their contestants, who are put in order again."""
    places = pa.array(range(1, left + 1), pa.int64())
    rows = tx.table("standings").multi_get(pa.table({"place": places}))
    contestants, votes = rows.field("contestant").to_numpy(), rows.field("votes").to_numpy()
    counts = np.bincount(numbers, minlength=int(contestants.max()) + 1)
    votes = votes + counts[contestants]
    order = np.lexsort((contestants, -votes))
    ranked = contestants[order]
    tx.table("standings").upsert(pa.table({"place": places, "contestant": ranked, "votes": votes[order]}))
    removed = pa.nulls(left, pa.int64())
    tx.table("contestants").upsert(pa.table({"contestant": ranked, "place": places, "removed_after": removed}))
