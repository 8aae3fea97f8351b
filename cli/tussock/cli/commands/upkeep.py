"""The commands that change how a store is kept, never what it answers: `compact` and `vacuum`."""

from typing import Annotated, Any

import typer

from tussock.cli.options import Json, Store
from tussock.cli.output import bytes_text, emit_json, grid, note, number, plural, show, spinner
from tussock.cli.places import store_at, table_state
from tussock.meta.version.ranges import total_bytes
from tussock.statestore import StateStore
from tussock.statestore.contract.records import TableState

__all__ = ["compact", "vacuum"]

REASONS_SHOWN = 50


def compact(
    store: Store,
    tables: Annotated[list[str] | None, typer.Argument(metavar="[TABLE...]", help="The tables; all if absent.")] = None,
    retention: Annotated[
        float | None,
        typer.Option(min=0, help="Seconds for which every epoch stays readable; the store's own if not given."),
    ] = None,
    as_json: Json = False,
) -> None:
    """Merge tables into one sorted run each, dropping what no reader may ask for.

    With --json one document: {"tables": [{name, before, after}]}, each side {ssts, runs, rows, bytes}.
    """
    with store_at(store, retention=retention) as opened:
        names = tables or opened.tables()
        done: list[dict[str, Any]] = []
        for name in names:
            before = _shape(_state(opened, name))
            with spinner(f"compacting {name}"):
                opened.compact(name)
            done.append({"name": name, "before": before, "after": _shape(_state(opened, name))})
    if as_json:
        emit_json({"tables": done})
        return
    if not done:
        show("The store has no tables.")
        return
    columns = ("table", "", "runs", "SSTs", "row versions", "size")
    rows = [
        (
            str(one["name"]) if side == "before" else "",
            side,
            number(one[side]["runs"]),
            number(one[side]["ssts"]),
            number(one[side]["rows"]),
            bytes_text(one[side]["bytes"]),
        )
        for one in done
        for side in ("before", "after")
    ]
    show(grid(*columns, right=columns[2:], rows=rows))


def vacuum(
    store: Store,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Say what would be deleted, and change nothing.")] = False,
    grace: Annotated[
        float | None,
        typer.Option(min=0, help="Seconds to leave alone what nothing names; the store's own if not given."),
    ] = None,
    as_json: Json = False,
) -> None:
    """Delete the objects that no version and no pin can reach.

    At a meta service this needs the role admin: a token comes in TUSSOCK_TOKEN or in the file of TUSSOCK_TOKEN_FILE.
    With --json one document: {"dry_run", "deleted": [{path, reason}], "kept_young", "bytes_freed", "gc_horizon"}.
    """
    with store_at(store, gc_grace=grace) as opened, spinner("looking for garbage"):
        report = opened.vacuum(dry_run=dry_run)
    if as_json:
        emit_json(
            {
                "dry_run": dry_run,
                "deleted": [{"path": path, "reason": reason} for path, reason in report.deleted],
                "kept_young": report.kept_young,
                "bytes_freed": report.bytes_freed,
                "gc_horizon": report.gc_horizon,
            }
        )
        return
    if report.deleted:
        show(grid("object", "why", rows=report.deleted[:REASONS_SHOWN]))
        if len(report.deleted) > REASONS_SHOWN:
            note(f"{plural(len(report.deleted) - REASONS_SHOWN, 'more object')}; --json shows all")
    verb = "Would delete" if dry_run else "Deleted"
    young = f"; {plural(report.kept_young, 'young object')} that nothing names kept" if report.kept_young else ""
    show(f"{verb} {plural(len(report.deleted), 'object')}, {bytes_text(report.bytes_freed)}{young}.")


def _state(opened: StateStore, name: str) -> TableState:
    return table_state(opened.version(), name, opened.url)


def _shape(state: TableState) -> dict[str, Any]:
    ssts = state.levels.live_ssts()
    return {
        "ssts": len(ssts),
        "runs": len(state.levels.runs()),
        "rows": sum(sst.rows for sst in ssts),
        "bytes": total_bytes(ssts),
    }
