"""What a feed gave that could not be used: rows of table `APPLICATION.dead_letters`, in the epoch of the state."""

from contextlib import suppress
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from tussock.compute.applications.arguments import clean_text
from tussock.statestore import TableNotFound
from tussock.statestore.transactions.delta import Delta

__all__ = ["DEAD_LETTERS_SCHEMA", "DeadLetters"]

DEAD_LETTERS_SCHEMA = pa.schema(
    [
        pa.field("number", pa.int64(), nullable=False),
        pa.field("feed", pa.string(), nullable=False),
        pa.field("batch_id", pa.int64(), nullable=False),
        pa.field("origin", pa.string(), nullable=False),
        pa.field("cause", pa.string(), nullable=False),
        pa.field("data", pa.binary(), nullable=False),
    ]
)


class DeadLetters:
    """Letters of one run, until a commit has them."""

    def __init__(self, table: str, delta: Delta, count: int) -> None:
        self._table = table
        self._delta = delta
        self.count = count
        """Of all runs."""
        self._fresh: list[dict[str, Any]] = []
        if not count:
            # Letters of an application of that name which was forgotten stay.
            with suppress(TableNotFound):
                for batch in delta.table(table, shared=True).read(columns=["number"]):
                    self.count = max(self.count, pc.max(batch.column("number")).as_py() or 0)

    def add(self, feed: str, batch_id: int, origin: str, cause: str, data: bytes) -> None:
        """One message, or one batch that was refused."""
        self.count += 1
        self._fresh.append(
            {
                "number": self.count,
                "feed": feed,
                "batch_id": batch_id,
                "origin": clean_text(origin),
                "cause": clean_text(cause),
                "data": data,
            }
        )

    def persist(self) -> int:
        """Write those that came since the last call; returns the count."""
        fresh, self._fresh = self._fresh, []
        if fresh:
            # Shared: operators look at letters, and delete them, while the application runs.
            self._delta.table(self._table, shared=True).upsert(pa.Table.from_pylist(fresh, schema=DEAD_LETTERS_SCHEMA))
        return self.count
