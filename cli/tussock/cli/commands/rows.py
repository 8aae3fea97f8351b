"""The commands that read rows: `tables`, `get`, `scan`, `changes`."""

from collections.abc import Callable, Iterator
from contextlib import ExitStack
from itertools import islice
from typing import Annotated, Any, TypeVar

import pyarrow as pa
import typer

from tussock.cli.options import At, Epoch, Json, Key, Store, TableName, read_epoch
from tussock.cli.output import (
    bytes_text,
    emit_json,
    emit_lines,
    epoch_time,
    grid,
    note,
    number,
    plural,
    seconds_text,
    show,
)
from tussock.cli.places import store_at, version_at
from tussock.cli.values import as_text, batch_rows, parse_bytes, parse_key
from tussock.meta.version.ranges import total_bytes
from tussock.statestore import RawTable, SnapshotExpired, StateStore, TypedTable
from tussock.statestore.contract.records import TableState

__all__ = ["changes", "get", "scan", "tables"]

Read = TypeVar("Read")

ROWS_SHOWN = 100
"""Rows of a table for people unless `--limit` says otherwise; JSON is never cut off unasked."""

Limit = Annotated[
    int | None,
    typer.Option("--limit", "-n", min=0, help=f"Number of rows at most; by default {ROWS_SHOWN}, and with --json all."),
]


def tables(store: Store, as_json: Json = False) -> None:
    """List the tables: kind, key, size and newest epoch.

    With --json one document: {"tables": [{name, id, kind, columns, primary_key, distribution_key, vnodes,
    block_bytes, compression, retention_seconds, ttl_seconds, ttl_column, rows, deletes, ssts, bytes, last_epoch}]};
    `retention_seconds` is null for that of the store, `ttl_seconds` for rows that do not expire.
    """
    with version_at(store) as version:
        states = sorted(version.tables.values(), key=lambda state: state.spec.name)
    if as_json:
        emit_json({"tables": [_table_document(state) for state in states]})
        return
    if not states:
        show("The store has no tables.")
        return
    rows = [
        (
            state.spec.name,
            _kind(state),
            ", ".join(state.spec.primary_key) or "key",
            "store's" if state.spec.retention_ms is None else seconds_text(state.spec.retention_ms),
            _ttl(state),
            number(sum(sst.rows for sst in state.levels.ssts())),
            number(len(state.levels.ssts())),
            bytes_text(total_bytes(state.levels.ssts())),
            str(state.last_epoch) if state.last_epoch else "never written",
            _second(epoch_time(state.last_epoch)),
        )
        for state in states
    ]
    columns = (
        "table",
        "kind",
        "key",
        "retention",
        "time to live",
        "row versions",
        "SSTs",
        "size",
        "newest epoch",
        "committed",
    )
    show(grid(*columns, right=("row versions", "SSTs", "size"), whole=["newest epoch", "committed"], rows=rows))


def _second(moment: str | None) -> str:
    """The time to the second; an epoch that carries none has none."""
    return moment[:19] + "Z" if moment else ""


def _kind(state: TableState) -> str:
    return "raw" if state.spec.schema is None else "typed"


def _ttl(state: TableState) -> str:
    if state.spec.ttl_ms is None:
        return ""
    return seconds_text(state.spec.ttl_ms) + (f" from {state.spec.ttl_column}" if state.spec.ttl_column else "")


def _table_document(state: TableState) -> dict[str, Any]:
    spec, ssts = state.spec, state.levels.ssts()
    return {
        "name": spec.name,
        "id": spec.id,
        "kind": _kind(state),
        "columns": {field.name: str(field.type) for field in spec.arrow_schema()},
        "primary_key": spec.primary_key or ("key",),
        "distribution_key": spec.distribution_key,
        "vnodes": spec.vnodes,
        "block_bytes": spec.block_bytes,
        "compression": spec.compression,
        "retention_seconds": None if spec.retention_ms is None else spec.retention_ms / 1000,
        "ttl_seconds": None if spec.ttl_ms is None else spec.ttl_ms / 1000,
        "ttl_column": spec.ttl_column,
        "rows": sum(sst.rows for sst in ssts),
        "deletes": sum(sst.deletes for sst in ssts),
        "ssts": len(ssts),
        "bytes": total_bytes(ssts),
        "last_epoch": state.last_epoch,
    }


def get(table: TableName, key: Key, store: Store, epoch: Epoch = None, at: At = None, as_json: Json = False) -> None:
    """Show the row under one key; exit code 1 if there is none.

    With --json one document: the row as an object, {"key", "value"} of a raw table, or null.
    """
    with store_at(store) as opened:
        found = opened.table(table)
        wanted = read_epoch(opened, found, epoch, at)
        with ExitStack() as pins:
            row = _read_kept(opened, found, wanted, pins, lambda target, epoch: _row(target, key, epoch))
    if as_json:
        emit_json(row)
    elif row is not None:
        show(grid("column", "value", rows=[(name, as_text(value)) for name, value in row.items()]))
    else:
        note(f"no row under {' '.join(key)} in table {table}" + (f" at epoch {wanted}" if wanted else ""))
    if row is None:
        raise typer.Exit(1)


