"""The commands that show how rows are kept: `version`, `ssts` and `pins`."""

from collections.abc import Iterable, Iterator, Sequence
from typing import Any

from tussock.cli.losses import loss_document
from tussock.cli.options import Json, Store, TableName
from tussock.cli.output import (
    bytes_text,
    emit_json,
    epoch_text,
    epoch_time,
    grid,
    iso_ms,
    number,
    plural,
    seconds_text,
    show,
)
from tussock.cli.places import bucket_at, place_at, table_state, version_at
from tussock.cli.values import as_text
from tussock.meta.retention.pin_objects import pin_objects
from tussock.meta.version.ranges import total_bytes
from tussock.meta.version.version import Version
from tussock.statestore.base.system import RealSystem
from tussock.statestore.contract.backend import PinInfo
from tussock.statestore.contract.object_store import ObjectStore
from tussock.statestore.contract.records import SstInfo, TableLevels, TableState

__all__ = ["pins", "ssts", "version"]

KEY_CHARACTERS_MAX = 40
"""What `ssts` shows of a key to people; JSON has all of it."""


def version(store: Store, as_json: Json = False) -> None:
    """Show the newest version: epochs, levels of each table, writers, compaction tasks, pins.

    With --json one document: {"seq", "max_committed_epoch", "committed_at", "safe_epoch", "compacted_epoch",
    "gc_horizon", "retention_seconds", "gc_grace_seconds", "tables": [{name, last_epoch, safe_epoch, compacted_epoch,
    runs, levels: [{level, ssts, rows, bytes}], history: {runs, ssts, rows, bytes}}], "ledger", "tasks", "dropped",
    "losses", "pins"}.
    """
    with place_at(store) as place:
        found = place.version
        held = _pin_documents(place.bucket)
    tables = sorted(found.tables.values(), key=lambda state: state.spec.name)
    if as_json:
        emit_json(_version_document(found, tables, held))
        return
    live = sum(pin["live"] for pin in held)
    facts = [
        ("log sequence", number(found.seq)),
        ("committed epoch", _known_epoch(found.max_committed_epoch, "")),
        ("safe epoch", _known_epoch(found.safe_epoch, "older ones are not to be read any more")),
        ("compacted epoch", _known_epoch(found.compacted_epoch, "of older ones, rows are gone")),
        ("garbage horizon", found.gc_horizon or "none yet"),
        ("retention", f"{seconds_text(found.retention_ms)}, and {seconds_text(found.gc_grace_ms)} for garbage"),
        ("tables", number(len(tables))),
        ("dropped SSTs", f"{number(len(found.dropped))} waiting for vacuum"),
        ("losses", f"{number(len(found.losses))}, as `tussock check` lists them" if found.losses else "none"),
        ("live pins", number(live)),
    ]
    parts = [grid("version", "", rows=facts), _levels_grid(tables)]
    if found.ledger:
        writers = [
            (writer, number(batches[-1][0]), epoch_text(batches[-1][1])) for writer, batches in found.ledger.items()
        ]
        parts.append(grid("writer", "last batch", "its epoch", right=["last batch"], rows=writers))
    if found.tasks:
        columns = ("compaction task", "table", "kind", "inputs", "to level", "owner", "until")
        parts.append(grid(*columns, right=["inputs", "to level"], rows=_task_rows(found)))
    if live:
        parts.append(_pins_grid([pin for pin in held if pin["live"]]))
    show(*parts)


def ssts(table: TableName, store: Store, as_json: Json = False) -> None:
    """List the SSTs of a table, newest run first.

    With --json one document: {"table", "ssts": [{level, run, id, smallest, largest, rows, deletes, data_bytes,
    meta_bytes, epoch, min_epoch, max_epoch, meta_in_data, source, entry, offset, until, expires_ms, head_bytes,
    filter_parts}]}; `run` is the place within level 0, 0 the newest, or within history, whose `level` is null; else
    null.
    """
    with version_at(store) as version:
        state = table_state(version, table, store)
    placed = [(level, place, sst) for level, place, run in _runs(state.levels) for sst in run]
    if as_json:
        fields = SstInfo.__struct_fields__
        documents = [
            {"level": level, "run": place, **{name: getattr(sst, name) for name in fields}}
            for level, place, sst in placed
        ]
        emit_json({"table": table, "ssts": documents})
        return
    if not placed:
        show(f"Table {table} has no SSTs.")
        return
    rows = [
        (
            f"H.{place}" if level is None else f"L{level}" if place is None else f"L0.{place}",
            sst.id,
            number(sst.rows),
            number(sst.deletes),
            bytes_text(sst.data_bytes),
            bytes_text(sst.meta_bytes),
            _epochs(sst),
            _key_range(sst),
        )
        for level, place, sst in placed
    ]
    columns = ("level", "SST", "rows", "deletes", "data", "meta", "epochs", "keys")
    show(grid(*columns, right=("rows", "deletes", "data", "meta"), whole=["SST"], rows=rows))


def pins(store: Store, as_json: Json = False) -> None:
    """List the pins: which epochs are held readable, by whom, until when.

    With --json one document: {"pins": [{id, epoch, owner, created_at, expires_at, live}]}.
    """
    with bucket_at(store) as bucket:
        held = _pin_documents(bucket)
    if as_json:
        emit_json({"pins": held})
    else:
        show(_pins_grid(held) if held else "Nobody holds a pin.")


