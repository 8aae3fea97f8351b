"""Write the golden files of log format version 7: `python tests/golden/write_log_v7.py FOLDER`.

Run when the format is frozen, by the release that brings it; from then on the files in `log/v7` are what stores out
there hold, and readers must go on reading them. `tests/meta/log/test_log_format.py` fails if this script no longer
writes them byte for byte. The files in `log/v1` to `log/v6` were written by the versions before; nothing writes
such any more.
"""

import sys
from pathlib import Path

import pyarrow as pa
from msgspec.structs import replace

from tussock.meta.log.format import (
    SSTS_START,
    BackupContent,
    LogEntry,
    encode_backup,
    encode_base,
    encode_entry,
    encode_pin,
    with_ssts,
)
from tussock.meta.log.leases import LeaseRecord, encode_lease
from tussock.meta.version.deltas.backups import BeginBackup, BeginStore, DetachSource, DropBackup, FinishBackup
from tussock.meta.version.deltas.commits import CommitEpoch, OpenWriter, with_payloads
from tussock.meta.version.deltas.delta import Delta, advance
from tussock.meta.version.deltas.losses import DiscardQuarantined, QuarantineSst
from tussock.meta.version.deltas.repair import RepairClock
from tussock.meta.version.deltas.retention import (
    AdvanceHorizon,
    AdvanceSafeEpoch,
    Configure,
    ExpireHistory,
    ForgetDropped,
    ForgetWriters,
)
from tussock.meta.version.deltas.tables import AlterTable, CreateTable, DropTable, SetRetention
from tussock.meta.version.deltas.tasks import ClaimCompaction, PauseCompaction, ReleaseCompaction, ReportCompaction
from tussock.meta.version.deltas.terms import StartTerm
from tussock.meta.version.version import CompactionTask, Origin, Version
from tussock.statestore.contract.backend import PinInfo
from tussock.statestore.contract.losses import AcceptedLoss, LostRange
from tussock.statestore.contract.records import Run, SstInfo, TableSpec

AT_MS = 1_700_000_000_000
ID = bytes(range(16))
OWNER = "host:7:ab"
BACKUP_ID = "0" * 31 + "b"
TERM = 3
FAR = (1 << 63) - 1
"""An epoch far in the future."""
CARRYING = 19
"""The entry that brings SSTs along."""
CARRIED = {f"{AT_MS:012x}{number:020x}": b"blocks of %d|its meta" % number for number in (6, 7)}
"""By id; what is in an SST is not the log's affair."""


def sst(number: int, epoch: int, smallest: bytes, largest: bytes, *, meta_in_data: bool = False) -> SstInfo:
    """An SST whose id says its number."""
    return SstInfo(
        id=f"{AT_MS:012x}{number:020x}",
        smallest=smallest,
        largest=largest,
        rows=3,
        deletes=1,
        data_bytes=4096,
        meta_bytes=512,
        epoch=epoch,
        min_epoch=epoch or 1,
        max_epoch=epoch or 2,
        meta_in_data=meta_in_data,
    )


