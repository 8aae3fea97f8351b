"""The tables of a program of functions: looked at, before anybody is shut out, and made where they are not there."""

from collections.abc import Iterable
from typing import Protocol

import pyarrow as pa

from tussock.compute.applications.durability.claims import TableClaims, claim
from tussock.compute.functions.entities.forms import KEY, table_schema
from tussock.compute.functions.entities.replies import REPLIES_SCHEMA, replies_table
from tussock.compute.functions.epochs.request_records import read_progress
from tussock.compute.functions.program.operators import Operator
from tussock.statestore import SchemaMismatch, StateStore, TableExists

__all__ = ["claim_operator", "create_tables"]


class FedTables(Protocol):
    """Those of the feeds."""

    @property
    def output_tables(self) -> list[str]:
        """Names of the tables of replies."""

    def create_tables(self, store: StateStore) -> None:
        """Those that are not there yet."""


def create_tables(store: StateStore, program: str, operators: Iterable[Operator], fed: FedTables) -> None:
    """The tables that are not there yet; nothing is made if something stands against the start.

    Raises `SchemaMismatch` for one that is there and has other columns, and what `TableClaims.check` raises.
    """
    claims = TableClaims(store, program, take_over="have its rows taken over, by load()")
    read_progress(program, claims.state)
    _check_columns(store, operators)
    names = [one.name for one in operators]
    claims.check([*names, replies_table(program), *fed.output_tables], alone={*names, *fed.output_tables})
    for operator in operators:
        _create(store, operator)
    if replies_table(program) not in store.tables():
        store.create_table(replies_table(program), REPLIES_SCHEMA, primary_key=["request_id"], vnodes=1)
    fed.create_tables(store)


def claim_operator(store: StateStore, program: str, operator: Operator) -> None:
    """Make the operator's table, if it is not there, and note that it is the program's, whatever rows it has."""
    claims = TableClaims(store, program, take_over="have its rows taken over, by load()")
    read_progress(program, claims.state)
    _check_columns(store, [operator])
    claims.check([operator.name])
    _create(store, operator)
    claim(store, program, operator.name)


def _create(store: StateStore, operator: Operator) -> None:
    if operator.name in store.tables():
        return
    try:
        store.create_table(operator.name, table_schema(operator), primary_key=[KEY])
    except TableExists:
        # Another program was faster.
        _check_columns(store, [operator])


def _check_columns(store: StateStore, operators: Iterable[Operator]) -> None:
    there = set(store.tables())
    for operator in operators:
        if operator.name not in there:
            continue
        wanted, table = table_schema(operator), store.table(operator.name)
        key = getattr(table, "primary_key", None)
        if key is None:
            raise SchemaMismatch(
                f"operator {operator.name!r}: table {operator.name!r} is a raw table, and an operator needs one with "
                "columns: give it another name"
            )
        if not table.schema.equals(wanted) or tuple(key) != (KEY,):
            raise SchemaMismatch(
                f"operator {operator.name!r}: table {operator.name!r} has other columns, {_shown(table.schema)} by "
                f"{list(key)}, and the operator keeps {_shown(wanted)} by [{KEY!r}]: give it another name"
            )


def _shown(schema: pa.Schema) -> str:
    return ", ".join(f"{field.name} {field.type}{'' if field.nullable else ' not null'}" for field in schema)
