"""What the tables of the flow have to have, by Polars, from all rows of its three sources at one epoch."""

import polars as pl
import pyarrow as pa

from tussock.statestore import StateStore

__all__ = ["check_epoch", "epochs_of"]

KEYS = {"paid": "order_id", "shipped": "order_id", "status": "id", "customers": "customer", "owing": "customer"}


def epochs_of(store: StateStore, after: int = 0) -> list[int]:
    """The epochs that changed a source."""
    found: set[int] = set()
    for name in ("orders", "shipments", "payments"):
        found.update(store.table(name).change_epochs(after))
    return sorted(found)


def check_epoch(store: StateStore, epoch: int) -> dict[str, int]:
    """Raise `AssertionError` unless all tables are what Polars makes of the sources; returns how many rows each has."""
    sources = [_read(store, name, epoch) for name in ("orders", "shipments", "payments")]
    counts = {}
    for name, expected in _expected(*sources).items():
        key = KEYS[name]
        found = _read(store, name, epoch).select(expected.columns).sort(key)
        assert found.equals(expected.sort(key)), f"epoch {epoch}: table {name} is not what its sources say"
        counts[name] = len(found)
    return counts


def _expected(orders: pl.DataFrame, shipments: pl.DataFrame, payments: pl.DataFrame) -> dict[str, pl.DataFrame]:
    paid = payments.group_by("order_id").agg(
        pl.col("cents").sum().alias("paid"), pl.len().cast(pl.Int64).alias("parts")
    )
    shipped = shipments.group_by("order_id").agg(
        pl.len().cast(pl.Int64).alias("boxes"), pl.col("at_ms").min().alias("first_ms")
    )
    joined = orders.join(paid, left_on="id", right_on="order_id", how="left").join(
        shipped, left_on="id", right_on="order_id", how="left"
    )
    status = joined.select(
        "id",
        "customer",
        "cents",
        (pl.col("cents") - pl.col("paid").fill_null(0)).clip(0).alias("open"),
        pl.col("boxes").fill_null(0),
    )
    customers = status.group_by("customer").agg(
        pl.len().cast(pl.Int64).alias("orders"), pl.col("cents").sum(), pl.col("open").sum()
    )
    owing = customers.sort(["open", "customer"], descending=[True, False]).head(10)
    return {"paid": paid, "shipped": shipped, "status": status, "customers": customers, "owing": owing}


def _read(store: StateStore, name: str, epoch: int) -> pl.DataFrame:
    table = store.table(name)
    frame = pl.from_arrow(pa.Table.from_batches(list(table.read(epoch=epoch)), table.schema))
    assert isinstance(frame, pl.DataFrame)
    return frame
