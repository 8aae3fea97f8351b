"""Write the golden files of log format version 1: `python tests/golden/write_log_v1.py FOLDER`.

Run once, when the format was frozen; the files in `log/v1` are what stores out there hold, and readers must go on
reading them. `tests/meta/test_log_format.py` fails if this script no longer writes them byte for byte.
"""

import sys
from pathlib import Path

from tussock.meta.commits import CommitEpoch
from tussock.meta.delta import (
    AdvanceHorizon,
    AdvanceSafeEpoch,
    Configure,
    CreateTable,
    Delta,
    DropTable,
    ForgetDropped,
    ReleaseCompaction,
    ReportCompaction,
    advance,
)
from tussock.meta.framing import LogEntry, encode_entry, encode_pin, encode_snapshot
from tussock.meta.tasks import ClaimCompaction
from tussock.meta.version import CompactionTask, Version
from tussock.statestore.backend import PinInfo
from tussock.statestore.catalog import SstInfo, SubLevel, TableSpec

AT_MS = 1_700_000_000_000


def sst(number: int, epoch: int, smallest: bytes, largest: bytes) -> SstInfo:
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
    )


def history() -> list[tuple[Delta, ...]]:
    """A store's life in which each kind of delta comes once at least."""
    first, second = sst(1, 1, b"a", b"m"), sst(2, 2, b"", b"\xff\x00")
    task = CompactionTask(
        id="0" * 31 + "1",
        table_id=1,
        kind="manual",
        inputs=((second,), (first,)),
        target_level=1,
        bottom=True,
        watermark=2,
        owner="host:7:ab",
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
        (CommitEpoch(epoch=1, at_ms=AT_MS, tables={1: (SubLevel(ssts=(first,)),)}, writer="job-1", batch_id=7),),
        (CommitEpoch(epoch=2, at_ms=AT_MS + 1, tables={1: (SubLevel(ssts=(second,)),)}),),
        (AdvanceSafeEpoch(epoch=2), ClaimCompaction(task=task)),
        (ReleaseCompaction(task_id=task.id, owner="host:7:ab", at_ms=AT_MS + 2),),
        (ClaimCompaction(task=task),),
        (
            ReportCompaction(
                task_id=task.id, owner="host:7:ab", outputs=(sst(3, 0, b"", b"m"),), watermark=1, at_ms=AT_MS + 3
            ),
        ),
        (AdvanceHorizon(horizon=f"{AT_MS:012x}" + "0" * 19 + "2"),),
        (ForgetDropped(ids=(first.id,)),),
        (DropTable(table_id=2, at_ms=AT_MS + 4),),
        (Configure(retention_ms=60_000, gc_grace_ms=30_000),),
    ]


def files() -> dict[str, bytes]:
    """Name in the golden folder -> bytes."""
    written: dict[str, bytes] = {}
    version = Version()
    for seq, deltas in enumerate(history(), start=1):
        entry = LogEntry(id=bytes(range(16)), writer="host:7:ab", at_ms=AT_MS, deltas=deltas)
        written[f"{seq:020d}.delta"] = encode_entry(seq, entry)
        version = advance(version, deltas)
    written[f"{version.seq:020d}.snapshot"] = encode_snapshot(version)
    pin = PinInfo(
        id=f"{2:020d}-00000000000000ff", epoch=2, owner="host:7:ab", created_ms=AT_MS, expires_ms=AT_MS + 60_000
    )
    written["pin"] = encode_pin(pin)
    return written


if __name__ == "__main__":
    for name, data in files().items():
        (Path(sys.argv[1]) / name).write_bytes(data)
