"""The table of transfers that a bank is fed from, its rows, and the table of its replies."""

from typing import Any

from support.feeds.fed_bank import TRANSFER
from support.feeds.sums import rows_of
from tussock.statestore import StateStore

__all__ = ["answers", "commit", "table_of", "transfer"]


def transfer(number: int, amount: int = 1, **other: Any) -> dict[str, Any]:
    """A row of the table."""
    return {"id": number, "payer": f"p{number % 3}", "payee": f"p{number % 3 + 3}", "amount": amount, **other}


def table_of(store: StateStore, name: str = "transfers") -> Any:
    """The table, new."""
    return store.create_table(name, TRANSFER, primary_key=["id"])


def commit(store: StateStore, *rows: dict[str, Any], table: str = "transfers") -> None:
    """In an epoch alone."""
    epoch = store.new_epoch()
    store.table(table).upsert(list(rows), epoch)
    store.commit_epoch(epoch)


def answers(store: StateStore, table: str = "answers") -> dict[str, tuple[str | None, str | None]]:
    """Reply and error of each request, by its id."""
    rows = rows_of(store.table(table))
    found = {row["request_id"]: (row["reply"], row["error"]) for row in rows}
    assert len(found) == len(rows), "one reply each"
    return found
