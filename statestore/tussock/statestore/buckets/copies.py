"""Stores made from other stores, and copies of backups that outlive theirs.

`restore` copies a backup into an empty place, `clone` takes SSTs where they are, `copy_backup` brings a backup to a
destination in another bucket. All work on buckets, so stores are given by the URLs of their buckets. What they do is in
the room `meta` (`restore.py`, `clone.py`, `destination/`), which is loaded by name as `connect` loads its backend.
"""

import contextlib
import functools
import importlib
import os
import socket
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

from tussock.statestore.base.arguments import check_flag, check_function, check_name
from tussock.statestore.base.system import RealSystem, System
from tussock.statestore.buckets import open_source
from tussock.statestore.contract.copies import BackupCheck, CopyInfo, CopyReport, CopyRule
from tussock.statestore.contract.object_store import ObjectStore
from tussock.statestore.errors import InvalidOption
from tussock.statestore.shown import show_value

__all__ = ["clone", "copy_backup", "delete_copies", "list_copies", "prune_copies", "restore", "verify_backup"]

_SERVERS = (
    "AWS_ENDPOINT_URL_S3",
    "AWS_ENDPOINT_URL",
    "AWS_ENDPOINT",
    "AZURE_STORAGE_ENDPOINT",
    "AZURE_ENDPOINT",
    "AZURE_STORAGE_ACCOUNT_NAME",
)
"""Settings that name the server of a bucket."""
NAME_LENGTH_MAX = 1 << 16
"""What is no name of a backup is told in fewer words than it has."""


def restore(
    source: str,
    backup: str,
    target: str,
    *,
    deadline: float = 30.0,
    system: System | None = None,
    on_bytes: Callable[[int], None] | None = None,
    source_options: Mapping[str, str] | None = None,
) -> None:
    """Copy a backup of the store at `source` into the empty place `target`, where a store begins with it.

    Interrupted and repeated, it goes on where it stopped; once the store is there, it does nothing. Every SST is
    compared with its checksums on the way. Of the log of `source` only the entries are needed in which SSTs of the
    backup lie.

    Args:
        source: URL of the bucket of the store that has the backup, or of a destination that has a copy of it.
        backup: its name.
        target: URL of an empty place, in the same bucket or another one.
        deadline: seconds after which a request to a bucket fails for good.
        system: replaces clocks, randomness and threads.
        on_bytes: hears of the bytes of each SST that is in place.
        source_options: settings of the source's bucket by the names of the environment's variables, such as
            `AWS_ENDPOINT_URL`, where it needs others than the target's.

    Raises:
        BackupNotFound: there is no such backup.
        StoreNotEmpty: something else is at `target`.
        CorruptSst: an SST is missing or damaged; no store was made.
        InvalidOption: `target` is `source`, or `backup` is a clone's hold.
    """
    check_name(backup, "backup name", NAME_LENGTH_MAX)
    if on_bytes is not None:
        check_function(on_bytes, "on_bytes")
    _check_options(source_options)
    with _open_both(source, target, deadline, system, source_options) as (bucket, place, clocks, open_source):
        importlib.import_module("tussock.meta.retention.restore").restore(
            bucket,
            place,
            clocks,
            backup=backup,
            owner=_owner(clocks),
            open_source=open_source,
            on_bytes=on_bytes or (lambda _: None),
            other_server=_is_other_server(source_options),
        )


def clone(source: str, target: str, *, backup: str = "", deadline: float = 30.0, system: System | None = None) -> None:
    """Make a store at the empty place `target` that begins as the store at `source` is, copying no SST.

    From then on the two go their own ways. The clone reads SSTs from the bucket of `source`, where a hold keeps them,
    until compaction has replaced them all; then its vacuum lets go of the hold. Interrupted and repeated, it goes on;
    once the clone is there, it does nothing.

    Args:
        source: URL of the bucket of the store to clone, as the clone's readers will find it.
        target: URL of an empty place.
        backup: name of a backup of `source` to begin with, in place of its newest version.
        deadline: seconds after which a request to a bucket fails for good.
        system: replaces clocks, randomness and threads.

    Raises:
        BackupNotFound: there is no such backup.
        StoreNotEmpty: something else is at `target`, or a clone of another point.
        BackupExists: an interrupted clone into `target` was begun from another point of `source`.
        InvalidOption: no store is at `source`, or it is `target`, or a private memory store.
    """
    if not isinstance(backup, str) or backup:
        check_name(backup, "backup name", NAME_LENGTH_MAX)
    with _open_both(source, target, deadline, system) as (bucket, place, clocks, open_source):
        importlib.import_module("tussock.meta.retention.clone").clone(
            bucket, place, clocks, owner=_owner(clocks), open_source=open_source, backup=backup
        )


