"""`tussock repair sst`: lets a table go on without what of a damaged SST cannot be read."""

import os
import socket
from collections.abc import Iterator, Sequence
from typing import Annotated, Any

import typer

from tussock.cli.losses import epochs_text, loss_document, lost_text, range_text
from tussock.cli.options import DryRun, Json, Store, Yes
from tussock.cli.output import agree, bytes_text, emit_json, note, plural, progress, show
from tussock.cli.places import bucket_at
from tussock.compactor.sst_repair import DamagedSst, SstRepair
from tussock.meta.version.deltas.losses import DiscardQuarantined
from tussock.statestore.base.system import RealSystem
from tussock.statestore.buckets import open_source
from tussock.statestore.contract.losses import AcceptedLoss
from tussock.statestore.contract.records import SstInfo, TableState, stored_bytes
from tussock.statestore.errors import Conflict, InvalidOption

__all__ = ["repair_ssts"]

Ids = Annotated[
    list[str] | None,
    typer.Argument(
        metavar="[ID...]", help="SSTs, by their ids or the beginnings of them; by default all.", show_default=False
    ),
]


def repair_ssts(
    store: Store,
    ids: Ids = None,
    dry_run: DryRun = False,
    discard: Annotated[
        bool, typer.Option("--discard", help="Delete the objects of SSTs that were put aside before.")
    ] = False,
    yes: Yes = False,
    as_json: Json = False,
) -> None:
    """Let tables go on without what of damaged SSTs cannot be read; restore their objects instead, if you can.

    What would be lost is shown, by keys and epochs, and has to be agreed to. All blocks that can be read are kept, in a
    new SST; the damaged objects stay until they are discarded. `check` goes on telling what was lost. With --json one
    document: {"dry_run", "checked", "losses": [{sst, table, history, rows, rows_of_sst, deletes, bytes, min_epoch,
    max_epoch, until_epoch, ranges: [{first, end, closed, keys}], uncovered, saved, seq, at, by, kept, why, backups}],
    "refused"}; with --discard {"discarded": [ID]}.
    """
    if as_json and not (yes or dry_run):
        raise typer.BadParameter("--json asks nobody: it goes with --yes or with --dry-run")
    if discard and (dry_run or not ids):
        raise typer.BadParameter("--discard takes the ids of SSTs that were put aside, and no --dry-run")
    system = RealSystem()
    owner = f"{socket.gethostname()}:{os.getpid()}:{system.random_bytes(4).hex()}"
    with bucket_at(store) as bucket:
        repair = SstRepair(bucket, system, owner=owner, open_source=open_source)
        try:
            if discard:
                _discard(repair, ids or [], yes=yes, as_json=as_json)
            else:
                _repair(repair, ids or [], dry_run=dry_run, yes=yes, as_json=as_json)
        finally:
            repair.close()


def _repair(repair: SstRepair, beginnings: Sequence[str], *, dry_run: bool, yes: bool, as_json: bool) -> None:
    wanted = repair.named(_resolved(beginnings, [sst.id for _, sst in repair.named()]))
    damaged = _examined(repair, wanted)
    backups = repair.backups_with({one.loss.sst.id for one in damaged})
    if not as_json:
        if len(damaged) < len(wanted):
            note(f"left as it is: {plural(len(wanted) - len(damaged), 'SST')} that can be read")
        if not damaged:
            show("Nothing is damaged that a read needs.")
            return
        for one in damaged:
            show("\n".join(_lines(one, backups[one.loss.sst.id])))
        _warn(repair, damaged)
        if not dry_run:
            rows = sum(one.loss.rows for one in damaged)
            agree(f"Let {plural(rows, 'row')} go?" if rows else f"Write {plural(len(damaged), 'SST')} anew?", yes=yes)
    losses: list[dict[str, Any]] = []
    refused: list[str] = []
    for one in damaged:
        try:
            loss = one.loss if dry_run else repair.put_aside(one)
        except Conflict as error:
            refused.append(str(error))
            note(str(error))
            continue
        losses.append(
            {**loss_document(loss, {loss.table_id: one.state}), "why": one.why, "backups": backups[loss.sst.id]}
        )
        if not (as_json or dry_run):
            # Each at once: an error may end the command before the others.
            show(_done(loss))
    if as_json:
        emit_json({"dry_run": dry_run, "checked": len(wanted), "losses": losses, "refused": refused})
    if refused:
        raise typer.Exit(1)


