"""Stores many entities at once, before a program runs."""

from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from tussock.compute.functions.entities.forms import KEY, STATE, StateForm, table_schema
from tussock.compute.functions.entities.own_tables import claim_operator
from tussock.compute.functions.errors import FunctionFault
from tussock.compute.functions.program.columns import checked_table
from tussock.compute.functions.program.operators import Operator
from tussock.compute.functions.program.values import KEY_BYTES_MAX, VALUE_BYTES_MAX
from tussock.statestore import SchemaMismatch, StateStore
from tussock.statestore.tables.typed_input import conform

__all__ = ["load_entities"]


def load_entities(store: StateStore, program: str, operator: Operator, rows: Any, place: str | None) -> int:
    """One commit of rows with the column `key` and those of the state; returns its epoch. `place`: of the input log."""
    claim_operator(store, program, operator, place)
    try:
        table = rows if isinstance(rows, list) else checked_table(rows, "rows to load")
    except FunctionFault as error:
        raise SchemaMismatch(
            f"operator {operator.name!r}: rows to load are {rows!r:.100}; expected Arrow data, a frame or a list of "
            "dicts"
        ) from error
    if operator.schema is None:
        table = _as_json(table, operator)
    found = conform(table, table_schema(operator), (KEY,), operator.name)
    _check_sizes(found, operator)
    epoch = store.new_epoch()
    store.table(operator.name).upsert(found, epoch)
    return store.commit_epoch(epoch)


def _check_sizes(rows: pa.RecordBatch, operator: Operator) -> None:
    """What no request could name, and no function could put, is not there either."""
    for field in rows.schema:
        if not (pa.types.is_string(field.type) or pa.types.is_binary(field.type)):
            continue
        column = rows.column(field.name)
        most = VALUE_BYTES_MAX
        if field.name == KEY:
            most = KEY_BYTES_MAX // 4 if field.type == pa.string() else KEY_BYTES_MAX
        is_characters = field.name == KEY and field.type == pa.string()
        longest = pc.max(pc.utf8_length(column) if is_characters else pc.binary_length(column)).as_py() or 0
        if longest > most:
            raise SchemaMismatch(
                f"operator {operator.name!r}: column {field.name!r} has a value of {longest:,} "
                f"{'characters' if is_characters else 'bytes'}; at most {most:,} fit"
            )


def _as_json(rows: Any, operator: Operator) -> pa.Table:
    dicts = rows if isinstance(rows, list) else rows.to_pylist()
    if not all(isinstance(row, dict) and KEY in row for row in dicts):
        raise SchemaMismatch(f"operator {operator.name!r}: rows to load need the column {KEY!r}")
    form = StateForm(operator)
    keys = [row[KEY] for row in dicts]
    try:
        states = [
            form.encode({name: value for name, value in row.items() if name != KEY}, row[KEY]).decode() for row in dicts
        ]
        return pa.table({KEY: pa.array(keys, operator.key_type), STATE: states}, schema=table_schema(operator))
    except (FunctionFault, TypeError, ValueError, pa.ArrowException) as error:
        raise SchemaMismatch(f"operator {operator.name!r}: these rows cannot be kept: {error}") from error
