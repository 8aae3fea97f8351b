"""How far an application is: a row of table `_applications`, written in the epoch that holds its state.

The table is one of the store's, for all applications: `name`, `uid`, the newest record in the state, the first object
of the input log that is not in it, and what the application's layer keeps beside its tables, as msgpack.
"""

from collections.abc import Sequence
from typing import Any

import msgspec
import pyarrow as pa

from tussock.statestore import StateStore, TableExists
from tussock.statestore.transactions.delta import Delta

__all__ = ["APPLICATIONS", "ApplicationProgress", "read_progress", "write_progress"]

APPLICATIONS = "_applications"

SCHEMA = pa.schema(
    [
        pa.field("name", pa.string(), nullable=False),
        pa.field("uid", pa.string(), nullable=False),
        pa.field("seq", pa.int64(), nullable=False),
        pa.field("next_object", pa.int64(), nullable=False),
        pa.field("takeovers", pa.binary(), nullable=False),
        pa.field("state", pa.binary(), nullable=False),
    ]
)


class ApplicationProgress(msgspec.Struct, frozen=True):
    """Where a recovery begins."""

    uid: str
    seq: int = 0
    """The newest record whose effects are in the tables."""
    next_object: int = 1
    """The first object of the input log whose records are not."""
    takeovers: Sequence[int] = ()
    """Objects by which runners took the log over."""
    state: bytes = b""
    """The layer's."""


def read_progress(store: StateStore, delta: Delta, name: str) -> ApplicationProgress:
    """The application's row; of one that is new, a fresh uid. Creates the table."""
    if APPLICATIONS not in store.tables():
        try:
            store.create_table(APPLICATIONS, SCHEMA, primary_key=["name"])
        except TableExists:
            store.tables()  # another application was faster
    row: dict[str, Any] | None = delta.table(APPLICATIONS, shared=True).get(name)
    if row is None:
        return ApplicationProgress(delta.system.random_bytes(8).hex())
    takeovers = msgspec.msgpack.decode(row["takeovers"], type=list[int])
    return ApplicationProgress(row["uid"], row["seq"], row["next_object"], takeovers, row["state"])


def write_progress(delta: Delta, name: str, progress: ApplicationProgress) -> None:
    """Into the delta, for the same commit as the state."""
    row = {"name": name, **msgspec.structs.asdict(progress)}
    row["takeovers"] = msgspec.msgpack.encode(progress.takeovers)
    delta.table(APPLICATIONS, shared=True).upsert([row])
