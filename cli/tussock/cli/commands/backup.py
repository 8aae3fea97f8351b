"""The commands `tussock backup create | list | copy | verify | restore | delete` and `tussock clone`."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Annotated, Any

import typer

from tussock.cli.copies import SourceSettings, copy, restorable_at, show_copies, verify
from tussock.cli.options import Json, Store
from tussock.cli.output import bytes_text, emit_json, epoch_text, epoch_time, grid, iso_ms, note, number, progress, show
from tussock.cli.places import bucket_at, has_copies, store_at
from tussock.statestore import StateStore, connect, delete_copies
from tussock.statestore import clone as clone_store
from tussock.statestore import restore as restore_store
from tussock.statestore.buckets.credentials import settings_in
from tussock.statestore.contract.backend import BackupInfo

__all__ = ["backup", "clone"]

backup = typer.Typer(name="backup", no_args_is_help=True)

Name = Annotated[str, typer.Argument(metavar="NAME", help="Name of the backup: letters, digits, '.', '_', '-'.")]
Target = Annotated[str, typer.Argument(metavar="TARGET", help="URL of an empty place for the new store.")]


backup.command()(copy)
backup.command()(verify)


@backup.callback()
def _backup() -> None:
    """Keep versions of a store under names, and make stores of them."""


@backup.command()
def create(
    name: Name,
    store: Store,
    comment: Annotated[str, typer.Option("--comment", "-c", help="For people.")] = "",
    as_json: Json = False,
) -> None:
    """Keep the newest version under a name; copies no SST, and takes a moment.

    At a meta service this needs the role admin: a token comes in TUSSOCK_TOKEN or in the file of TUSSOCK_TOKEN_FILE.
    With --json one document: {name, id, created_at, epoch, seq, ssts, bytes, held_bytes, comment, holder, complete}.
    """
    with _open(store) as opened:
        made = opened.backup(name, comment)
    if as_json:
        emit_json(_document(made))
    else:
        show(
            f"Backup {made.name} holds epoch {epoch_text(made.epoch)}: {number(made.ssts)} SSTs, "
            f"{bytes_text(made.bytes)}."
        )


@backup.command(name="list")
def list_backups(store: Store, as_json: Json = False) -> None:
    """List the backups, what each alone keeps from vacuum, and the holds of clones; of a destination its copies.

    A token, if a meta service asks for one, comes in TUSSOCK_TOKEN or in the file that TUSSOCK_TOKEN_FILE names.
    With --json one document: {"backups": [...]}, each as `create` returns it; of a destination {"copies": [...]}.
    """
    if has_copies(store):
        show_copies(store, as_json=as_json)
        return
    with _open(store) as opened:
        found = opened.backups()
    if as_json:
        emit_json({"backups": [_document(one) for one in found]})
        return
    if not found:
        show("The store has no backups.")
        return
    rows = [
        (
            one.name,
            iso_ms(one.created_ms),
            epoch_text(one.epoch),
            number(one.ssts),
            bytes_text(one.bytes),
            "unknown" if one.held_bytes < 0 else bytes_text(one.held_bytes),
            _state(one),
        )
        for one in found
    ]
    columns = ("backup", "made", "epoch", "SSTs", "size", "kept by it alone", "")
    show(grid(*columns, right=columns[3:6], whole=["backup"], rows=rows))


@backup.command()
def restore(
    name: Name,
    target: Target,
    store: Store,
    source_settings: SourceSettings = "",
    as_json: Json = False,
) -> None:
    """Copy a backup into an empty place, where a store begins with it; repeated after a failure, it goes on.

    --store may be a destination of `backup copy`. A store's log may be lost. With --json one document: {backup, target,
    epoch, ssts, bytes, already_restored}.
    """
    options = settings_in(source_settings) if source_settings else None
    made = restorable_at(store, name, options)
    in_place = 0

    def advance(size: int) -> None:
        nonlocal in_place
        in_place += size
        bar.advance(task, size)

    with progress() as bar:
        task = bar.add_task(f"restoring {name}", total=made.bytes)
        restore_store(store, name, target, on_bytes=advance, source_options=options)
    already = bool(made.bytes) and not in_place
    if as_json:
        facts = {"epoch": made.epoch, "ssts": made.ssts, "bytes": made.bytes, "already_restored": already}
        emit_json({"backup": name, "target": target, **facts})
    elif already:
        show(f"{target} began with backup {name} before, and is left as it is now.")
    else:
        show(
            f"{target} holds backup {name}: epoch {epoch_text(made.epoch)}, {number(made.ssts)} SSTs, "
            f"{bytes_text(made.bytes)}."
        )


@backup.command()
def delete(name: Name, store: Store, as_json: Json = False) -> None:
    """Let go of a backup, or of a dead clone's hold; the next vacuum deletes what only it kept.

    Of a destination, a copy, and all that no other copy there needs. A clone in use cannot be read any more once
    its hold is deleted. At a meta service this needs the role admin: a token comes in TUSSOCK_TOKEN or in the file of
    TUSSOCK_TOKEN_FILE. With --json one document: {"deleted"}.
    """
    if has_copies(store):
        delete_copies(store, [name])
        if as_json:
            emit_json({"deleted": name})
        else:
            show(f"The copy of backup {name} in {store} is deleted.")
        return
    with _open(store) as opened:
        held = next((one.holder for one in opened.backups() if one.name == name), "")
        opened.delete_backup(name)
    if held:
        note(f"It was the hold of the clone at {held}, which will miss SSTs after the next vacuum here.")
    if as_json:
        emit_json({"deleted": name})
    else:
        show(f"Backup {name} is deleted.")


def clone(
    source: Annotated[str, typer.Argument(metavar="SOURCE", help="URL of the store to clone.")],
    target: Target,
    of: Annotated[
        str, typer.Option("--backup", "-b", metavar="NAME", help="Begin with this backup, not the newest version.")
    ] = "",
    as_json: Json = False,
) -> None:
    """Make a store that begins as another one is, without copying its SSTs.

    The clone reads them where they are, and a hold in SOURCE keeps them, until its own compaction has replaced them.
    Repeated after a failure, it goes on. With --json one document: {source, target, backup, epoch}.
    """
    with bucket_at(source):
        pass
    clone_store(source, target, backup=of)
    with store_at(target) as opened:
        epoch = opened.committed_epoch
    if as_json:
        emit_json({"source": source, "target": target, "backup": of or None, "epoch": epoch})
    else:
        show(f"{target} is a clone of {source}{f', backup {of}' if of else ''}, at epoch {epoch_text(epoch)}.")


@contextmanager
def _open(url: str) -> Iterator[StateStore]:
    """A store by the URL of its bucket, or of the platform that keeps it."""
    if url.startswith("tussock://"):
        with connect(url) as store:
            yield store
    else:
        with store_at(url) as store:
            yield store


def _state(info: BackupInfo) -> str:
    if info.expires_ms:
        return f"being made by {info.owner}"
    return f"for the clone at {info.holder}" if info.holder else info.comment


def _document(info: BackupInfo) -> dict[str, Any]:
    return {
        "name": info.name,
        "id": info.id,
        "created_at": iso_ms(info.created_ms),
        "epoch": info.epoch,
        "committed_at": epoch_time(info.epoch),
        "seq": info.seq,
        "ssts": info.ssts,
        "bytes": info.bytes,
        "held_bytes": None if info.held_bytes < 0 else info.held_bytes,
        "comment": info.comment,
        "holder": info.holder or None,
        "complete": not info.expires_ms,
    }
