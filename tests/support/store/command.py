"""Small real stores for the command's tests, and the results of runs."""

import json
from collections.abc import Callable
from datetime import UTC, date, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any, NamedTuple

import pyarrow as pa

from support.store.stores import OBJECTS
from tussock.statestore import connect

__all__ = ["ORDERS", "Ran", "Sample", "Tussock", "build_sample", "order"]


class Ran(NamedTuple):
    """The results of a run of the command."""

    code: int
    out: str
    err: str

    def json(self) -> Any:
        """The one document on stdout."""
        return json.loads(self.out)

    def lines(self) -> list[Any]:
        """The document on each line of stdout."""
        return [json.loads(line) for line in self.out.splitlines()]


Tussock = Callable[..., Ran]


class Sample(NamedTuple):
    """A store with a raw table `kv` and a typed table `orders`, and its three epochs."""

    url: str
    epochs: tuple[int, int, int]
    folder: Path


ORDERS = pa.schema(
    [
        pa.field("day", pa.date32()),
        pa.field("id", pa.int64()),
        pa.field("note", pa.string()),
        pa.field("amount", pa.decimal128(10, 2)),
        pa.field("at", pa.timestamp("us", "UTC")),
    ]
)


def order(day: int, number: int, note: str | None, amount: str) -> dict[str, Any]:
    """A row of `orders`."""
    at = datetime(2026, 1, day, 12, tzinfo=UTC)
    return {"day": date(2026, 1, day), "id": number, "note": note, "amount": Decimal(amount), "at": at}


def build_sample(folder: Path) -> Sample:
    """Three epochs in two tables, not compacted."""
    with connect(folder.as_uri(), compaction=False, limits=OBJECTS) as store:
        kv = store.create_table("kv")
        orders = store.create_table("orders", schema=ORDERS, primary_key=["day", "id"], distribution_key=["day"])
        epochs = []
        for batch in range(3):
            epoch = store.new_epoch()
            rows = [(f"k{number:03d}".encode(), f"v{batch}".encode()) for number in range(batch, 120)]
            rows += [(b"z\xff\x00", b"\x01" if batch < 2 else None)]
            kv.ingest_batch(rows, epoch)
            orders.upsert([order(1, 1, f"n{batch}", "1.50"), order(2, 10 + batch, None, "2.25")], epoch)
            if batch == 2:
                orders.delete([(date(2026, 1, 1), 1)], epoch)
            epochs.append(store.commit_epoch(epoch, writer="job", batch_id=batch))
    return Sample(folder.as_uri(), (epochs[0], epochs[1], epochs[2]), folder)
