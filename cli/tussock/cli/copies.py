"""The commands `tussock backup copy` and `verify`, and what the others do with a destination of copies."""

from collections.abc import Mapping
from typing import Annotated, Any

import typer

from tussock.cli.options import Json, Store
from tussock.cli.output import bytes_text, emit_json, epoch_text, epoch_time, grid, iso_ms, number, progress, show
from tussock.meta.retention.restore import find_restorable
from tussock.statestore import copy_backup, delete_copies, list_copies, verify_backup
from tussock.statestore.base.system import RealSystem
from tussock.statestore.buckets import open_bucket
from tussock.statestore.buckets.copies import prune_copies
from tussock.statestore.buckets.credentials import settings_in
from tussock.statestore.buckets.presence import check_folder
from tussock.statestore.contract.backend import BackupInfo
from tussock.statestore.contract.copies import BackupCheck, CopyInfo, CopyRule
from tussock.statestore.errors import InvalidOption

__all__ = ["SourceSettings", "copy", "restorable_at", "show_copies", "verify"]

Name = Annotated[str, typer.Argument(metavar="NAME", help="Name of the backup.")]
SourceSettings = Annotated[
    str,
    typer.Option(
        "--source-settings",
        metavar="FOLDER",
        help="Files with settings of the bucket of --store, each named like its variable (AWS_ENDPOINT_URL, "
        "AWS_ACCESS_KEY_ID, ...), where it needs others than the target.",
    ),
]


def copy(
    name: Name,
    to: Annotated[
        str,
        typer.Option("--to", metavar="URL", help="The destination: an empty place, or one with copies of the store."),
    ],
    store: Store,
    source_settings: SourceSettings = "",
    drop: Annotated[
        list[str] | None,
        typer.Option(
            "--delete", metavar="OLD", help="Afterwards delete the copy of this backup, if it is there; repeatable."
        ),
    ] = None,
    read_back: Annotated[
        bool, typer.Option("--verify", help="Afterwards read the whole copy, as `verify` does.")
    ] = False,
    keep_count: Annotated[
        int | None,
        typer.Option("--keep-count", metavar="N", min=1, help="Afterwards delete copies, but for the newest N."),
    ] = None,
    keep_seconds: Annotated[
        float | None,
        typer.Option("--keep-seconds", metavar="S", min=0, help="The same, but for those of backups up to this age."),
    ] = None,
    keep_of: Annotated[
        str,
        typer.Option("--keep-of", metavar="PREFIX", help="Of these, only copies whose names begin so; all if absent."),
    ] = "",
    as_json: Json = False,
) -> None:
    """Copy a backup to another bucket, where it outlives the store; only what is new there is copied.

    Repeated after a failure, it goes on. Copies are deleted once all else is done, never this one, nor the newest; with
    both --keep-count and --keep-seconds what either keeps stays. With --json one document: {backup, destination, epoch,
    ssts, bytes, copied_ssts, copied_bytes, deleted, verified}.
    """
    rule = CopyRule(prefix=keep_of, count=keep_count, seconds=keep_seconds)
    if keep_of and rule == CopyRule(prefix=keep_of):
        raise InvalidOption(f"--keep-of {keep_of} keeps nothing by itself: give --keep-count or --keep-seconds with it")
    options = settings_in(source_settings) if source_settings else None
    made = restorable_at(store, name, options)
    with progress() as bar:
        task = bar.add_task(f"copying {name}", total=made.bytes)
        report = copy_backup(store, name, to, on_bytes=lambda size: bar.advance(task, size), source_options=options)
    checked = _read_back(to, name) if read_back else None
    gone = delete_copies(to, [one for one in drop or () if one != name], missing_ok=True) if drop else ()
    if rule != CopyRule():
        gone += prune_copies(to, rule, spared=name)
    info = report.info
    if as_json:
        facts = {"epoch": info.epoch, "ssts": info.ssts, "bytes": info.bytes}
        copied = {"copied_ssts": report.copied_ssts, "copied_bytes": report.copied_bytes}
        verified = None if checked is None else _check_document(checked)
        emit_json({"backup": name, "destination": to, **facts, **copied, "deleted": list(gone), "verified": verified})
        return
    show(
        f"{to} holds a copy of backup {name}: epoch {epoch_text(info.epoch)}, {number(info.ssts)} SSTs, "
        f"{bytes_text(info.bytes)}; copied {number(report.copied_ssts)} of them, {bytes_text(report.copied_bytes)}."
    )
    if checked is not None:
        show(_check_text(checked))
    if gone:
        show(f"Deleted copies: {', '.join(gone)}.")


def verify(name: Name, store: Store, as_json: Json = False) -> None:
    """Read a backup of a store, or a copy in a destination, as a restore would, all of it; nothing is written.

    Each SST is compared with its checksums and counts, in a destination with its digest too. The first damage ends it,
    with exit code 1 and the object's name. With --json one document: {name, id, epoch, tables, ssts, rows, bytes, at}.
    """
    checked = _read_back(store, name)
    if as_json:
        emit_json(_check_document(checked))
    else:
        show(_check_text(checked))


def restorable_at(url: str, name: str, options: Mapping[str, str] | None = None) -> BackupInfo:
    """The backup of that name, in a store or a destination, by the URL of the bucket; nothing is created there."""
    check_folder(url)
    bucket = open_bucket(url, options=options, make_folder=False)
    try:
        return find_restorable(bucket, RealSystem(), name, owner="tussock", open_source=open_bucket).info
    finally:
        bucket.close()


def show_copies(url: str, *, as_json: bool) -> None:
    """Print the copies in a destination."""
    found = list_copies(url)
    if as_json:
        emit_json({"copies": [_copy_document(one) for one in found]})
        return
    if not found:
        show("The destination has no copies.")
        return
    rows = [
        (
            one.name,
            iso_ms(one.created_ms),
            epoch_text(one.epoch),
            number(one.ssts),
            bytes_text(one.bytes),
            iso_ms(one.finished_ms) if one.finished_ms else f"being made by {one.owner}",
            one.comment,
        )
        for one in found
    ]
    columns = ("backup", "made", "epoch", "SSTs", "size", "copied", "")
    show(grid(*columns, right=columns[3:5], whole=["backup"], rows=rows))


def _read_back(url: str, name: str) -> BackupCheck:
    made = restorable_at(url, name)
    with progress() as bar:
        task = bar.add_task(f"reading {name}", total=made.bytes)
        return verify_backup(url, name, on_bytes=lambda size: bar.advance(task, size))


def _check_text(checked: BackupCheck) -> str:
    return (
        f"Backup {checked.name} is whole: {number(checked.ssts)} SSTs, {number(checked.rows)} rows with all versions "
        f"and deletes, {bytes_text(checked.bytes)}."
    )


def _check_document(checked: BackupCheck) -> dict[str, Any]:
    return {
        "name": checked.name,
        "id": checked.id,
        "epoch": checked.epoch,
        "tables": checked.tables,
        "ssts": checked.ssts,
        "rows": checked.rows,
        "bytes": checked.bytes,
        "at": iso_ms(checked.at_ms),
    }


def _copy_document(info: CopyInfo) -> dict[str, Any]:
    return {
        "name": info.name,
        "id": info.id,
        "created_at": iso_ms(info.created_ms),
        "epoch": info.epoch,
        "committed_at": epoch_time(info.epoch),
        "ssts": info.ssts,
        "bytes": info.bytes,
        "comment": info.comment,
        "copied_at": iso_ms(info.finished_ms) if info.finished_ms else None,
        "complete": bool(info.finished_ms),
    }
