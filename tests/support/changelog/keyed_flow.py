"""A flow whose streams share one key: by record, by batch, and by record behind that."""

import pyarrow as pa
import pyarrow.compute as pc

from tussock.compute import changelog as cl
from tussock.statestore import StateStore

__all__ = ["ROW", "TABLES", "keyed_flow"]

ROW = pa.schema([("shop", pa.string()), ("item", pa.int64()), ("v", pa.int64()), ("note", pa.string())])
TABLES = ("stock", "doubled", "large")


def keyed_flow(store: StateStore) -> cl.Flow:
    """`stock` gets the rows; 13 cannot be doubled, and large ones are kept."""
    stock = cl.Stream(store, "stock", schema=ROW, key=["shop", "item"])
    doubled = cl.Stream(store, "doubled", schema=ROW, key=["shop", "item"], inputs=[stock])
    large = cl.Stream(store, "large", schema=ROW, key=["shop", "item"], inputs=[doubled])

    @doubled.compute_batch
    def double(batch: pa.RecordBatch) -> pa.RecordBatch:
        if pc.any(pc.equal(batch.column("v"), 13)).as_py():
            raise ValueError("13 is unlucky")
        return batch.set_column(2, "v", pc.multiply(batch.column("v"), 2))

    @large.compute
    def keep(row: cl.ChangeRecord) -> cl.ChangeRecord:
        return cl.safedelete(row) if row.op == "DELETE" or row["v"] < 100 else cl.upsert(row)

    return cl.Flow(store, [stock, doubled, large])