def scan(
    table: TableName,
    store: Store,
    prefix: Annotated[
        list[str] | None,
        typer.Option(
            help="Rows whose key begins with this; of a typed table the first key column's value, repeated for more."
        ),
    ] = None,
    start: Annotated[str | None, typer.Option(help="Raw tables: the first key.")] = None,
    end: Annotated[str | None, typer.Option(help="Raw tables: the key to stop before.")] = None,
    reverse: Annotated[bool, typer.Option("--reverse", "-r", help="Raw tables: from the largest key down.")] = False,
    columns: Annotated[
        str | None, typer.Option("--columns", "-c", metavar="A,B", help="Typed tables: the columns to show.")
    ] = None,
    limit: Limit = None,
    epoch: Epoch = None,
    at: At = None,
    as_json: Json = False,
) -> None:
    """Show rows by key: all, a range or those with a prefix.

    The rows of a typed table are ordered by virtual node, then key. With --json a row a line: its columns, or
    {"key", "value"} of a raw table.
    """
    most = limit if limit is not None or as_json else ROWS_SHOWN
    # One more than is shown tells whether there are more.
    fetched = None if most is None else most + 1
    with store_at(store) as opened:
        found = opened.table(table)
        wanted = read_epoch(opened, found, epoch, at)

        def read(target: RawTable | TypedTable, epoch: int | None) -> Iterator[pa.RecordBatch]:
            if isinstance(target, RawTable):
                if columns is not None or len(prefix or []) > 1:
                    raise typer.BadParameter(f"table {table!r} is raw: it takes one --prefix and no --columns")
                texts = (start, end, prefix[0] if prefix else None)
                bounds = [None if text is None else parse_bytes(text) for text in texts]
                return target.scan(bounds[0], bounds[1], prefix=bounds[2], epoch=epoch, limit=fetched, reverse=reverse)
            if start is not None or end is not None or reverse:
                raise typer.BadParameter(f"table {table!r} is typed: --start, --end and --reverse are for raw tables")
            names = None if columns is None else [name.strip() for name in columns.split(",")]
            values = None if prefix is None else parse_key(target.spec, prefix, whole=False)
            return target.read(names, epoch=epoch, prefix=values, limit=fetched)

        with ExitStack() as pins:
            batches = _read_kept(opened, found, wanted, pins, read)
            _show_rows((row for batch in batches for row in batch_rows(batch)), most, as_json=as_json)


def changes(
    table: TableName,
    store: Store,
    from_epoch: Annotated[int, typer.Option("--from", min=0, metavar="EPOCH", help="After this epoch; 0: all.")],
    to_epoch: Annotated[
        int | None,
        typer.Option("--to", min=0, metavar="EPOCH", help="Up to and with this epoch; else the newest."),
    ] = None,
    limit: Limit = None,
    as_json: Json = False,
) -> None:
    """Show what was committed between two epochs, in (--from, --to], by key, then epoch.

    Of a typed table by virtual node first. With --json a change a line: the table's columns (or key and value), "op"
    (put or delete) and "epoch".
    """
    most = limit if limit is not None or as_json else ROWS_SHOWN
    with store_at(store) as opened:
        batches = opened.table(table).changes(from_epoch, to_epoch)
        count = 0

        def rows() -> Iterator[dict[str, Any]]:
            nonlocal count
            for batch in batches:
                count += batch.num_rows
                # A table may have columns of these names; then the added ones have others.
                op, epoch = batch.schema.names[-2:]
                yield from ({epoch: row.pop(epoch), op: row.pop(op), **row} for row in batch_rows(batch))

        _show_rows(rows(), most, as_json=as_json)
        if not as_json:
            # Those that were not shown are counted, and not kept.
            note(plural(count + sum(batch.num_rows for batch in batches), "change"))


def _read_kept(
    store: StateStore,
    table: RawTable | TypedTable,
    epoch: int | None,
    pins: ExitStack,
    read: Callable[[RawTable | TypedTable, int | None], Read],
) -> Read:
    """What `read` returns for the table at the epoch; if that is past its retention, through a pin that joins `pins`.

    Such a pin is granted where an older one keeps the epoch. Not pinned from the start: that writes to the bucket.
    """
    try:
        return read(table, epoch)
    except SnapshotExpired as expired:
        if epoch is None:
            raise
        try:
            return read(pins.enter_context(store.pin_snapshot(epoch)).table(table.name), None)
        except SnapshotExpired:
            # The first error has the oldest epoch of this table.
            told = f"table {table.name!r}: epoch {epoch} is no longer kept, and no older pin keeps it"
            oldest = expired.args[-1]
            raise SnapshotExpired(f"{told}; the oldest that can be read is {oldest}", epoch, oldest) from None


def _row(target: RawTable | TypedTable, key: list[str], epoch: int | None) -> dict[str, Any] | None:
    """The row under a key as the command line gives it; `None` if there is none."""
    if isinstance(target, RawTable):
        if len(key) != 1:
            raise typer.BadParameter(f"table {target.name!r} is raw: give one key, not {len(key)} values")
        raw = parse_bytes(key[0])
        value = target.get(raw, epoch)
        return None if value is None else {"key": raw, "value": value}
    # As `scan` reads it: the classes of single values depend on what else is installed.
    found = target.multi_get([parse_key(target.spec, key)], epoch)
    rows = batch_rows(pa.RecordBatch.from_arrays(found.flatten(), schema=target.schema))
    return rows[0] if found[0].is_valid else None


def _show_rows(rows: Iterator[dict[str, Any]], most: int | None, *, as_json: bool) -> None:
    """Print at most `most` rows, and say so where there were more."""
    if as_json:
        emit_lines(islice(rows, most))
        return
    picked = list(islice(rows, most))
    if not picked:
        show("no rows")
        return
    right = [name for name, value in picked[0].items() if type(value) in (int, float)]
    show(grid(*picked[0], right=right, rows=[[as_text(value) for value in row.values()] for row in picked]))
    if next(rows, None) is not None:
        note(f"more rows follow the {len(picked):,} shown; --limit shows more, --json all")
