"""Stores many entities at once, before a program runs."""

from typing import Any

import pyarrow as pa

from tussock.compute.functions.entities.entities import create_tables
from tussock.compute.functions.entities.forms import KEY, STATE, StateForm, table_schema
from tussock.compute.functions.errors import FunctionFault
from tussock.compute.functions.program.operators import Operator
from tussock.statestore import SchemaMismatch, StateStore
from tussock.statestore.tables.typed_input import conform

__all__ = ["load_entities"]


def load_entities(store: StateStore, operator: Operator, rows: Any) -> int:
    """One commit of rows with the column `key` and those of the state; returns its epoch."""
    create_tables(store, [operator])
    table = rows if isinstance(rows, list) else pa.table(rows)
    if operator.schema is None:
        table = _as_json(table, operator)
    epoch = store.new_epoch()
    store.table(operator.name).upsert(conform(table, table_schema(operator), (KEY,), operator.name), epoch)
    return store.commit_epoch(epoch)


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