def history() -> list[tuple[Delta, ...]]:
    """A store's life in which each kind of delta comes once at least; from the fifth entry on a leader writes it."""
    first, second = sst(1, 1, b"a", b"m"), sst(2, 2, b"", b"\xff\x00", meta_in_data=True)
    third, fourth = sst(4, 3, b"a", b"b", meta_in_data=True), sst(5, 4, b"c", b"d", meta_in_data=True)
    task = CompactionTask(
        id="0" * 31 + "1",
        table_id=1,
        kind="manual",
        inputs=((second,), (first,)),
        target_level=1,
        bottom=True,
        watermark=2,
        owner=OWNER,
        claimed_ms=AT_MS,
        expires_ms=AT_MS + 20_000,
    )
    typed = TableSpec(
        id=2,
        name="orders",
        schema=b"schema",
        primary_key=("id",),
        distribution_key=("id",),
        vnodes=256,
        compression="zstd",
    )
    return [
        (CreateTable(spec=TableSpec(id=1, name="kv")),),
        (CreateTable(spec=typed),),
        (CommitEpoch(epoch=1, at_ms=AT_MS, tables={1: (Run(ssts=(first,)),)}, writer="job-1", batch_id=7),),
        (CommitEpoch(epoch=2, at_ms=AT_MS + 1, tables={1: (Run(ssts=(second,)),)}),),
        (StartTerm(term=TERM, leader=OWNER, address="meta-0:7370"),),
        (AdvanceSafeEpoch(epoch=2), ClaimCompaction(task=task)),
        (ReleaseCompaction(task_id=task.id, owner=OWNER, at_ms=AT_MS + 2),),
        (ClaimCompaction(task=task),),
        (AdvanceHorizon(horizon=f"{AT_MS:012x}" + "0" * 19 + "2"),),
        (
            ReportCompaction(
                task_id=task.id, owner=OWNER, outputs=(sst(3, 0, b"", b"m"),), watermark=1, at_ms=AT_MS + 3
            ),
        ),
        (ForgetDropped(ids=(first.id,)),),
        (OpenWriter(writer="job-1", generation=1),),
        (
            CommitEpoch(
                epoch=3,
                at_ms=AT_MS + 4,
                tables={1: (Run(ssts=(third,)),)},
                writer="job-1",
                batch_id=8,
                generation=1,
            ),
            CommitEpoch(epoch=4, at_ms=AT_MS + 5, tables={1: (Run(ssts=(fourth,)),)}, writer="job-2", batch_id=0),
        ),
        (
            BeginBackup(
                name="nightly", id=BACKUP_ID, owner=OWNER, at_ms=AT_MS + 6, expires_ms=AT_MS + 600_000, comment="first"
            ),
        ),
        (FinishBackup(name="nightly", id=BACKUP_ID, seq=14, epoch=4, ssts=3, bytes=13_824),),
        (DropTable(table_id=2, at_ms=AT_MS + 7),),
        (
            Configure(retention_ms=60_000, gc_grace_ms=30_000),
            PauseCompaction(paused=True, reason="maintenance"),
        ),
        (CreateTable(spec=TableSpec(id=3, name="small")),),
        carrying(),
        (DropTable(table_id=3, at_ms=AT_MS + 10),),
        (CreateTable(spec=replace(typed, id=4, name="payments", schema=schema({"id": "int64", "amount": "float"}))),),
        (AlterTable(table_id=4, schema=schema({"id": "int64", "amount": "double", "note": "string"})),),
        (
            CommitEpoch(
                epoch=7,
                at_ms=AT_MS + 11,
                tables={1: (Run(ssts=(sst(8, 7, b"e", b"f"),)),)},
                writer="job-1",
                batch_id=9,
                source="query 1 to table kv",
                recorded=True,
            ),
        ),
        (
            CommitEpoch(epoch=FAR, at_ms=2 * AT_MS, writer="job-1", batch_id=10, source="query 1 to table kv"),
            RepairClock(
                at_ms=AT_MS + 12,
                limit=1,
                epochs=(*((epoch, epoch) for epoch in range(2, 8)), (FAR, 8)),
                rewritten={sst(3, 0, b"", b"m").id: sst(9, 0, b"", b"m")},
            ),
        ),
        *parting(),
        *periods_of_tables(),
    ]


def parting() -> list[tuple[Delta, ...]]:
    """Two merges that part what they supersede, one of what they parted, and the end of that."""
    commits = [sst(8, 7, b"e", b"f"), sst(10, 9, b"e", b"f"), sst(11, 10, b"e", b"f")]
    live = [replace(sst(12, 0, b"e", b"f"), min_epoch=9, max_epoch=9)]
    live += [replace(sst(13, 0, b"e", b"f"), min_epoch=10, max_epoch=10)]
    parted = [replace(sst(14, 0, b"e", b"f"), min_epoch=7, max_epoch=7, until=9)]
    parted += [replace(sst(15, 0, b"e", b"f"), min_epoch=9, max_epoch=9, until=10)]
    merged = replace(sst(16, 0, b"e", b"f"), min_epoch=7, max_epoch=9, until=10)
    tasks = [parting_task(2, (commits[1],), (commits[0],)), parting_task(3, (commits[2],), (live[0],))]
    of_history = replace(parting_task(4, (parted[1],), (parted[0],)), kind="history", watermark=2)
    reports = [
        ReportCompaction(
            task_id=task.id, owner=OWNER, outputs=(output,), history=(history,), watermark=0, at_ms=AT_MS + 13
        )
        for task, output, history in zip(tasks, live, parted, strict=True)
    ]
    last = ReportCompaction(
        task_id=of_history.id, owner=OWNER, outputs=(), history=(merged,), watermark=2, at_ms=AT_MS + 14
    )
    return [
        (commit(commits[1]), ClaimCompaction(task=tasks[0])),
        (reports[0],),
        (commit(commits[2]), ClaimCompaction(task=tasks[1]), reports[1]),
        (ClaimCompaction(task=of_history),),
        (last,),
        (commit(sst(17, 11, b"a", b"b")), AdvanceSafeEpoch(epoch=10), ExpireHistory(epoch=10, at_ms=AT_MS + 15)),
    ]


