"""`tussock check`: reads all of a store and says everything that is wrong with it."""

from collections.abc import Sequence
from collections.abc import Set as AbstractSet
from pathlib import PurePosixPath

import typer

from tussock.cli.check.backups import check_backups
from tussock.cli.check.findings import Findings
from tussock.cli.check.log import check_lease, check_log, check_pin, sort_log_objects
from tussock.cli.check.sst import check_alone, check_sst
from tussock.cli.losses import loss_document, losses_grid
from tussock.cli.options import Json, Store
from tussock.cli.output import bytes_text, emit_json, grid, number, plural, progress, show
from tussock.cli.places import bucket_at
from tussock.meta.retention.vacuum import ID_DIGITS
from tussock.meta.version.invariants import problems
from tussock.meta.version.version import Version
from tussock.statestore.buckets import open_source
from tussock.statestore.contract.object_store import OWNER_MARKER, ObjectInfo, ObjectStore

__all__ = ["check"]

FOLDERS = ("applications", "backup", "leader", "log", "pins", "snapshot", "sst", "tmp")
HEX_DIGITS = frozenset("0123456789abcdef")


def check(store: Store, as_json: Json = False) -> None:
    """Verify every checksum and every rule of a store; list all problems, exit code 1 if there are any.

    With --json one document: {"ok", "seq", "problems": [{object, problem}], "checked": {log entries, snapshots, pins,
    leases, backups, SSTs, blocks, rows, bytes}, "orphans", "orphan_bytes", "dropped", "losses"}. Orphans, which nothing
    names, and dropped SSTs, which wait for vacuum, are no problems, nor are losses that `repair sst` was allowed to
    make. SSTs of a clone are read where they are.
    """
    findings = Findings()
    with bucket_at(store) as bucket:
        url = bucket.url
        listed = list(bucket.list(""))
        version = _check_bucket(bucket, listed, findings)
    if as_json:
        emit_json(_document(version, findings))
    else:
        _show(url, version, findings)
    if findings.problems:
        raise typer.Exit(1)


def _check_bucket(bucket: ObjectStore, listed: Sequence[ObjectInfo], findings: Findings) -> Version:
    folders = {folder: [info for info in listed if info.path.startswith(f"{folder}/")] for folder in FOLDERS}
    for info in listed:
        if info.path != OWNER_MARKER and (info.path.partition("/")[0] not in FOLDERS or "/" not in info.path):
            findings.problem(info.path, "foreign object: nothing in a store has such a name")
    version = check_log(bucket, sort_log_objects([*folders["log"], *folders["snapshot"]]), findings)
    for what in problems(version):
        findings.problem(f"version {version.seq}", what)
    for info in folders["pins"]:
        check_pin(bucket, info.path, findings)
    for info in folders["leader"]:
        check_lease(bucket, info.path, findings)
    sizes = {info.path: info.size for info in (*folders["sst"], *folders["log"])}
    kept = check_backups(bucket, folders["backup"], version, findings)
    # A backup's SSTs are those of the trees for the most part; each is checked once.
    ssts = {sst.id: (spec, sst) for spec, sst, _ in kept.values()}
    live = {sst.id: (state.spec, sst) for state in version.tables.values() for sst in state.levels.ssts()}
    ssts |= live
    sources = {"": (bucket, sizes)}
    with progress() as bar:
        task = bar.add_task("checking SSTs", total=sum(sst.data_bytes for _, sst in ssts.values()))
        for spec, sst in ssts.values():
            if sst.source not in sources:
                other = open_source(sst.source)
                listing = [info for folder in ("sst/", "log/") for info in other.list(folder)]
                if not listing:
                    findings.problem(sst.source, "no store is there, but SSTs of it are named: mount its disk")
                sources[sst.source] = other, {info.path: info.size for info in listing}
            where, there = sources[sst.source]
            before = len(findings.problems)
            check_sst(where, spec, sst, there, findings, lambda size: bar.advance(task, size))
            if sst.id not in live:
                findings.add_since(before, f"backup {_some(kept[sst.id].backups)} has it, and no table")
    findings.count("bytes", sum(info.size for info in listed))
    unnamed = _count_unnamed(version, kept.keys(), folders["sst"], findings)
    if findings.counts["lost entries"]:
        # Some of these are named by the entries that are lost.
        for sst_id in unnamed:
            check_alone(bucket, sst_id, sizes, findings)
    return version


def _some(names: Sequence[str]) -> str:
    """The first of the names, and how many there are besides."""
    return f"{names[0]!r}" + (f" (and {len(names) - 1} more)" if names[1:] else "")


def _count_unnamed(
    version: Version, kept: AbstractSet[str], listed: Sequence[ObjectInfo], findings: Findings
) -> list[str]:
    """Count what lies under `sst/` and neither a tree nor a backup names, and answer its ids.

    Foreign names there are problems.
    """
    unnamed = set()
    live = version.live_sst_ids() | version.quarantined_ids() | kept
    dropped = {sst.id for sst in version.dropped}
    for info in listed:
        name = PurePosixPath(info.path)
        if len(name.stem) != ID_DIGITS or not HEX_DIGITS.issuperset(name.stem) or name.suffix not in (".data", ".meta"):
            findings.problem(info.path, "foreign object: no SST has such a name")
        elif name.stem in dropped and name.stem not in kept:
            findings.count("dropped")
        elif name.stem not in live:
            findings.count("orphans")
            findings.count("orphan_bytes", info.size)
            unnamed.add(name.stem)
    return sorted(unnamed)


def _document(version: Version, findings: Findings) -> dict[str, object]:
    checked = ("log entries", "snapshots", "pins", "leases", "backups", "SSTs", "blocks", "rows", "bytes")
    return {
        "ok": not findings.problems,
        "seq": version.seq,
        "problems": [{"object": problem.object, "problem": problem.what} for problem in findings.problems],
        "checked": {name: findings.counts[name] for name in checked},
        "orphans": findings.counts["orphans"],
        "orphan_bytes": findings.counts["orphan_bytes"],
        "dropped": findings.counts["dropped"],
        "losses": [loss_document(loss, version.tables) for loss in version.losses],
    }


def _show(url: str, version: Version, findings: Findings) -> None:
    counts = findings.counts
    log = (
        plural(counts["log entries"], "entry"),
        plural(counts["snapshots"], "snapshot"),
        plural(counts["pins"], "pin"),
        plural(counts["backups"], "backup"),
    )
    ssts = (plural(counts["SSTs"], "SST"), plural(counts["blocks"], "block"), plural(counts["rows"], "row"))
    orphans = f"{plural(counts['orphans'], 'object')}, {bytes_text(counts['orphan_bytes'])}"
    rows = [
        ("log", f"{', '.join(log)}; up to entry {version.seq}"),
        ("tables", number(len(version.tables))),
        ("of tables and backups", ", ".join(ssts)),
        ("size", bytes_text(counts["bytes"])),
        ("awaiting vacuum", f"{plural(counts['dropped'], 'object')} of dropped SSTs"),
        ("named by nothing", f"{orphans}: uploads under way, or left by a crash"),
    ]
    show(grid("checked", url, rows=rows))
    if version.losses:
        show(losses_grid(version.losses, version.tables))
        show(f"{plural(len(version.losses), 'damaged SST')} put aside: these rows are lost, as somebody agreed to.")
    if not findings.problems:
        show("No problems found.")
        return
    show(grid("object", "problem", rows=findings.problems))
    show(f"{plural(len(findings.problems), 'problem')} found.")
