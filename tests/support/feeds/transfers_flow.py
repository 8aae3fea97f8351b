"""Transfers between accounts as Debezium tells them, each a transaction of two events; and a process that takes them.

`python transfers_flow.py URL JSON` with `kafka`, `topic`, `files` and the options; with `until` it ends once all is
through.
"""

import json
import random
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

import pyarrow as pa

from support.feeds.serving import live
from tussock.compute import changelog as cl
from tussock.statestore import StateStore, connect

__all__ = ["ACCOUNT", "NUMBER", "START", "Accounts", "balances_after", "transfers_flow"]

ACCOUNT = pa.schema([pa.field("id", pa.int64(), nullable=False), ("balance", pa.int64())])
START = 1000
NUMBER = 8


class Accounts:
    """A database: its accounts, and what Debezium writes of their changes."""

    def __init__(self, chance: random.Random, table: str = "bank.accounts") -> None:
        self._chance = chance
        self._table = table
        self.balances = dict.fromkeys(range(NUMBER), START)
        self.transfers = 0

    def snapshot(self) -> list[dict[str, Any]]:
        """All rows, as a connector reads them at its beginning."""
        return [
            {"op": "r", "before": None, "after": self._row(number), "transaction": None} for number in self.balances
        ]

    def transfer(self) -> tuple[str, list[dict[str, Any]], dict[str, Any]]:
        """The next one: its id, its events, and its end."""
        self.transfers += 1
        name, events = f"{500 + self.transfers}", []
        payer, payee = self._chance.sample(sorted(self.balances), 2)
        amount = self._chance.randint(1, 50)
        for at, (account, change) in enumerate(((payer, -amount), (payee, amount)), 1):
            before = self._row(account)
            self.balances[account] += change
            # PostgreSQL's have the place of each event behind the number.
            block = {"id": f"{name}:{self.transfers * 10 + at}", "total_order": at, "data_collection_order": at}
            events.append({"op": "u", "before": before, "after": self._row(account), "transaction": block})
        tables = [{"data_collection": self._table, "event_count": 2}, {"data_collection": "bank.log", "event_count": 7}]
        end = {"status": "END", "id": f"{name}:{self.transfers * 10 + 9}", "event_count": 9, "data_collections": tables}
        return name, events, end

    def _row(self, number: int) -> dict[str, int]:
        return {"id": number, "balance": self.balances[number]}


def balances_after(published: Sequence[Any]) -> list[Mapping[int, int]]:
    """What the accounts had after each transaction that was published."""
    now: dict[int, int] = {}
    found = []
    for one in published:
        for record in one:
            now[record["id"]] = record["balance"]
        found.append(dict(now))
    return found


def transfers_flow(
    store: StateStore, feed: Any, topic: Any, files: Any = None, **options: Any
) -> tuple[cl.Stream, cl.Flow]:
    """Accounts as they are, and of those the ones that have more than they began with; these go into the topic."""
    accounts = cl.Stream(store, "accounts", schema=ACCOUNT, key=["id"])
    rich = cl.Stream(store, "rich", schema=ACCOUNT, key=["id"], inputs=[accounts])

    @rich.compute
    def choose(row: cl.ChangeRecord) -> cl.ChangeRecord:
        return cl.upsert(row) if row["balance"] > START else cl.safedelete(id=row["id"])

    flow = cl.Flow(store, [accounts, rich], **options)
    flow.feed(accounts, feed)
    if topic is not None:
        flow.output(rich, topic)
    if files is not None:
        flow.output(accounts, files, name="files")
    flow.output(accounts, "account_changes", name="changes")
    return accounts, flow


def serve(url: str, given: dict[str, Any]) -> None:
    """Until it is killed, or all is through."""
    feed = cl.KafkaChanges(**given["kafka"])
    topic = cl.ChangesTopic(**given["topic"])
    files = cl.ParquetFiles(**given["files"])
    with (
        connect(url, compaction=False) as store,
        transfers_flow(store, feed, topic, files, **given["options"])[1] as flow,
    ):
        live(flow, given["until"])


if __name__ == "__main__":
    serve(sys.argv[1], json.loads(sys.argv[2]))
