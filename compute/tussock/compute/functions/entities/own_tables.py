"""The tables of a program of functions: looked at, before anybody is shut out, and made where they are not there.

One that lacks columns which its operator declares now gets them, when all else is known to be well.
"""

from collections.abc import Callable, Iterable, Sequence
from typing import Protocol

from tussock.compute.applications.durability.claims import OwnTables, TableClaims, check_columns, claim
from tussock.compute.applications.durability.table_growth import (
    Growth,
    check_in_order,
    difference,
    grow_tables,
    growth_of,
    other_columns,
)
from tussock.compute.functions.entities.forms import KEY, table_schema
from tussock.compute.functions.entities.replies import REPLIES_SCHEMA, replies_table
from tussock.compute.functions.epochs.request_records import read_progress
from tussock.compute.functions.program.operators import Operator
from tussock.statestore import SchemaMismatch, StateStore, TableExists
from tussock.statestore.base.logs import get_logger

__all__ = ["claim_operator", "create_tables"]

log = get_logger("tussock.compute.functions.own_tables")


class FedTables(Protocol):
    """Those of the feeds."""

    @property
    def output_tables(self) -> list[str]:
        """Names of the tables of replies."""

    @property
    def own_tables(self) -> OwnTables:
        """Those that are not for the user to name."""

    def create_outputs(self, store: StateStore) -> None:
        """Tables of replies that are not there yet."""


def create_tables(
    store: StateStore, program: str, operators: Iterable[Operator], fed: FedTables, place: str | None
) -> Callable[[], None]:
    """The tables that are not there yet; nothing is made if something stands against the start.

    Returns what gives tables the columns that they lack, and shuts out who runs the program if there are some. `place`:
    of the input log. Raises `SchemaMismatch` for a table that cannot have its operator's columns, or not before the
    program was stopped in order, and what `TableClaims.check` raises.
    """
    operators = list(operators)
    claims = TableClaims(store, program, take_over="have its rows taken over, by load()")
    read_progress(program, claims.state)
    growths = _growths(store, operators)
    names = [one.name for one in operators]
    claims.check([*names, replies_table(program), *fed.output_tables], alone={*names, *fed.output_tables})
    own: OwnTables = {replies_table(program): (REPLIES_SCHEMA, ["request_id"]), **fed.own_tables}
    check_columns(store, program, own)
    refusal = _not_in_order(store, program, operators, growths)
    if growths:
        check_in_order(store, program, place, refusal)
    _warn_of_left_out(store, program, claims, names)
    for operator in operators:
        _create(store, operator)
    for name, (schema, key) in own.items():
        if name not in store.tables():
            store.create_table(name, schema, primary_key=key, vnodes=1)
    fed.create_outputs(store)
    return lambda: grow_tables(store, program, growths, place=place, refusal=refusal)


def claim_operator(store: StateStore, program: str, operator: Operator, place: str | None) -> None:
    """Make the operator's table, if it is not there, and note that it is the program's, whatever rows it has.

    One that lacks columns gets them, as at a start.
    """
    claims = TableClaims(store, program, take_over="have its rows taken over, by load()")
    read_progress(program, claims.state)
    growths = _growths(store, [operator])
    claims.check([operator.name])
    refusal = _not_in_order(store, program, [operator], growths)
    if growths:
        check_in_order(store, program, place, refusal)
    grow_tables(store, program, growths, place=place, refusal=refusal)
    _create(store, operator)
    claim(store, program, operator.name)


def _create(store: StateStore, operator: Operator) -> None:
    if operator.name in store.tables():
        return
    try:
        store.create_table(operator.name, table_schema(operator), primary_key=[KEY])
    except TableExists:
        # Another program was faster.
        wanted, found = table_schema(operator), store.table(operator.name).schema
        if wrong := difference(found, wanted):
            raise SchemaMismatch(
                f"operator {operator.name!r}: table {operator.name!r} was made meanwhile, and {wrong}; start again"
            ) from None


def _growths(store: StateStore, operators: Iterable[Operator]) -> dict[str, Growth]:
    """What tables are to get that lack columns, by name."""
    there = set(store.tables())
    found = {}
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
        if tuple(key) != (KEY,):
            raise SchemaMismatch(
                f"operator {operator.name!r}: table {operator.name!r} has other columns, with the key {list(key)}, and "
                f"an operator's is [{KEY!r}]; {other_columns(table.schema, wanted)}: give it another name"
            )
        growth = growth_of(table.schema, wanted, (KEY,))
        if isinstance(growth, str):
            raise SchemaMismatch(
                f"operator {operator.name!r}: table {operator.name!r} has other columns, and cannot follow: {growth}; "
                f"{other_columns(table.schema, wanted)}. Declare the operator as it was, with new columns nullable and "
                "types only wider; or give it another name, and load() the rows into that"
            )
        if growth:
            found[operator.name] = growth
    return found


def _warn_of_left_out(store: StateStore, program: str, claims: TableClaims, operators: Sequence[str]) -> None:
    """Of operators that the program had, and has not now: their entities stay, and nobody looks after them."""
    noted = {} if claims.own is None else claims.own.tables
    there = {table.spec.id: table.spec for table in store.version().tables.values()}
    gone = sorted(
        name
        for number, name in noted.items()
        if number in there and list(there[number].primary_key) == [KEY] and name not in operators
    )
    if gone:
        log.warning(
            "program starts without operators that it had; their tables stay the program's, and what it is asked of "
            "their entities is refused",
            program=program,
            operators=gone,
        )


def _not_in_order(
    store: StateStore, program: str, operators: Iterable[Operator], growths: dict[str, Growth]
) -> Callable[[], SchemaMismatch]:
    def refusal() -> SchemaMismatch:
        one = next(operator for operator in operators if operator.name in growths)
        return SchemaMismatch(
            f"operator {one.name!r}: table {one.name!r} has other columns, and the program {program!r} runs, or was "
            "not stopped in order: its input log has what no commit holds, of the columns that it had; "
            f"{other_columns(store.table(one.name).schema, table_schema(one))}. Stop it, or start it as it was and "
            "stop it, and then start it with these; or give that up, with `tussock repair application "
            f"{program} --give-up`"
        )

    return refusal
