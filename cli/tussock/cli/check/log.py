"""Checks the version log, its base versions, markers and pins, and finds the newest version that they give.

The log is replayed from its beginning (or from the oldest base version, where the beginning was truncated) with every
delta validated again on the version that it landed on. Where a base version stands, the replayed version must equal it;
so a replay from any of them gives what a replay from the start gives. Over a damaged or missing entry the replay goes
on from the next base version, if there is one.
"""

from collections.abc import Sequence
from typing import NamedTuple

import msgspec

from tussock.cli.check.findings import Findings
from tussock.cli.commands.log import describe
from tussock.meta.log.format import (
    CHECKSUM,
    HEADER,
    LogEntry,
    base_path,
    decode_base,
    decode_entry,
    decode_pin,
    entry_path,
    is_standby_path,
    marker_path,
    sequence_of,
)
from tussock.meta.log.leases import decode_lease
from tussock.meta.log.objects import read_object
from tussock.meta.version.deltas.delta import advance
from tussock.meta.version.version import Version
from tussock.statestore.base.damage import UNREADABLE
from tussock.statestore.contract.object_store import ObjectInfo, ObjectStore
from tussock.statestore.errors import CorruptLog, ObjectNotFound, TussockError

__all__ = ["LogObjects", "check_lease", "check_log", "check_pin", "sort_log_objects"]


class LogObjects(NamedTuple):
    """Sequences of what a listing shows of the log."""

    entries: list[int]
    markers: list[int]
    bases: list[int]
    others: list[str]
    """Paths in the log's folders that are none of these."""


def sort_log_objects(listed: Sequence[ObjectInfo]) -> LogObjects:
    """Sort the objects under `log/` and `snapshot/` by kind."""
    found = LogObjects([], [], [], [])
    for info in listed:
        seq = sequence_of(info.path)
        if seq is None:
            found.others.append(info.path)
        elif info.path.startswith("log/boundary/"):
            found.markers.append(seq)
        elif info.path == entry_path(seq):
            found.entries.append(seq)
        elif info.path == base_path(seq):
            found.bases.append(seq)
        else:
            found.others.append(info.path)
    return found


def check_log(bucket: ObjectStore, objects: LogObjects, findings: Findings) -> Version:
    """Check all of the log; returns the newest version that its readable part gives."""
    boundary = max(objects.markers, default=0)
    for path in objects.others:
        findings.problem(path, "foreign object: no entry, base version or marker has such a name")
    for seq in objects.markers:
        _check_marker(bucket, seq, findings)
    bases = _base_versions(bucket, objects, findings)
    # What stands at or below the marker is garbage that vacuum has not deleted yet; nobody reads it.
    entries = _entries(bucket, [seq for seq in objects.entries if seq > boundary], findings)
    if not objects.entries and not objects.bases:
        findings.problem("log/", "there is no entry and no base version, so nothing says which SSTs make up the store")
        findings.count("lost entries")
        return Version()
    last = max([boundary, *(seq for seq in objects.entries if seq > boundary), *bases])
    _note_gaps(objects.entries, boundary, last, findings)
    if boundary == 0:
        start = Version()
    else:
        usable = [seq for seq in bases if seq >= boundary]
        if not usable:
            findings.problem(
                base_path(boundary),
                "missing: the log was truncated up to here, and no later base version is readable",
            )
            findings.count("lost entries", last)
            return Version()
        start = bases[min(usable)]
    return _replay(start, entries, bases, last, findings)


def check_pin(bucket: ObjectStore, path: str, findings: Findings) -> None:
    """Check one pin."""
    try:
        pin = decode_pin(path, read_object(bucket, path))
    except CorruptLog as error:
        findings.problem(path, error)
        return
    except ObjectNotFound:
        # Released since the listing.
        return
    findings.count("pins")
    if f"pins/{pin.id}" != path:
        findings.problem(path, f"holds the pin {pin.id}; the object was renamed or copied")


