"""Deleting copies in a destination, and what none of the others names: the proof is in `destination.py`."""

from collections.abc import Collection, Iterable

from msgspec.structs import replace

from tussock.meta.retention.destination.destination import ATTEMPTS_MAX, Destination
from tussock.meta.retention.destination.records import Catalogue, is_half_of_part, manifest_path, part_folder, part_of
from tussock.meta.retention.unkept import unkept
from tussock.statestore.base.logs import get_logger
from tussock.statestore.contract.copies import CopyInfo, CopyRule
from tussock.statestore.contract.records import object_sizes
from tussock.statestore.errors import BackupNotFound

__all__ = ["delete_copies", "expired_copies", "prune_copies"]

log = get_logger("tussock.meta")

_PATHS_AT_ONCE = 1_000


def delete_copies(destination: Destination, names: Collection[str], *, missing_ok: bool = False) -> tuple[str, ...]:
    """Delete the copies of these names, and every object that no other copy names; returns those that were there.

    One that is not finished is given up. While another is being made, the objects stay until the next deletion.

    Raises:
        BackupNotFound: one is not there, unless `missing_ok`; none was deleted.
        CorruptLog: the manifest of another copy cannot be read, so the objects stay; the copies are deleted.
    """
    gone: tuple[str, ...] = ()

    def decide(now: Catalogue, _: int) -> Catalogue:
        nonlocal gone
        gone = tuple(sorted(now.copies.keys() & set(names)))
        absent = sorted(set(names) - now.copies.keys())
        if absent and not missing_ok:
            raise destination.no_such_copy(absent[0], now)
        return replace(now, copies={name: one for name, one in now.copies.items() if name not in gone})

    destination.append(decide)
    _sweep(destination)
    return gone


def expired_copies(copies: Iterable[CopyInfo], rule: CopyRule, spared: str, now_ms: int) -> list[str]:
    """Names of the copies that a rule is about and that nothing keeps, the oldest first.

    What is being made is left alone. Neither the newest goes nor `spared`, which the caller has just seen whole.
    """
    about = [one for one in copies if one.finished_ms and one.name.startswith(rule.prefix)]
    return [one.name for one in unkept(about, rule.count, rule.seconds, now_ms) if one.name != spared]


def prune_copies(destination: Destination, rule: CopyRule, *, spared: str, now_ms: int) -> tuple[str, ...]:
    """Delete the expired copies, and every object that no other copy names; returns their names.

    They are chosen by the very entry of the catalogue that the next one follows, so none that another process has made
    or replaced meanwhile is taken for an older one. Raises `CorruptLog` as `delete_copies` does.
    """
    gone: tuple[str, ...] = ()

    def decide(now: Catalogue, _: int) -> Catalogue:
        nonlocal gone
        gone = tuple(expired_copies(now.copies.values(), rule, spared, now_ms))
        return replace(now, copies={name: one for name, one in now.copies.items() if name not in gone})

    if expired_copies(destination.read().copies.values(), rule, spared, now_ms):
        destination.append(decide)
    # Also without any: what another deletion had to leave goes now.
    _sweep(destination)
    return gone


def _sweep(destination: Destination) -> None:
    for _ in range(ATTEMPTS_MAX):
        catalogue = destination.read()
        begun = sorted(one.name for one in catalogue.copies.values() if not one.finished_ms)
        if begun:
            log.info("a copy is being made, so what was deleted leaves its objects for now", copy=begun[0])
            return
        try:
            named = _named(destination, catalogue)
        except BackupNotFound:
            continue  # another process has deleted that copy, and what it named
        _delete_unnamed(destination, catalogue, named)
        return


def _named(destination: Destination, catalogue: Catalogue) -> set[str]:
    named: set[str] = set()
    for one in catalogue.copies.values():
        manifest = destination.manifest(one)
        named.add(manifest_path(one.part))
        for sst in manifest.version.ssts():
            folder = part_folder(manifest.places[sst.id][0])
            named |= {folder + path for path in object_sizes(sst)}
    return named


def _delete_unnamed(destination: Destination, catalogue: Catalogue, named: Collection[str]) -> None:
    doomed = [
        info.path
        for info in destination.bucket.list("parts/")
        # Only names that a copy gives, of parts that had begun by then.
        if (part := part_of(info.path)) is not None and part <= catalogue.seq and info.path not in named
    ]
    # A manifest goes before what it names, so that none is found whose objects are gone.
    doomed.sort(key=lambda path: not path.endswith("/manifest"))
    for start in range(0, len(doomed), _PATHS_AT_ONCE):
        destination.bucket.delete(doomed[start : start + _PATHS_AT_ONCE])
    # What copies that were killed had half written; one that takes a week is given up anyway.
    left = destination.bucket.leftovers(destination.abandoned_before_ms())
    destination.bucket.delete([info.path for info in left if is_half_of_part(info.path)])
