"""What changes of a version with very many SSTs cost: validated and applied, and its snapshot: prints JSON.

`python benchmarks/meta_version.py [SSTS]`. The store has one table: half of its SSTs in L2, most of the rest in L1,
two thousand in L0. Each figure is the median and the 99th percentile, in milliseconds, of changes at places that a
seeded walk picks; of snapshots the best of five. Garbage collection stays on, as in a server.
"""

import gc
import json
import random
import statistics
import sys
import time
from collections.abc import Callable

from msgspec.structs import replace

from tussock.meta.log.format import decode_base, encode_base
from tussock.meta.version.deltas.commits import AlreadyCommitted, stamp
from tussock.meta.version.deltas.delta import Delta, advance
from tussock.meta.version.deltas.tables import CreateTable
from tussock.meta.version.deltas.tasks import ClaimCompaction, ReportCompaction
from tussock.meta.version.ranges import overlap_in_run
from tussock.meta.version.version import CompactionTask, DroppedSst, Version
from tussock.statestore.contract.backend import CommitRequest
from tussock.statestore.contract.records import Run, SstInfo, TableLevels, TableSpec, TableState

AT_MS = 1_700_000_000_000
L0_SSTS = 2_000
L0_RUNS = 100
CHANGES = 300


class Shop:
    """Makes SSTs; ids count up as those of uploads do."""

    def __init__(self) -> None:
        self.made = 0

    def sst(self, low: int, high: int, epoch: int, *, own: bool) -> SstInfo:
        """One over the keys from `low` to `high`; `own`: its rows carry their epochs."""
        self.made += 1
        return SstInfo(
            id=f"{AT_MS:012x}{self.made:020x}",
            smallest=b"%016d" % low,
            largest=b"%016d" % high,
            rows=100_000,
            deletes=0,
            data_bytes=32 << 20,
            meta_bytes=100_000,
            epoch=0 if own else epoch,
            min_epoch=epoch,
            max_epoch=epoch,
        )

    def run(self, count: int, epoch: int, *, own: bool) -> tuple[SstInfo, ...]:
        """A sorted run that covers the whole key space."""
        width = 10**12 // count
        return tuple(self.sst(at * width, (at + 1) * width - 1, epoch, own=own) for at in range(count))