def _discard(repair: SstRepair, beginnings: Sequence[str], *, yes: bool, as_json: bool) -> None:
    kept = {sst.id: sst for sst in repair.log.version.quarantined()}
    ids = _resolved(beginnings, list(kept))
    DiscardQuarantined(ids=tuple(ids), at_ms=0).validate(repair.log.version)
    if not as_json:
        size = bytes_text(sum(stored_bytes(kept[one]) for one in ids))
        agree(f"Delete what is left of {plural(len(ids), 'damaged SST')}, {size}?", yes=yes)
    repair.discard(ids)
    if as_json:
        emit_json({"discarded": ids})
    else:
        show(f"Discarded {plural(len(ids), 'SST')}; a vacuum deletes their objects. The losses stay noted.")


def _resolved(beginnings: Sequence[str], known: Sequence[str]) -> list[str]:
    """The ids that begin so; one that is none of them stays as it is, to be refused by its name."""
    ids = []
    for beginning in beginnings:
        found = [one for one in known if one.startswith(beginning)] if beginning else []
        if len(found) > 1:
            raise InvalidOption(f"{len(found)} SSTs have an id that begins with {beginning!r}; give more of it")
        ids.append(found[0] if found else beginning)
    return ids


def _examined(repair: SstRepair, wanted: Sequence[tuple[TableState, SstInfo]]) -> list[DamagedSst]:
    found = []
    with progress() as bar:
        task = bar.add_task("reading SSTs", total=sum(sst.data_bytes for _, sst in wanted))
        for state, sst in wanted:
            damaged = repair.examine(state, sst)
            if damaged is not None:
                found.append(damaged)
            bar.advance(task, sst.data_bytes)
    return found


def _lines(one: DamagedSst, backups: Sequence[str]) -> Iterator[str]:
    """What is wrong with an SST, and what would be lost."""
    loss = one.loss
    blocks = "all" if one.meta is None else f"{len(one.blocks)} of {plural(one.meta.blocks, 'block')}"
    yield f"SST {loss.sst.id} of table {loss.table}{', in its history' if loss.sst.until else ''}"
    yield f"  damage   {one.why}"
    yield f"  lost     {lost_text(loss)}, in {blocks}"
    yield f"  epochs   {epochs_text(loss)}"
    for lost in loss.ranges:
        yield f"  keys     {range_text(one.state.spec, lost)}"
    if loss.uncovered:
        yield f"  beneath  {plural(loss.uncovered, 'older SST')} may have values of these keys"
    if loss.sst.source:
        yield f"  it is    {loss.sst.source}'s; this store was cloned from there, and that one is not repaired by this"
    if backups:
        yield f"  needed   by {', '.join(backups)}: a restore of it fails until the object is restored"


def _warn(repair: SstRepair, damaged: Sequence[DamagedSst]) -> None:
    """What it means, in words; on stderr, as it is no result."""
    if not any(one.loss.rows for one in damaged):
        note("No row is lost: only filters are damaged, and they are made anew.")
        return
    note("No command brings these rows back. A copy of the objects would: see docs/operations.md, `CorruptSst`.")
    present = [one.loss for one in damaged if not one.loss.sst.until]
    if any(loss.uncovered for loss in present):
        what = "values from before, and rows that were deleted," if any(loss.deletes for loss in present) else "values"
        note(f"Where an older SST has one of these keys, its {what} will be seen again; no change feed tells of that.")
    if any(one.loss.sst.until for one in damaged):
        note("Reads at older epochs, and changes, miss what was in history; reads of the present do not need it.")
    if count := repair.open_snapshots(min(one.loss.min_epoch for one in damaged)):
        note(f"{plural(count, 'snapshot')} held now will miss these rows, too.")


def _done(loss: AcceptedLoss) -> str:
    others = f"SST {loss.saved} has the other {plural(loss.sst.rows - loss.rows, 'row')}"
    return f"Put SST {loss.sst.id} aside: {plural(loss.rows, 'row')} lost; {others if loss.saved else 'none is left'}."