def periods_of_tables() -> list[tuple[Delta, ...]]:
    """A table that begins with its own periods, and one that gets a retention and loses it."""
    kept = TableSpec(
        id=5,
        name="kept",
        schema=schema({"id": "int64", "at": "timestamp[ms]"}),
        primary_key=("id",),
        distribution_key=("id",),
        vnodes=1,
        retention_ms=86_400_000,
        ttl_ms=60_000,
        ttl_column="at",
    )
    expiring = replace(sst(18, 12, b"\0\0a", b"\0\0b"), expires_ms=AT_MS + 60_000, head_bytes=352, filter_parts=8)
    return [
        (CreateTable(spec=kept, dated=True),),
        (CommitEpoch(epoch=12, at_ms=AT_MS + 30, tables={5: (Run(ssts=(expiring,)),)}),),
        (
            SetRetention(table_id=1, retention_ms=0),
            AdvanceSafeEpoch(epoch=11, table=1),
            ExpireHistory(epoch=0, at_ms=AT_MS + 16, tables={1: 11}),
            SetRetention(table_id=1, retention_ms=None),
        ),
    ]


def commit(one: SstInfo) -> CommitEpoch:
    """A commit of one SST to the first table."""
    return CommitEpoch(epoch=one.epoch, at_ms=AT_MS + 12 + one.epoch, tables={1: (Run(ssts=(one,)),)})


def parting_task(number: int, *inputs: tuple[SstInfo, ...]) -> CompactionTask:
    """A task of that number that parts rows."""
    return CompactionTask(
        id=f"{number:032x}",
        table_id=1,
        kind="intra-l0",
        inputs=inputs,
        target_level=0,
        bottom=False,
        watermark=0,
        owner=OWNER,
        claimed_ms=AT_MS,
        expires_ms=AT_MS + 20_000,
        parted=True,
    )


def schema(columns: dict[str, str]) -> bytes:
    """Columns, by name their types, as an Arrow IPC schema message."""
    fields = [pa.field(name, pa.type_for_alias(kind), nullable=name != "id") for name, kind in columns.items()]
    return pa.schema(fields).serialize().to_pybytes()


def carrying() -> tuple[Delta, ...]:
    """Two commits, to a table each, whose SSTs come along."""
    deltas: list[Delta] = []
    start = SSTS_START
    for (sst_id, data), table in zip(CARRIED.items(), (1, 3), strict=True):
        small = replace(
            sst(0, int(sst_id[-1]) - 1, b"x", b"y", meta_in_data=True),
            id=sst_id,
            data_bytes=len(data) - 8,
            meta_bytes=8,
        )
        commit = CommitEpoch(epoch=small.epoch, at_ms=AT_MS + 3 + small.epoch, tables={table: (Run(ssts=(small,)),)})
        placed, brought = with_payloads(commit, CARRIED, CARRYING, start)
        start += sum(map(len, brought))
        deltas.append(placed)
    return tuple(deltas)


def names_of_writers() -> tuple[Delta, ...]:
    """Names that somebody brought, one of which is forgotten."""
    return (
        OpenWriter(writer="job-3", generation=1, by="jobs", at_ms=AT_MS),
        OpenWriter(writer="job-4", generation=1, by="ops", at_ms=AT_MS + 1),
        CommitEpoch(epoch=1, at_ms=AT_MS + 2, writer="job-5", batch_id=0, recorded=True, by="jobs"),
        ForgetWriters(writers=("job-3",)),
    )


def losses() -> tuple[Delta, ...]:
    """Two damaged SSTs are put aside, of one of which the rest is saved; then one of them is discarded."""
    whole, part = sst(1, 1, b"a", b"m"), sst(2, 2, b"a", b"\xff\x00")
    rest = replace(sst(3, 0, b"a", b"c"), rows=2, min_epoch=2, max_epoch=2)

    def loss(one: SstInfo, rows: int, deletes: int, lost: LostRange) -> AcceptedLoss:
        return AcceptedLoss(
            sst=one,
            table_id=1,
            table="kv",
            rows=rows,
            deletes=deletes,
            bytes=2048,
            min_epoch=one.epoch,
            max_epoch=one.epoch,
            ranges=(lost,),
            uncovered=one.epoch - 1,
            saved=rest.id if one is part else "",
            at_ms=AT_MS + 3,
            by=OWNER,
        )

    return (
        CreateTable(spec=TableSpec(id=1, name="kv")),
        CommitEpoch(epoch=1, at_ms=AT_MS + 1, tables={1: (Run(ssts=(whole,)),)}),
        CommitEpoch(epoch=2, at_ms=AT_MS + 2, tables={1: (Run(ssts=(part,)),)}),
        QuarantineSst(loss=loss(part, 1, 0, LostRange(first=b"d", end=b"e")), saved=rest),
        QuarantineSst(loss=loss(whole, 3, 1, LostRange(first=b"a", end=b"m", closed=True))),
        DiscardQuarantined(ids=(part.id,), at_ms=AT_MS + 4),
    )


