"""How far an application is: a row of table `_applications`, written in the epoch that holds its state.

The table is one of the store's, for all applications: `name`, `uid`, the newest record in the state, the first object
of the input log that is not in it, and what the application's layer keeps beside its tables, as msgpack.
"""

from collections.abc import Sequence
from typing import Any

import msgspec
import pyarrow as pa

from tussock.statestore import Fenced, InvalidOption, StateStore, TableExists
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
    """The application's row; of one that is new, a fresh uid. Creates the table.

    Raises `InvalidOption` if the store has commits under the application's name that the row knows nothing of.
    """
    if APPLICATIONS not in store.tables():
        try:
            store.create_table(APPLICATIONS, SCHEMA, primary_key=["name"])
        except TableExists:
            store.tables()  # another application was faster
    row: dict[str, Any] | None = delta.table(APPLICATIONS, shared=True).get(name)
    # Row and batch are of the same commit. Above a newer batch nothing could be committed, and what was acknowledged
    # until then would be stuck in the log.
    first = 0 if row is None else row["seq"] + 1
    if _is_committed(store, name, first):
        raise InvalidOption(
            f"application {name!r}: the store has commits of a writer of that name which are not the application's, "
            f"which has {'no row' if row is None else f'record {first - 1} as its newest'} in table {APPLICATIONS!r}: "
            "something else uses the name as a writer, or that table was dropped or changed; nothing was done. Give "
            "the application another name, or bring the store back from a backup"
        )
    if row is None:
        return ApplicationProgress(delta.system.random_bytes(8).hex())
    takeovers = msgspec.msgpack.decode(row["takeovers"], type=list[int])
    return ApplicationProgress(row["uid"], row["seq"], row["next_object"], takeovers, row["state"])


def _is_committed(store: StateStore, writer: str, batch_id: int) -> bool:
    """Whether this batch of the writer, or a later one, is committed."""
    try:
        return store.committed_batch(writer, batch_id) is not None
    except Fenced:
        return True


def write_progress(delta: Delta, name: str, progress: ApplicationProgress) -> None:
    """Into the delta, for the same commit as the state."""
    row = {"name": name, **msgspec.structs.asdict(progress)}
    row["takeovers"] = msgspec.msgpack.encode(progress.takeovers)
    delta.table(APPLICATIONS, shared=True).upsert([row])