def _version_document(found: Version, tables: Iterable[TableState], held: list[dict[str, Any]]) -> dict[str, Any]:
    return {
        "seq": found.seq,
        "max_committed_epoch": found.max_committed_epoch,
        "committed_at": epoch_time(found.max_committed_epoch),
        "safe_epoch": found.safe_epoch,
        "compacted_epoch": found.compacted_epoch,
        "gc_horizon": found.gc_horizon,
        "retention_seconds": found.retention_ms / 1000,
        "gc_grace_seconds": found.gc_grace_ms / 1000,
        "tables": [
            {
                "name": state.spec.name,
                "last_epoch": state.last_epoch,
                "safe_epoch": found.safe_epoch_of(state),
                "compacted_epoch": found.compacted_epoch_of(state),
                "runs": len(state.levels.l0),
                "levels": [
                    {"level": level, "ssts": len(run), "rows": sum(sst.rows for sst in run), "bytes": total_bytes(run)}
                    for level, run in _levels(state.levels)
                ],
                "history": _history_document(state.levels),
            }
            for state in tables
        ],
        "ledger": {
            writer: [{"batch_id": batch, "epoch": epoch} for batch, epoch in batches]
            for writer, batches in found.ledger.items()
        },
        "tasks": [
            {
                "id": task.id,
                "table": found.tables[task.table_id].spec.name,
                "kind": task.kind,
                "inputs": [sst.id for sst in task.ssts()],
                "target_level": task.target_level,
                "owner": task.owner,
                "expires_at": iso_ms(task.expires_ms),
            }
            for task in found.tasks.values()
        ],
        "dropped": [{"id": sst.id, "seq": sst.seq, "dropped_at": iso_ms(sst.dropped_ms)} for sst in found.dropped],
        "losses": [loss_document(loss, found.tables) for loss in found.losses],
        "pins": held,
    }


def _history_document(levels: TableLevels) -> dict[str, int]:
    ssts = levels.history_ssts()
    rows = sum(sst.rows for sst in ssts)
    return {"runs": len(levels.history), "ssts": len(ssts), "rows": rows, "bytes": total_bytes(ssts)}


def _levels_grid(tables: Iterable[TableState]) -> Any:
    rows = []
    for state in tables:
        levels = list(_levels(state.levels))
        for at, (level, run) in enumerate(levels):
            runs = number(len(state.levels.l0)) if level == 0 else ""
            counts = (number(len(run)), number(sum(sst.rows for sst in run)), bytes_text(total_bytes(run)))
            rows.append((state.spec.name if at == 0 else "", f"L{level}", runs, *counts))
        if past := state.levels.history_ssts():
            counts = (number(len(past)), number(sum(sst.rows for sst in past)), bytes_text(total_bytes(past)))
            rows.append(("" if levels else state.spec.name, "history", number(len(state.levels.history)), *counts))
        elif not levels:
            rows.append((state.spec.name, "empty", "", "0", "0", "0 B"))
    columns = ("table", "level", "runs", "SSTs", "row versions", "size")
    return grid(*columns, right=("runs", "SSTs", "row versions", "size"), rows=rows)


def _levels(levels: TableLevels) -> Iterator[tuple[int, list[SstInfo]]]:
    """The levels that are not empty, L0 with all its runs together."""
    if levels.l0:
        yield 0, [sst for run in levels.l0 for sst in run.ssts]
    for level, run in enumerate(levels.levels, start=1):
        if run:
            yield level, list(run)


def _runs(levels: TableLevels) -> Iterator[tuple[int | None, int | None, Sequence[SstInfo]]]:
    """Every sorted run, newest first, with its level and, in L0, its place there; then those of history."""
    for at, run in enumerate(levels.l0):
        yield 0, at, run.ssts
    for at, ssts in enumerate(levels.levels, start=1):
        yield at, None, ssts
    for at, run in enumerate(levels.history):
        yield None, at, run.ssts


def _task_rows(found: Version) -> Iterator[tuple[str, ...]]:
    for task in found.tasks.values():
        name = found.tables[task.table_id].spec.name
        yield (
            task.id,
            name,
            task.kind,
            plural(len(task.ssts()), "SST"),
            str(task.target_level),
            task.owner,
            iso_ms(task.expires_ms),
        )


def _pin_documents(bucket: ObjectStore) -> list[dict[str, Any]]:
    now_ms = RealSystem().now_ms()
    return [_pin_document(pin, now_ms) for pin, _ in pin_objects(bucket)]


def _pin_document(pin: PinInfo, now_ms: int) -> dict[str, Any]:
    return {
        "id": pin.id,
        "epoch": pin.epoch,
        "owner": pin.owner,
        "created_at": iso_ms(pin.created_ms),
        "expires_at": iso_ms(pin.expires_ms),
        "live": now_ms <= pin.expires_ms,
    }


def _pins_grid(held: Iterable[dict[str, Any]]) -> Any:
    rows = [
        (epoch_text(pin["epoch"]), pin["owner"], pin["created_at"], pin["expires_at"], _life(pin["live"]))
        for pin in held
    ]
    return grid("pinned epoch", "owner", "since", "until", "state", rows=rows)


def _life(live: bool) -> str:
    return "live" if live else "expired"


def _known_epoch(epoch: int, meaning: str) -> str:
    if not epoch:
        return "none yet"
    return f"{epoch_text(epoch)}; {meaning}" if meaning else epoch_text(epoch)


def _epochs(sst: SstInfo) -> str:
    return epoch_text(sst.epoch) if sst.epoch else f"{sst.min_epoch} to {sst.max_epoch}"


def _key_range(sst: SstInfo) -> str:
    return f"{_short(sst.smallest)} to {_short(sst.largest)}"


def _short(key: bytes) -> str:
    text = as_text(key)
    return text if len(text) <= KEY_CHARACTERS_MAX else text[: KEY_CHARACTERS_MAX - 1] + "…"