def copy_backup(
    source: str,
    backup: str,
    destination: str,
    *,
    deadline: float = 30.0,
    system: System | None = None,
    on_bytes: Callable[[int], None] | None = None,
    source_options: Mapping[str, str] | None = None,
) -> CopyReport:
    """Copy a backup of the store at `source` to the place `destination`, in another bucket.

    The copies there share SSTs: what an earlier one has brought is not copied again. They need nothing of the store,
    and outlive it; `restore` takes a destination as its source. Interrupted and repeated, it goes on where it stopped;
    once the copy is there, it does nothing. The bucket of `source` is only read.

    Args:
        source: URL of the bucket of the store that has the backup.
        backup: its name.
        destination: URL of an empty place, or of one with copies of the same store's backups.
        deadline: seconds after which a request to a bucket fails for good.
        system: replaces clocks, randomness and threads.
        on_bytes: hears of the bytes of each SST that is in place.
        source_options: settings of the source's bucket by the names of the environment's variables, such as
            `AWS_ENDPOINT_URL`, where it needs others than the destination's.

    Raises:
        BackupNotFound: there is no such backup.
        BackupExists: another backup of that name was copied there.
        StoreNotEmpty: something else is at `destination`, or copies of another store.
        CorruptSst: an SST is missing or damaged; there is no copy.
        InvalidOption: `destination` is in the store's place or around it, or `backup` is a clone's hold.
    """
    check_name(backup, "backup name", NAME_LENGTH_MAX)
    if on_bytes is not None:
        check_function(on_bytes, "on_bytes")
    _check_options(source_options)
    with _open_both(source, destination, deadline, system, source_options) as (bucket, place, clocks, open_source):
        report: CopyReport = importlib.import_module("tussock.meta.retention.destination.copy").copy_backup(
            bucket,
            place,
            clocks,
            backup=backup,
            owner=_owner(clocks),
            open_source=open_source,
            on_bytes=on_bytes or (lambda _: None),
            other_server=_is_other_server(source_options),
        )
        return report


def list_copies(destination: str, *, deadline: float = 30.0, system: System | None = None) -> list[CopyInfo]:
    """The copies of backups at `destination` by name, those being made too; none if nothing was copied there.

    `CorruptLog` if the destination's catalogue is damaged or lost.
    """
    with _open_destination(destination, deadline, system) as (place, _):
        found: list[CopyInfo] = place.copies()
        return found


def verify_backup(
    source: str,
    backup: str,
    *,
    deadline: float = 30.0,
    system: System | None = None,
    on_bytes: Callable[[int], None] | None = None,
) -> BackupCheck:
    """Read a backup as a restore would, all of it, and compare each SST with its checksums, counts and digest.

    Args:
        source: URL of the bucket of the store that has the backup, or of a destination that has a copy of it.
        backup: its name.
        deadline: seconds after which a request to a bucket fails for good.
        system: replaces clocks, randomness and threads.
        on_bytes: hears of the bytes of each SST that is whole.

    Raises:
        BackupNotFound: there is no such backup.
        CorruptSst: an SST is missing or damaged; the message names the object.
        CorruptLog: the backup's own object is damaged.
    """
    check_name(backup, "backup name", NAME_LENGTH_MAX)
    if on_bytes is not None:
        check_function(on_bytes, "on_bytes")
    clocks = system or RealSystem()
    open_from = functools.partial(open_source, deadline_seconds=deadline, system=clocks)
    with contextlib.closing(open_from(source)) as bucket:
        check: BackupCheck = importlib.import_module("tussock.meta.retention.verify").verify_backup(
            bucket,
            clocks,
            backup=backup,
            owner=_owner(clocks),
            open_source=open_from,
            on_bytes=on_bytes or (lambda _: None),
        )
        return check