def big_version(ssts: int, shop: Shop) -> Version:
    """A version of `ssts` SSTs, and a tenth as many dropped ones."""
    deep = ssts // 2
    levels = (shop.run(ssts - deep - L0_SSTS, 2, own=True), shop.run(deep, 1, own=True))
    l0 = tuple(Run(ssts=shop.run(L0_SSTS // L0_RUNS, L0_RUNS + 2 - number, own=False)) for number in range(L0_RUNS))
    version = advance(Version(), [CreateTable(spec=TableSpec(id=1, name="kv"))])
    state = TableState(spec=version.tables[1].spec, levels=TableLevels(l0=l0, levels=levels), last_epoch=L0_RUNS + 2)
    dropped = tuple(DroppedSst(id=sst.id, seq=1, dropped_ms=AT_MS) for sst in shop.run(ssts // 10, 1, own=True))
    return replace(version, tables={1: state}, dropped=dropped, max_committed_epoch=L0_RUNS + 2)


def task_of(version: Version, picked: tuple[tuple[SstInfo, ...], ...], level: int, number: int) -> CompactionTask:
    """A task over these inputs."""
    return CompactionTask(
        id=f"{number:032x}",
        table_id=1,
        kind="level",
        inputs=picked,
        target_level=level,
        bottom=level == 2,
        watermark=version.safe_epoch,
        owner="bench",
        claimed_ms=AT_MS,
        expires_ms=AT_MS + 20_000,
    )


def level_task(version: Version, chance: random.Random, number: int) -> CompactionTask:
    """Ten neighbours of L1 and what lies under them."""
    upper, lower = version.tables[1].levels.levels
    at = chance.randrange(len(upper) - 10)
    files = upper[at : at + 10]
    below = overlap_in_run(lower, (files[0].smallest, files[-1].largest))
    return task_of(version, (files, below), 2, number)


def l0_task(version: Version, _: random.Random, number: int) -> CompactionTask:
    """All of L0 below the newest few runs, with what lies under it in L1, over a hundredth of the keys."""
    levels = version.tables[1].levels
    bounds = (b"%016d" % 0, b"%016d" % (10**10 - 1))
    runs = [overlap_in_run(sub.ssts, bounds) for sub in levels.l0]
    picked = [run for run in runs if run]
    low, high = min(run[0].smallest for run in picked), max(run[-1].largest for run in picked)
    return task_of(version, (*picked, overlap_in_run(levels.levels[0], (low, high))), 1, number)


def timed(work: Callable[[], Version]) -> tuple[float, Version]:
    """Milliseconds, and what came of it."""
    began = time.perf_counter()
    result = work()
    return (time.perf_counter() - began) * 1000, result


def spread(times: list[float]) -> dict[str, float]:
    """Median and 99th percentile."""
    return {"p50_ms": round(statistics.median(times), 3), "p99_ms": round(statistics.quantiles(times, n=100)[98], 3)}


def committed(version: Version, shop: Shop, chance: random.Random) -> Version:
    """The version after a commit of one SST, stamped and checked as the log does."""
    at = chance.randrange(10**12)
    sst = shop.sst(at, at + 1000, 1, own=False)
    request = CommitRequest(epoch=1, tables={1: (Run(ssts=(sst,)),)})
    delta = stamp(version, request, AT_MS)
    assert not isinstance(delta, AlreadyCommitted)
    return advance(version, [delta])


def measure(ssts: int) -> dict[str, object]:
    """All figures."""
    shop, chance = Shop(), random.Random(7)
    base = version = big_version(ssts, shop)
    gc.collect()
    commits, claims, reports, l0_claims = [], [], [], []
    for _ in range(CHANGES):
        spent, version = timed(lambda before=version: committed(before, shop, chance))
        commits.append(spent)
    version = base
    for number in range(CHANGES):
        task = level_task(version, chance, number)
        low, high = task.inputs[0][0], task.inputs[0][-1]
        inputs = len(task.ssts())
        width = (int(high.largest) - int(low.smallest)) // inputs
        made = tuple(
            shop.sst(int(low.smallest) + at * width, int(low.smallest) + (at + 1) * width - 1, 2, own=True)
            for at in range(inputs)
        )
        spent, version = timed(lambda before=version, task=task: advance(before, [ClaimCompaction(task=task)]))
        claims.append(spent)
        report: Delta = ReportCompaction(task_id=task.id, owner="bench", outputs=made, watermark=0, at_ms=AT_MS)
        spent, version = timed(lambda before=version, report=report: advance(before, [report]))
        reports.append(spent)
    for number in range(50):
        claim = ClaimCompaction(task=l0_task(base, chance, number))
        l0_claims.append(timed(lambda claim=claim: advance(base, [claim]))[0])
    data = encode_base(version)
    writing = min(timed(lambda: (encode_base(version), version)[1])[0] for _ in range(5))
    loading = min(timed(lambda: decode_base("x", version.seq, data))[0] for _ in range(5))
    return {
        "ssts": sum(len(run) for run in base.tables[1].levels.runs()),
        "commit": spread(commits),
        "claim": spread(claims),
        "claim of L0, 100 runs": spread(l0_claims),
        "report": spread(reports),
        "snapshot_bytes": len(data),
        "snapshot_encode_ms": round(writing, 1),
        "snapshot_decode_ms": round(loading, 1),
    }


if __name__ == "__main__":
    print(json.dumps(measure(int(sys.argv[1]) if len(sys.argv) > 1 else 100_000), indent=1))
