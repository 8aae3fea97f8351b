"""Streams that are declared otherwise than when they ran: which can follow, and which go no further as they are."""

from collections.abc import Mapping

import pyarrow as pa

from tussock.compute.applications.errors import StreamChanged
from tussock.compute.changelog.definitions import CODE, changes_of
from tussock.compute.changelog.engine.tables.columns import difference, growth_of
from tussock.compute.changelog.engine.tables.grown_streams import GrownStream
from tussock.compute.changelog.plan import FlowPlan, StreamPlan
from tussock.compute.changelog.progress import StreamProgress

__all__ = ["check_definitions", "check_operators", "grown_stream", "other_columns_kept"]


def check_definitions(plan: FlowPlan, known: Mapping[str, StreamProgress]) -> None:
    """`StreamChanged` for an operator whose rows are those of another one.

    The columns of others are held against their tables, by `grown_stream`.
    """
    for one in plan.streams:
        was = known[one.name].definition if one.name in known and not known[one.name].is_old else {}
        now = one.definition
        if was and was["is"] == now["is"] == CODE and was["key"] == now["key"]:
            was = {**was, "columns": now["columns"]}
        if was and (changes := changes_of(was, now)):
            way_out = _rebuilt(plan, one)
            if not one.inputs or (was["key"], bool(was["reads"])) != (now["key"], bool(one.inputs)):
                way_out = _anew(plan, one)
            raise _changed(plan, one, f"is declared otherwise than when it ran: {changes}", way_out)


def grown_stream(plan: FlowPlan, stream: StreamPlan, known: StreamProgress, found: pa.Schema) -> GrownStream | None:
    """How the table of a stream that has run follows its columns; `None` if nothing is to be done.

    `StreamChanged` if it cannot, or if somebody else has altered it.
    """
    wanted = stream.shape.schema.remove_metadata()
    now = stream.definition["columns"]
    # What is from a time that did not say it is taken to be the same.
    is_same = known.definition.get("columns", now) == now
    wrong = difference(found, wanted)
    if wrong and not known.is_old and (is_same or stream.definition["is"] != CODE):
        raise _changed(
            plan,
            stream,
            f"is declared as it was, and its table was altered by somebody else, and {wrong}",
            f"Declare it with the columns of its table, {found.names}; or l{_anew(plan, stream)[1:]}",
        )
    growth = growth_of(found, wanted, stream.shape.key)
    if isinstance(growth, str):
        way_out = f"Declare it as it was, or l{_anew(plan, stream)[1:]}"
        raise _changed(plan, stream, f"is declared otherwise than when it ran: {growth}", way_out)
    if not growth and is_same and (known.columns or found.names) == wanted.names:
        return None
    return GrownStream(stream.shape, stream.definition, found.names, growth)


def check_operators(plan: FlowPlan, known: Mapping[str, StreamProgress], grown: Mapping[str, GrownStream]) -> None:
    """`StreamChanged` for an operator that reads what has become wider: what it keeps may sort as the former type.

    Whether a column is wider is not known where the table has it already: then it is taken to be.
    """
    for one in plan.streams:
        if one.name not in known or known[one.name].is_old or one.definition["is"] == CODE:
            continue
        for source in one.inputs:
            if source in grown and (grown[source].growth.widen or not grown[source].growth):
                wider = ", ".join(f"{name} {kind}" for name, kind in grown[source].growth.widen.items())
                why = f"reads stream {source!r}, which has other columns now{wider and ': '}{wider}"
                raise _changed(plan, one, f"{why}; what it keeps is of the former ones", _rebuilt(plan, one))


def other_columns_kept(plan: FlowPlan, stream: StreamPlan, table: str, wrong: str) -> StreamChanged:
    """What is wrong where an operator keeps columns of its inputs, and these have changed."""
    why = f"keeps rows of its inputs in table {table!r}, and they have other columns now: the table {wrong}"
    return _changed(plan, stream, why, _rebuilt(plan, stream))


def _rebuilt(plan: FlowPlan, stream: StreamPlan) -> str:
    return (
        f"Make it anew from the rows of its inputs, by rebuild({stream.name!r}) of the flow or `tussock repair stream "
        f"{plan.name} {stream.name} --rebuild`"
    )


def _anew(plan: FlowPlan, stream: StreamPlan) -> str:
    return (
        f"Let it begin anew, by forget({stream.name!r}) of the flow or `tussock repair stream {plan.name} "
        f"{stream.name} --forget`, which drops its table"
    )


def _changed(plan: FlowPlan, stream: StreamPlan, why: str, way_out: str) -> StreamChanged:
    return StreamChanged(f"flow {plan.name!r}: stream {stream.name!r} {why}. {way_out}", stream.name)
