"""Rows that a topic refuses for their size: kept in table `APPLICATION.unsent`, so that what follows them is sent.

The thread that sends writes them, in a commit before Kafka's: after a crash between the two they come again, and are
the same rows of the table.
"""

from collections.abc import Sequence

import pyarrow as pa

from tussock.compute.applications.arguments import clean_text
from tussock.compute.applications.borders.sender import UnsentRow
from tussock.statestore import StateStore, TableExists
from tussock.statestore.base.logs import get_logger

__all__ = ["keep_unsent"]

log = get_logger("tussock.compute.applications.outputs")

UNSENT_SCHEMA = pa.schema(
    [
        pa.field("stream", pa.string(), nullable=False),
        pa.field("sequence", pa.int64(), nullable=False),
        pa.field("position", pa.int64(), nullable=False),
        pa.field("cause", pa.string(), nullable=False),
        pa.field("key", pa.binary()),
        pa.field("value", pa.binary()),
    ]
)


def keep_unsent(store: StateStore, application: str, stream: str, rows: Sequence[UnsentRow]) -> None:
    """Durable when this returns."""
    table = f"{application}.unsent"
    if table not in store.tables():
        try:
            store.create_table(table, UNSENT_SCHEMA, primary_key=["stream", "sequence", "position"], vnodes=1)
        except TableExists:
            store.tables()
    kept = [{"stream": stream, **row._asdict(), "cause": clean_text(row.cause)} for row in rows]
    epoch = store.new_epoch()
    store.table(table).upsert(pa.Table.from_pylist(kept, schema=UNSENT_SCHEMA), epoch)
    store.commit_epoch(epoch)
    log.warning("rows are not sent", application=application, stream=stream, rows=len(rows), cause=rows[0].cause)
