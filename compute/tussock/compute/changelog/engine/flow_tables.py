"""The tables of a flow: made where they are not there yet, and held to what they have to be where they are."""

from collections.abc import Mapping, Sequence
from collections.abc import Set as AbstractSet
from typing import NamedTuple

import pyarrow as pa

from tussock.compute.applications.durability.claims import TableClaims
from tussock.compute.applications.errors import StreamChanged
from tussock.compute.changelog.bad_rows import BAD_ROWS_KEY, BAD_ROWS_SCHEMA
from tussock.compute.changelog.definitions import changes_of
from tussock.compute.changelog.histories import HISTORIES_SCHEMA, HISTORY_KEY
from tussock.compute.changelog.plan import FlowPlan
from tussock.compute.changelog.progress import StreamProgress, read_progress
from tussock.compute.changelog.push_ids import PUSH_IDS_KEY, PUSH_IDS_SCHEMA
from tussock.statestore import InvalidOption, StateStore

__all__ = ["create_flow_tables", "missing_columns"]

VNODES = 256
"""What tables have by default."""


class _Wanted(NamedTuple):
    """What a table has to be."""

    schema: pa.Schema
    key: Sequence[str]
    vnodes: int
    spread: Sequence[str] | None = None
    """Columns of the key that make the virtual node; `None`: all of them."""


def create_flow_tables(
    store: StateStore, plan: FlowPlan, outputs: AbstractSet[str] = frozenset(), *, for_tasks: bool = False
) -> None:
    """Of each stream the rows, what its computation and its expiry keep; and those of the flow.

    Nothing is made if something stands against the start: `StreamChanged` if a stream is another operator than the one
    that has written its rows, `InvalidOption` if a table is there with other columns, or if an application of that name
    is no flow, and what `TableClaims.check` raises. A stream that is made anew may have more columns than it had.
    `outputs` are names of tables that take what is published. `for_tasks` of Spark, which go on with whatever rows
    there are.
    """
    known: Mapping[str, StreamProgress] = {}
    if not for_tasks:
        claims = TableClaims(store, plan.name)
        known = read_progress(plan.name, claims.state).streams
        _check_definitions(plan, known)
    wanted, there = _wanted(plan, known), set(store.tables())
    ways_back = {name: _way_back(plan, name) for name in wanted}
    if not for_tasks:
        fresh = {one.name for one in plan.streams} - known.keys()
        claims.check([*wanted, *outputs], alone=fresh | outputs, ways_back=ways_back)
    # Not of others: their log may have what was written without these columns, and its replay would write otherwise.
    growing = {one.name for one in plan.streams if one.name in known and known[one.name].is_old}
    grown: dict[str, dict[str, pa.DataType]] = {}
    for name, (schema, key, _, _) in wanted.items():
        if name not in there:
            continue
        table = store.table(name)
        key_there = getattr(table, "primary_key", None)
        told = f"flow {plan.name!r}: table {name!r} is there, "
        way_out = f"give the stream another name, or drop the table; or, if the flow has made it, {ways_back[name]}"
        if key_there is None:
            raise InvalidOption(f"{told}of keys and values without columns: {way_out}")
        if key_there != tuple(key):
            raise InvalidOption(f"{told}with the key {key_there}; expected {tuple(key)}: {way_out}")
        found = table.schema.remove_metadata()
        if found == schema.remove_metadata():
            continue
        added = missing_columns(found, schema) if name in growing else {}
        if not added:
            raise InvalidOption(f"{told}and {_difference(found, schema)}: {way_out}")
        grown[name] = added
    for name, added in grown.items():
        store.alter_table(name, add=added)
    for name, (schema, key, vnodes, spread) in wanted.items():
        if name not in there:
            store.create_table(name, schema, primary_key=list(key), distribution_key=spread, vnodes=vnodes)


def missing_columns(found: pa.Schema, wanted: pa.Schema) -> dict[str, pa.DataType]:
    """What a table lacks, by name, if these are nullable columns at the end, and all others are the same; else none."""
    more = list(wanted)[len(found) :]
    if list(wanted.remove_metadata())[: len(found)] != list(found) or not all(one.nullable for one in more):
        return {}
    return {one.name: one.type for one in more}


def _difference(found: pa.Schema, wanted: pa.Schema) -> str:
    """What is first wrong with the columns of a table."""
    for name in wanted.names:
        if name not in found.names:
            return f"has no column {name!r}"
        if not found.field(name).equals(wanted.field(name)):
            return f"its column {name!r} is {_typed(found.field(name))}; expected {_typed(wanted.field(name))}"
    others = [name for name in found.names if name not in wanted.names]
    return f"has the column {others[0]!r}, too" if others else f"has its columns in the order {found.names}"


def _typed(field: pa.Field) -> str:
    return f"{field.type}{'' if field.nullable else ' not null'}"


def _way_back(plan: FlowPlan, table: str) -> str:
    """Of a table that was dropped."""
    own = [one.name for one in plan.streams if table == one.name or table.startswith(plan.table(one.name, ""))]
    if own:
        return f"let the stream begin anew, by `tussock repair stream {plan.name} {own[0]} --forget`"
    return (
        f"give the flow up with `tussock repair application {plan.name} --forget`, and start it under another name= "
        "on other tables"
    )


def _check_definitions(plan: FlowPlan, known: Mapping[str, StreamProgress]) -> None:
    """`StreamChanged` for an operator whose rows are those of another one."""
    for one in plan.streams:
        was = known[one.name].definition if one.name in known and not known[one.name].is_old else {}
        if was and (changes := changes_of(was, one.definition)):
            anew = (
                f"Make it anew from the rows of its inputs, by rebuild({one.name!r}) of the flow or `tussock repair "
                f"stream {plan.name} {one.name} --rebuild`"
            )
            if not one.inputs:
                anew = (
                    "If it has got more columns, at the end and nullable, let it have them, by "
                    f"rebuild({one.name!r}) of the flow or `tussock repair stream {plan.name} {one.name} --rebuild`"
                )
            if (was["key"], bool(was["reads"])) != (one.definition["key"], bool(one.inputs)):
                anew = (
                    f"Let it begin anew, by forget({one.name!r}) of the flow or `tussock repair stream {plan.name} "
                    f"{one.name} --forget`, which drops its table"
                )
            raise StreamChanged(
                f"flow {plan.name!r}: stream {one.name!r} is declared otherwise than when it ran: {changes}. Its rows "
                f"are those of the former one. {anew}; or declare it as it was",
                one.name,
            )


def _wanted(plan: FlowPlan, known: Mapping[str, StreamProgress]) -> dict[str, _Wanted]:
    """By name. With one virtual node a table is read in the order of its keys."""
    found = {
        plan.table("histories"): _Wanted(HISTORIES_SCHEMA, HISTORY_KEY, 1),
        plan.table("bad_rows"): _Wanted(BAD_ROWS_SCHEMA, BAD_ROWS_KEY, 1),
        plan.table("push_ids"): _Wanted(PUSH_IDS_SCHEMA, PUSH_IDS_KEY, 1),
    }
    for one in plan.streams:
        found[one.name] = _Wanted(one.shape.schema, one.shape.key, VNODES)
        if one.name in known and known[one.name].is_old:
            found[plan.table(one.name, "anew")] = found[one.name]
        for name, (schema, key, spread) in one.computation.tables().items():
            found[plan.table(one.name, name)] = _Wanted(schema, key, VNODES, spread)
        if one.ages is not None:
            for name, (schema, key) in one.ages.tables().items():
                found[plan.table(one.name, name)] = _Wanted(schema, key, 1 if name == "by_age" else VNODES)
    return found
