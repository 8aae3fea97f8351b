"""The tables of a flow: made where they are not there yet, and held to what they have to be where they are."""

from collections.abc import Mapping, Sequence
from collections.abc import Set as AbstractSet
from typing import NamedTuple

import pyarrow as pa

from tussock.compute.applications.durability.claims import TableClaims
from tussock.compute.changelog.bad_rows import BAD_ROWS_KEY, BAD_ROWS_SCHEMA
from tussock.compute.changelog.engine.tables.columns import difference
from tussock.compute.changelog.engine.tables.declared_anew import (
    check_definitions,
    check_operators,
    grown_stream,
    other_columns_kept,
)
from tussock.compute.changelog.engine.tables.foreign_writes import check_untouched
from tussock.compute.changelog.engine.tables.grown_streams import GrownStream, grow_streams
from tussock.compute.changelog.histories import HISTORIES_SCHEMA, HISTORY_KEY
from tussock.compute.changelog.plan import FlowPlan, StreamPlan
from tussock.compute.changelog.progress import StreamProgress, read_progress
from tussock.compute.changelog.push_ids import PUSH_IDS_KEY, PUSH_IDS_SCHEMA
from tussock.statestore import InvalidOption, StateStore

__all__ = ["create_flow_tables"]

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
    store: StateStore,
    plan: FlowPlan,
    outputs: AbstractSet[str] = frozenset(),
    *,
    for_tasks: bool = False,
    place: str | None = None,
) -> Mapping[str, int]:
    """Of each stream the rows, what its computation and its expiry keep; and those of the flow.

    Tables of streams follow what is declared: they get new columns, and wider types. Nothing is made if something
    stands against the start: `StreamChanged` if a stream is another operator than the one that has written its rows, or
    its table cannot follow, or the flow was not stopped in order before its columns changed; `TablesChanged` if others
    have written to tables of the flow since; `InvalidOption` if a table is there with other columns, or if an
    application of that name is no flow, and what `TableClaims.check` raises. `outputs` are names of tables that take
    what is published. `for_tasks` of Spark, which go on with whatever rows there are. `place`: of the input log.
    Returns tables that others have written to, with their epochs, if the log has what has to be run first.
    """
    known: Mapping[str, StreamProgress] = {}
    if not for_tasks:
        claims = TableClaims(store, plan.name)
        known = read_progress(plan.name, claims.state).streams
        check_definitions(plan, known)
    wanted, there = _wanted(plan, known), set(store.tables())
    ways_back = {name: _way_back(plan, name) for name in wanted}
    if not for_tasks:
        fresh = {one.name for one in plan.streams} - known.keys()
        claims.check([*wanted, *outputs], alone=fresh | outputs, ways_back=ways_back)
    grown = _checked_columns(store, plan, known, {name: wanted[name] for name in wanted if name in there}, ways_back)
    check_operators(plan, known, grown)
    touched: Mapping[str, int] = {}
    if not for_tasks:
        touched = check_untouched(store, plan.name, known, wanted.keys() & there, place=place)
    if grown:
        grow_streams(store, plan.name, grown, place=place)
    for name, (schema, key, vnodes, spread) in wanted.items():
        if name not in there:
            store.create_table(name, schema, primary_key=list(key), distribution_key=spread, vnodes=vnodes)
    return touched


def _checked_columns(
    store: StateStore,
    plan: FlowPlan,
    known: Mapping[str, StreamProgress],
    there: Mapping[str, _Wanted],
    ways_back: Mapping[str, str],
) -> dict[str, GrownStream]:
    """Streams whose tables follow; raises for other tables that are not as they have to be."""
    grown: dict[str, GrownStream] = {}
    streams = {one.name: one for one in plan.streams}
    for name, (schema, key, _, _) in there.items():
        table = store.table(name)
        key_there = getattr(table, "primary_key", None)
        told = f"flow {plan.name!r}: table {name!r} is there, "
        way_out = f"give the stream another name, or drop the table; or, if the flow has made it, {ways_back[name]}"
        if key_there is None:
            raise InvalidOption(f"{told}of keys and values without columns: {way_out}")
        if key_there != tuple(key):
            raise InvalidOption(f"{told}with the key {key_there}; expected {tuple(key)}: {way_out}")
        found = table.schema.remove_metadata()
        if name in known and name in streams:
            follows = grown_stream(plan, streams[name], known[name], found)
            if follows is not None:
                grown[name] = follows
            continue
        wrong = difference(found, schema)
        if not wrong and name not in streams and found != schema.remove_metadata():
            wrong = f"has its columns in the order {found.names}"
        if wrong:
            owner = next((one for one in plan.streams if name in _kept_by(plan, one)), None)
            if owner is not None and owner.name in known:
                raise other_columns_kept(plan, owner, name, wrong)
            raise InvalidOption(f"{told}and {wrong}: {way_out}")
    return grown


def _kept_by(plan: FlowPlan, stream: StreamPlan) -> set[str]:
    """What an operator keeps."""
    return {plan.table(stream.name, kept) for kept in stream.computation.tables()}


def _way_back(plan: FlowPlan, table: str) -> str:
    """Of a table that was dropped."""
    own = [one.name for one in plan.streams if table == one.name or table.startswith(plan.table(one.name, ""))]
    if own:
        return f"let the stream begin anew, by `tussock repair stream {plan.name} {own[0]} --forget`"
    return (
        f"give the flow up with `tussock repair application {plan.name} --forget`, and start it under another name= "
        "on other tables"
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
