"""How far an application is: a row of table `_applications`, written in the epoch that holds its state.

The table is one of the store's, for all applications: `name`, `uid`, the newest record in the state, the first object
of the input log that is not in it, what the application's layer keeps beside its tables, as msgpack, and which tables
are the application's.
"""

from collections.abc import Mapping, Sequence
from typing import Any

import msgspec
import pyarrow as pa

from tussock.compute.applications.errors import ApplicationFenced
from tussock.statestore import Fenced, InvalidOption, SchemaMismatch, StateStore, TableExists
from tussock.statestore.transactions.delta import Delta

__all__ = [
    "APPLICATIONS",
    "ApplicationProgress",
    "create_applications",
    "is_own_table",
    "progress_of",
    "read_progress",
    "row_of",
    "write_progress",
]

APPLICATIONS = "_applications"
_OWN = ("replies", "streams", "dead_letters", "given_up", "unsent")
"""Tables of an application, behind its name and a dot."""

SCHEMA = pa.schema(
    [
        pa.field("name", pa.string(), nullable=False),
        pa.field("uid", pa.string(), nullable=False),
        pa.field("seq", pa.int64(), nullable=False),
        pa.field("next_object", pa.int64(), nullable=False),
        pa.field("takeovers", pa.binary(), nullable=False),
        pa.field("state", pa.binary(), nullable=False),
        pa.field("tables", pa.binary()),
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
    tables: Mapping[int, str] = {}
    """By id, those that are the application's."""


def is_own_table(application: str, table: str) -> bool:
    """Whether an application keeps in a table of that name what it has to know; nobody else may write there."""
    return table == APPLICATIONS or table in {f"{application}.{one}" for one in _OWN}


def create_applications(store: StateStore) -> None:
    """The table, if it is not there; `SchemaMismatch` if somebody else has made it."""
    if APPLICATIONS not in store.tables():
        try:
            store.create_table(APPLICATIONS, SCHEMA, primary_key=["name"])
        except TableExists:
            store.tables()  # another application was faster
    columns = store.table(APPLICATIONS).schema.names
    if columns == SCHEMA.names[:-1]:
        # Of a time when applications did not note their tables.
        store.alter_table(APPLICATIONS, add={"tables": pa.binary()})
    elif columns != SCHEMA.names:
        raise SchemaMismatch(
            f"table {APPLICATIONS!r} has the columns {columns[:20]}: it is no table of applications, which keep in it "
            "how far they are; drop it, if nobody needs what it has"
        )


def read_progress(store: StateStore, delta: Delta, name: str) -> ApplicationProgress:
    """The application's row; of one that is new, a fresh uid. The table is there.

    Raises `InvalidOption` if the store has commits under the application's name that its row knows nothing of, and
    `ApplicationFenced` if they are those of another runner, which has taken the application over meanwhile.
    """
    row: dict[str, Any] | None = delta.table(APPLICATIONS, shared=True).get(name)
    known = None if row is None else progress_of(row)
    if check_batches(store, name, known) != known:
        raise ApplicationFenced(
            f"application {name!r}: another runner has taken it over while this one began, and has committed since; "
            "this one does not start, and has changed nothing"
        )
    return ApplicationProgress(delta.system.random_bytes(8).hex()) if known is None else known


def check_batches(store: StateStore, name: str, known: ApplicationProgress | None) -> ApplicationProgress | None:
    """The application's row, which is `known`, or what a runner has made of it since `known` was read.

    Raises `InvalidOption` if the store has commits under the application's name that its row knows nothing of. Row and
    batch are of the same commit. Above a newer batch nothing could be committed, and what was acknowledged until then
    would be stuck in the log.
    """
    while _is_committed(store, name, first := 0 if known is None or not known.state else known.seq + 1):
        before = known
        row = store.table(APPLICATIONS).get(name, store.committed_epoch or None)
        known = None if row is None else progress_of(row)
        if known == before:
            newest = f"record {first - 1} as its newest" if first else "no row"
            raise InvalidOption(
                f"application {name!r}: the store has commits of a writer of that name which are not the "
                f"application's, which has {newest} in table {APPLICATIONS!r}: something else uses the name as a "
                "writer, the application was forgotten, or that table was dropped or changed; nothing was done. Give "
                "the application another name, or bring the store back from a backup"
            )
    return known


def progress_of(row: Mapping[str, Any]) -> ApplicationProgress:
    """What a row of the table says."""
    takeovers = msgspec.msgpack.decode(row["takeovers"], type=list[int])
    tables = msgspec.msgpack.decode(row.get("tables") or b"\x80", type=dict[int, str])
    return ApplicationProgress(row["uid"], row["seq"], row["next_object"], takeovers, row["state"], tables)


def _is_committed(store: StateStore, writer: str, batch_id: int) -> bool:
    """Whether this batch of the writer, or a later one, is committed."""
    try:
        return store.committed_batch(writer, batch_id) is not None
    except Fenced:
        return True


def write_progress(delta: Delta, name: str, progress: ApplicationProgress) -> None:
    """Into the delta, for the same commit as the state."""
    delta.table(APPLICATIONS, shared=True).upsert([row_of(name, progress)])


def row_of(name: str, progress: ApplicationProgress) -> dict[str, Any]:
    """The row of an application."""
    row = {"name": name, **msgspec.structs.asdict(progress)}
    return {**row, **{one: msgspec.msgpack.encode(row[one]) for one in ("takeovers", "tables")}}
