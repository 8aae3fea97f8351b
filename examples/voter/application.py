"""The voter with leaderboard, after S-Store (Meehan et al., PVLDB 8(13), 2015): a television show counts its votes.

Three procedures run on each batch of votes, one after the other, and nothing else runs between them:

    validate   a vote counts if its contestant is in and its phone has a vote left; goes into `votes`; replies
    count      the contestant's vote goes into `standings`
    remove     after each `remove_every` valid votes the last contestant goes, which gives their votes back

A trigger on a window of the newest hundred valid votes, which slides by one, keeps `trending`. It is on the last stream
of the graph, so that it sees which contestants are left. Calls read the board between the batches.

This program goes row by row, for batches of one or a few votes; `columns.py` does the same on Arrow columns, for
batches of many. `checker.py` says what both have to reply.
"""

from typing import Any

import pyarrow as pa
from voter.board import COUNTED, NOT_IN, RECENT, VOTE, VOTED, declare, remove_due, write_trending

from tussock.compute.procedures import App, TableFeed
from tussock.statestore import StateStore

__all__ = ["make"]

CONTESTANT = pa.schema([pa.field("contestant", pa.int64(), nullable=False)])


def make(
    store: StateStore,
    name: str = "voter",
    *,
    contestants: int = 25,
    votes_per_phone: int = 1,
    remove_every: int = 1000,
    feed: TableFeed | None = None,
    **options: Any,
) -> App:
    """The application, ready to start; `options` are those of `App`.

    Submit batches of `VOTE` to `validate`; the reply is a list, for each vote `COUNTED`, `NOT_IN` or `VOTED`. Or let it
    have the batches of a `feed`, whose rows have a column `at`, too: within a batch they are in its order.
    """
    app = App(store, name, **options)
    declare(app, store, contestants)
    valid, counted, settled = (app.stream(stream, CONTESTANT) for stream in ("valid", "counted", "settled"))
    recent = app.window("recent", on=settled, rows=RECENT, slide=1)

    @app.procedure("validate", border=True, schema=VOTE if feed is None else None, emits=valid)
    def validate(tx: Any, batch: pa.Table) -> list[dict[str, int]]:
        if feed is not None:
            batch = batch.sort_by("at")
        known, votes = tx.table("contestants"), tx.table("votes")
        replies, accepted = [], []
        for phone, number in zip(batch["phone"].to_pylist(), batch["contestant"].to_pylist(), strict=True):
            if not _is_in(known, number):
                replies.append(NOT_IN)
                continue
            for nth in range(votes_per_phone):
                before = votes.get((phone, nth))
                if before is None or not _is_in(known, before["contestant"]):
                    break
            else:
                replies.append(VOTED)
                continue
            votes.upsert([{"phone": phone, "nth": nth, "contestant": number}])
            replies.append(COUNTED)
            accepted.append({"contestant": number})
        tx.reply(replies)
        return accepted

    @app.procedure("count", consumes=valid, emits=counted)
    def count(tx: Any, batch: pa.Table) -> pa.Table:
        for number in batch["contestant"].to_pylist():
            _count_one(tx, number)
        if batch.num_rows:
            totals = tx.table("totals").get(0)
            tx.table("totals").upsert([{**totals, "valid": totals["valid"] + batch.num_rows}])
        return batch

    @app.procedure("remove", consumes=counted, emits=settled)
    def remove(tx: Any, batch: pa.Table) -> pa.Table:
        if batch.num_rows:
            remove_due(tx, remove_every)
        return batch

    @app.trigger(recent)
    def trending(tx: Any, rows: pa.Table) -> None:
        write_trending(tx, rows["contestant"].to_numpy())

    if feed is not None:
        app.feed("validate", feed)

    return app


def _is_in(contestants: Any, number: int) -> bool:
    """Whether there is such a contestant, and was not removed."""
    row = contestants.get(number)
    return row is not None and row["place"] is not None


def _count_one(tx: Any, number: int) -> None:
    """A vote more for a contestant, who passes those that are behind now."""
    contestants, standings = tx.table("contestants"), tx.table("standings")
    start = place = contestants.get(number)["place"]
    votes = standings.get(place)["votes"] + 1
    while place > 1:
        above = standings.get(place - 1)
        if (above["votes"], -above["contestant"]) > (votes, -number):
            break
        standings.upsert([{**above, "place": place}])
        contestants.upsert([{"contestant": above["contestant"], "place": place, "removed_after": None}])
        place -= 1
    standings.upsert([{"place": place, "contestant": number, "votes": votes}])
    if place != start:
        contestants.upsert([{"contestant": number, "place": place, "removed_after": None}])