def delete_copies(
    destination: str,
    backups: Sequence[str],
    *,
    missing_ok: bool = False,
    deadline: float = 30.0,
    system: System | None = None,
) -> tuple[str, ...]:
    """Delete copies at `destination`, and the SSTs that no other copy there needs; returns the names that were there.

    One that is being made is given up. While others are being made, SSTs stay until the next deletion.

    Args:
        destination: URL of the destination.
        backups: names of the backups that were copied.
        missing_ok: names without a copy are no error.
        deadline: seconds after which a request to a bucket fails for good.
        system: replaces clocks, randomness and threads.

    Raises:
        BackupNotFound: one has no copy, unless `missing_ok`; nothing was deleted.
        CorruptLog: the manifest of another copy is damaged: the copies are deleted, and all SSTs stay.
    """
    if isinstance(backups, str) or not isinstance(backups, Sequence):
        raise InvalidOption(f"backups is {show_value(backups)}; expected a list of names")
    for name in backups:
        check_name(name, "backup name", NAME_LENGTH_MAX)
    check_flag(missing_ok, "missing_ok")
    with _open_destination(destination, deadline, system) as (place, _):
        gone: tuple[str, ...] = importlib.import_module("tussock.meta.retention.destination.deletion").delete_copies(
            place, backups, missing_ok=missing_ok
        )
        return gone


def prune_copies(
    destination: str, rule: CopyRule, *, spared: str, deadline: float = 30.0, system: System | None = None
) -> tuple[str, ...]:
    """Delete the copies at `destination` that a rule does not keep; returns their names.

    The newest and `spared` stay whatever their age is. The rest is as in `delete_copies`.
    """
    with _open_destination(destination, deadline, system) as (place, clocks):
        gone: tuple[str, ...] = importlib.import_module("tussock.meta.retention.destination.deletion").prune_copies(
            place, rule, spared=spared, now_ms=clocks.now_ms()
        )
        return gone


@contextlib.contextmanager
def _open_destination(url: str, deadline: float, system: System | None) -> Iterator[tuple[Any, System]]:
    clocks = system or RealSystem()
    with contextlib.closing(open_source(url, deadline_seconds=deadline, system=clocks)) as bucket:
        made = importlib.import_module("tussock.meta.retention.destination.destination").Destination
        yield made(bucket, clocks, owner=_owner(clocks)), clocks


@contextlib.contextmanager
def _open_both(
    source: str, target: str, deadline: float, system: System | None, options: Mapping[str, str] | None = None
) -> Iterator[tuple[ObjectStore, ObjectStore, System, Callable[[str], ObjectStore]]]:
    clocks = system or RealSystem()
    open_one: Any = functools.partial(open_source, deadline_seconds=deadline, system=clocks)
    with contextlib.ExitStack() as opened:
        open_from = functools.partial(open_one, options=options)
        bucket = opened.enter_context(contextlib.closing(open_from(source)))
        place = opened.enter_context(contextlib.closing(open_one(target)))
        yield bucket, place, clocks, open_from


def _is_other_server(options: Mapping[str, str] | None) -> bool:
    """Whether settings of the source may lead to another server than the environment, so that a URL is another place.

    Other credentials, or another region, do not: one place that two keys open is still one.
    """
    told = options or {}
    return any(name in told and told[name].rstrip("/") != os.environ.get(name, "").rstrip("/") for name in _SERVERS)


def _check_options(options: object) -> None:
    """`InvalidOption` unless these are settings by their names."""
    if options is None:
        return
    if not isinstance(options, Mapping) or not all(isinstance(one, str) for pair in options.items() for one in pair):
        raise InvalidOption(f"source_options is {show_value(options)}; expected a dict of settings, names and strings")


def _owner(system: System) -> str:
    return f"{socket.gethostname()}:{os.getpid()}:{system.random_bytes(4).hex()}"