def check_lease(bucket: ObjectStore, path: str, findings: Findings) -> None:
    """Check the lease of a term, or the mark of a replica that follows, which has term 0."""
    term = 0 if is_standby_path(path) else sequence_of(path)
    if term is None:
        findings.problem(path, "foreign object: no lease has such a name")
        return
    try:
        lease = decode_lease(path, term, read_object(bucket, path))
    except CorruptLog as error:
        findings.problem(path, error)
        return
    except ObjectNotFound:
        # Removed since the listing: by a newer leader, or as a mark too old.
        return
    findings.count("leases")
    if lease.term != term:
        findings.problem(path, f"holds the lease of term {lease.term}; the object was renamed or copied")


def _check_marker(bucket: ObjectStore, seq: int, findings: Findings) -> None:
    try:
        found = read_object(bucket, marker_path(seq))
    except ObjectNotFound:
        # Superseded since the listing.
        return
    if found != str(seq).encode():
        findings.problem(marker_path(seq), f"expected the text {seq}, found {found[:40]!r}; its name is what counts")


def _base_versions(bucket: ObjectStore, objects: LogObjects, findings: Findings) -> dict[int, Version]:
    readable: dict[int, Version] = {}
    for seq in objects.bases:
        path = base_path(seq)
        try:
            readable[seq] = decode_base(path, seq, read_object(bucket, path))
            findings.count("snapshots")
        except CorruptLog as error:
            findings.problem(path, error)
        except ObjectNotFound:
            # Truncated since the listing.
            continue
    return readable


def _entries(bucket: ObjectStore, sequences: Sequence[int], findings: Findings) -> dict[int, LogEntry]:
    readable: dict[int, LogEntry] = {}
    for seq in sequences:
        path = entry_path(seq)
        try:
            data = read_object(bucket, path)
        except ObjectNotFound:
            findings.problem(path, "deleted while it was being checked; check again")
            continue
        try:
            readable[seq] = decode_entry(path, seq, data)
            findings.count("log entries")
        except CorruptLog as error:
            findings.problem(path, f"{error}. {_salvage(data)}")
    return readable


def _salvage(data: bytes) -> str:
    """What a damaged entry still says, as far as anything can be made of it."""
    try:
        payload = data[HEADER.size : len(data) - CHECKSUM.size]
        entry = msgspec.msgpack.decode(payload, type=LogEntry)
        return f"It seems to say: {'; '.join(describe(delta) for delta in entry.deltas)}"
    except (*UNREADABLE, ValueError):
        return f"Nothing in its {len(data)} bytes can be made out"


def _note_gaps(entries: Sequence[int], boundary: int, last: int, findings: Findings) -> None:
    """Entries that must be there and are not, a run of them as one problem."""
    known = sorted(seq for seq in entries if seq > boundary)
    for before, after in zip([boundary, *known], [*known, last + 1], strict=True):
        first, end = before + 1, after - 1
        if first <= end:
            upto = f" (and all up to {end})" if end > first else ""
            findings.problem(entry_path(first), f"missing{upto}, although a later entry or base version is there")


def _replay(
    version: Version, entries: dict[int, LogEntry], bases: dict[int, Version], last: int, findings: Findings
) -> Version:
    while version.seq < last:
        seq = version.seq + 1
        after = _advance(version, entries[seq], findings) if seq in entries else None
        if after is None:
            # Damaged or missing, which was noted: go on behind it.
            later = [number for number in bases if number >= seq]
            if not later:
                findings.problem(
                    f"version {last}", f"cannot be had: the replay ends at entry {version.seq}, what follows is lost"
                )
                findings.count("lost entries", last - version.seq)
                break
            version = bases[min(later)]
            continue
        version = after
        if seq in bases and bases[seq] != version:
            findings.problem(base_path(seq), _difference(bases[seq], version))
    return version


def _difference(found: Version, expected: Version) -> str:
    fields = [name for name in Version.__struct_fields__ if getattr(found, name) != getattr(expected, name)]
    return f"is not the version that the log's entries give; it differs in: {', '.join(fields)}"


def _advance(version: Version, entry: LogEntry, findings: Findings) -> Version | None:
    """The version after an entry, or `None` if it does not apply at all."""
    path = entry_path(version.seq + 1)
    try:
        return advance(version, entry.deltas, term=entry.term)
    except (TussockError, LookupError) as error:
        findings.problem(path, f"intact, but breaks a rule on the version of entry {version.seq}: {error}")
    try:
        return advance(version, entry.deltas, check=False)
    except (TussockError, LookupError):
        return None