def identity() -> tuple[Delta, ...]:
    """The first backup of a store gives it an identity."""
    begun = BeginBackup(
        name="nightly", id=BACKUP_ID, owner=OWNER, at_ms=AT_MS, expires_ms=AT_MS + 600_000, identity="0" * 31 + "c"
    )
    return (begun,)


def clone(version: Version) -> list[tuple[Delta, ...]]:
    """The beginning of a store that is a clone of that one."""
    origin = Origin(kind="clone", url="s3://other/store", backup="", backup_id=BACKUP_ID, seq=version.seq)
    return [
        (BeginStore(version=version, origin=origin),),
        (BeginBackup(name="x", id=BACKUP_ID, owner=OWNER, at_ms=AT_MS, expires_ms=AT_MS + 1),),
        (DropBackup(name="x", id=BACKUP_ID),),
    ]


def entries(deltas: list[tuple[Delta, ...]], prefix: str, term: int) -> tuple[dict[str, bytes], Version]:
    """The entries, by name, and the version after them; they are of that term once it has begun."""
    written: dict[str, bytes] = {}
    version = Version()
    for seq, group in enumerate(deltas, start=1):
        begun = version.term == term or any(isinstance(delta, StartTerm) for delta in group)
        entry = LogEntry(id=ID, writer=OWNER, at_ms=AT_MS, deltas=group, term=term if begun else 0)
        ssts = list(CARRIED.values()) if seq == CARRYING else []
        written[f"{prefix}{seq:020d}.delta"] = with_ssts(seq, encode_entry(seq, entry), ssts)
        version = advance(version, group, term=entry.term)
    return written, version


def files() -> dict[str, bytes]:
    """Name in the golden folder -> bytes."""
    written, version = entries(history(), "", TERM)
    written[f"{version.seq:020d}.snapshot"] = encode_base(version)
    written |= entries(clone(version), "clone-", 0)[0]
    detached = LogEntry(id=ID, writer=OWNER, at_ms=AT_MS, deltas=(DetachSource(url="s3://other/store"),))
    written["detached"] = encode_entry(4, detached)
    named = LogEntry(id=ID, writer=OWNER, at_ms=AT_MS, deltas=names_of_writers())
    written["names"] = encode_entry(1, named)
    written["names.snapshot"] = encode_base(advance(Version(), named.deltas))
    lost = LogEntry(id=ID, writer=OWNER, at_ms=AT_MS, deltas=losses())
    written["losses"] = encode_entry(1, lost)
    written["losses.snapshot"] = encode_base(advance(Version(), lost.deltas))
    identified = LogEntry(id=ID, writer=OWNER, at_ms=AT_MS, deltas=identity())
    written["identified"] = encode_entry(1, identified)
    written["identified.snapshot"] = encode_base(advance(Version(), identified.deltas))
    written["pin"] = encode_pin(
        PinInfo(id=f"{2:020d}-00000000000000ff", epoch=2, owner=OWNER, created_ms=AT_MS, expires_ms=AT_MS + 60_000)
    )
    written["pin.unkept"] = encode_pin(
        PinInfo(
            id=f"{2:020d}-00000000000000fe",
            epoch=2,
            owner=OWNER,
            created_ms=AT_MS,
            expires_ms=AT_MS + 60_000,
            unkept=(1, 5),
        )
    )
    written["lease"] = encode_lease(
        LeaseRecord(term=TERM, holder=f"{OWNER}-1", address="meta-0:7370", lease_ms=3000, renewals=17)
    )
    written["backup"] = encode_backup(BackupContent(info=version.backups["nightly"], version=version))
    return written


if __name__ == "__main__":
    for name, data in files().items():
        (Path(sys.argv[1]) / name).write_bytes(data)
