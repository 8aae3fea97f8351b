"""Whose the tables of a store are: what a start looks at before it makes tables, or takes an application over.

A start that has to fail must not shut out a runner that works. So what the store alone can tell is looked at first:
whether the application is of this kind, whether its tables are those that it had, and whether others have them. What an
application has opened when it begins, and what it has written since, is noted in its row of `_applications`.
"""

from collections.abc import Collection, Mapping, Sequence
from typing import Any

import msgspec
import pyarrow as pa

from tussock.compute.applications.durability.progress import (
    APPLICATIONS,
    ApplicationProgress,
    check_batches,
    create_applications,
    progress_of,
    row_of,
)
from tussock.statestore import InvalidOption, SchemaMismatch, StateStore, TableNotFound
from tussock.statestore.tables.raw_table import RawTable
from tussock.statestore.transactions.transaction import Transaction

__all__ = ["OwnTables", "TableClaims", "check_columns", "claim"]

OwnTables = Mapping[str, tuple[pa.Schema, Sequence[str]]]
"""By name, tables that an application keeps beside those of its user, with their columns and their keys."""


class TableClaims:
    """What the applications of a store have noted, as of now."""

    def __init__(self, store: StateStore, application: str, *, take_over: str = "") -> None:
        """Raises `SchemaMismatch` if somebody else has made the table of applications.

        `InvalidOption` if the store has commits under the name of an application that it does not know.
        """
        create_applications(store)
        self._take_over = f", or {take_over}" if take_over else ""
        """How the layer takes rows over that are there."""
        self._store = store
        self._application = application
        self.own: ApplicationProgress | None = None
        """Of the newest commit; `None` if the store has no such application."""
        self._owners: dict[int, str] = {}
        for batch in store.table(APPLICATIONS).read(columns=["name", "tables"]):
            for name, packed in zip(*(column.to_pylist() for column in batch.columns), strict=True):
                if name != application and packed is not None:
                    self._owners |= dict.fromkeys(msgspec.msgpack.decode(packed, type=dict[int, str]), name)
        row = store.table(APPLICATIONS).get(application)
        if row is not None:
            self.own = progress_of(row)
        if not self.state:
            # Of one that may be running, row and batch are looked at together, once nobody else commits.
            self.own = check_batches(store, application, self.own)

    @property
    def state(self) -> bytes:
        """What the layer keeps beside its tables; empty for a new application."""
        return b"" if self.own is None else self.own.state

    def check(
        self, tables: Collection[str], *, alone: Collection[str] = (), ways_back: Mapping[str, str] | None = None
    ) -> None:
        """Raise unless the application may start on these tables; those of `alone` may have rows of nobody else.

        `ways_back` says by table what else than the application as a whole can be given up.

        Raises `TableNotFound` for one that was dropped since its last commit, also if another has the name now, and
        `InvalidOption` for one of another application, or with rows of somebody else.
        """
        version = self._store.version()
        noted = {} if self.own is None else {name: table for table, name in self.own.tables.items()}
        for name in tables:
            state, known = version.find_table(name), noted.get(name)
            if known is not None and (state is None or state.spec.id != known):
                now = "and the store has none of that name" if state is None else "and another one has its name now"
                way_back = (ways_back or {}).get(
                    name,
                    f"give the application up with `tussock repair application {self._application} --forget`, and "
                    "start it under another name",
                )
                raise TableNotFound(
                    f"application {self._application!r}: its table {name!r} was dropped, {now}: it does not begin "
                    f"anew, as it would have lost rows without a word. Bring the store back from a backup; or "
                    f"{way_back}",
                    name,
                )
            if state is None:
                continue
            owner = self._owners.get(state.spec.id)
            if owner is not None:
                raise InvalidOption(
                    f"application {self._application!r}: table {name!r} is that of application {owner!r}, and two "
                    f"cannot share one: give it another name; or, if {owner!r} is to be no more, stop it, and let "
                    f"`tussock repair application {owner} --forget` give its tables up"
                )
            if known is None and name in alone and not self._is_older() and _has_rows(self._store, name):
                raise InvalidOption(
                    f"application {self._application!r}: table {name!r} is there and has rows that the application "
                    f"did not write: give it another name, or drop the table{self._take_over}"
                )

    def _is_older(self) -> bool:
        """Whether the application is of a time when none noted its tables."""
        return self.own is not None and bool(self.own.state) and not self.own.tables


def check_columns(store: StateStore, application: str, tables: OwnTables) -> None:
    """`SchemaMismatch` if somebody else has made one of the tables, with other columns."""
    there = set(store.tables())
    for name, (schema, key) in tables.items():
        if name not in there:
            continue
        table = store.table(name)
        columns = [] if isinstance(table, RawTable) else [(one.name, one.type) for one in table.schema]
        if columns != [(one.name, one.type) for one in schema] or tuple(table.primary_key) != tuple(key):
            raise SchemaMismatch(
                f"application {application!r}: table {name!r} has the columns {[one for one, _ in columns][:20]}; the "
                f"application keeps there what it has to know, in the columns {schema.names} with the key "
                f"{list(key)}: give it another name; or drop the table, if nobody needs what it has"
            )


def claim(store: StateStore, application: str, table: str) -> None:
    """Note that a table is the application's, before it has started on it, whatever rows the table has.

    Raises `InvalidOption` if it is another application's.
    """
    claims = TableClaims(store, application)
    claims.check([table])
    state = store.version().find_table(table)
    assert state is not None, "what is claimed is there"
    number = state.spec.id
    if claims.own is not None and number in claims.own.tables:
        return
    delta = store.delta(application)
    uid = delta.system.random_bytes(8).hex()
    delta.close()

    def note(tx: Transaction) -> None:
        row: dict[str, Any] | None = tx.table(APPLICATIONS).get(application)
        known = ApplicationProgress(uid) if row is None else progress_of(row)
        known = msgspec.structs.replace(known, tables={**known.tables, number: table})
        tx.table(APPLICATIONS).upsert([row_of(application, known)])

    store.transact(note)


def _has_rows(store: StateStore, table: str) -> bool:
    there = store.table(table)
    found = there.scan(limit=1) if isinstance(there, RawTable) else there.read(limit=1)
    return any(batch.num_rows for batch in ([found] if isinstance(found, pa.RecordBatch) else found))
