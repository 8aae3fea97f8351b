"""A bank whose transfers come from a feed, and a process that serves it until it is killed.

`python fed_bank.py URL JSON` with `by_columns`, `kafka`, `topic` and the options; with `until` it ends once all is
through.
"""

import json
import sys
from collections import Counter
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

import pyarrow as pa

from support.feeds.serving import live
from support.functions.accounts import accounts, column_accounts
from tussock.compute import functions as fn
from tussock.statestore import StateStore, connect

__all__ = ["PEOPLE", "START", "TRANSFER", "balances_of", "fed_bank", "left_by"]

PEOPLE = 6
START = 1000
"""What each of the accounts `p0` to `p5` begins with."""
TRANSFER = pa.schema(
    [
        pa.field("id", pa.int64(), nullable=False),
        ("payer", pa.string()),
        ("payee", pa.string()),
        ("amount", pa.int64()),
    ]
)


def fed_bank(
    store: StateStore, feed: Any, replies: Any = None, *, by_columns: bool = False, **options: Any
) -> fn.Runtime:
    """Each row of the feed is a transfer; `by_columns`: many at a time, by a batch function."""
    runtime = fn.Runtime(store, "bank", [column_accounts() if by_columns else accounts()], **options)
    if "account" not in store.tables():
        runtime.load("account", [{"key": f"p{at}", "balance": START} for at in range(PEOPLE)])
    runtime.feed(
        "account",
        "transfer",
        feed,
        key="payer",
        arguments=["payee", "amount"],
        request_id="id",
        replies=replies,
        name="transfers",
    )
    return runtime


def balances_of(store: StateStore) -> dict[str, int]:
    """As the newest commit has them."""
    rows = [row for batch in store.table("account").read() for row in batch.to_pylist()]
    return {row["key"]: row["balance"] if "balance" in row else json.loads(row["state"])["balance"] for row in rows}


def left_by(transfers: Iterable[Mapping[str, Any]], failed: set[str]) -> dict[str, int]:
    """The balances when all of these ran once, but for those that failed, by id."""
    found = Counter({f"p{at}": START for at in range(PEOPLE)})
    for one in transfers:
        if str(one["id"]) not in failed:
            found[one["payer"]] -= one["amount"]
            found[one["payee"]] += one["amount"]
    return dict(found)


def serve(url: str, given: dict[str, Any]) -> None:
    """Until it is killed, or all is through."""
    feed = fn.KafkaFeed(schema=TRANSFER, **given["kafka"]) if "kafka" in given else fn.TableFeed("transfers", start=0)
    replies = fn.KafkaTopic(**given["topic"]) if "topic" in given else "answers"
    options = {**given["options"], "by_columns": given["by_columns"]}
    with connect(url, compaction=False) as store, fed_bank(store, feed, replies, **options) as bank:
        live(bank, given["until"])


if __name__ == "__main__":
    serve(sys.argv[1], json.loads(sys.argv[2]))
