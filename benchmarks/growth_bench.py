"""What calls cost as a table grows: reads of what is cached, and full compactions, at 1, 10 and 50 million rows.

    python benchmarks/growth_bench.py [--millions 1 10 50] [--passes 5] [--folder FOLDER]

Rows of 116 random bytes in four runs whose key ranges overlap. Each compaction is a new process with a cache and a
buffer of 64 MiB, whose peak of memory counts; the reads of a size are one process, which has all rows in its cache.
Costs are processor time, so that what else the machine does counts for little; a read's is the median of the passes.
It takes a folder with three times the bytes of the largest table, and memory for all its rows.
"""

import argparse
import json
import resource
import shutil
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import dataset
import numpy as np
import report
import timing

from tussock.statestore import StateStore, connect

RUNS = 4
PIECE_ROWS = 250_000
"""Rows that are made at once."""
GETS = 20_000
LISTS = 10
LIST_KEYS = 10_000
SCANS = 200
SCAN_ROWS = 1_000
BOUNDED: dict[str, Any] = {"compaction": False, "retention": 0, "cache_bytes": 64 << 20, "buffer_bytes": 64 << 20}
MARGIN_BYTES = 1 << 30
"""Of cache beyond the rows' bytes, for what a cached row takes beside them."""


def fill(folder: Path, millions: int) -> None:
    """Four runs, each of a quarter of the rows, made piece by piece."""
    pieces = millions * 1_000_000 // PIECE_ROWS
    with connect(f"file://{folder}", **BOUNDED) as store:
        kv = store.create_table("kv")
        for run in range(RUNS):
            epoch = store.new_epoch()
            for piece in range(run, pieces, RUNS):
                kv.upsert(dataset.as_table(PIECE_ROWS, keys_seed=piece, values_seed=piece), epoch)
            store.commit_epoch(epoch)


def compact(folder: Path, millions: int) -> dict[str, float]:
    """Compact the table whole: processor time a gigabyte of rows, and the peak of memory."""
    with connect(f"file://{folder}", **BOUNDED) as store:
        took = timing.processor_seconds(lambda: store.compact("kv"))
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    return {"compaction, s a GB": took / (millions * dataset.ROW_BYTES / 1000), "its peak of memory, MiB": peak}


def some_keys(millions: int, count: int, seed: int) -> list[bytes]:
    """Keys that are there, drawn evenly from some of the pieces."""
    chance = np.random.default_rng(seed)
    pieces = chance.choice(millions * 1_000_000 // PIECE_ROWS, 4, replace=False).tolist()
    keys = [key for piece in pieces for key in _keys_of(piece, count // len(pieces), chance)]
    chance.shuffle(keys)
    return keys


def _keys_of(piece: int, count: int, chance: np.random.Generator) -> list[bytes]:
    data = np.random.default_rng(piece).bytes(PIECE_ROWS * dataset.KEY_BYTES)
    starts = chance.integers(0, PIECE_ROWS, count) * dataset.KEY_BYTES
    return [data[at : at + dataset.KEY_BYTES] for at in starts.tolist()]


def reads(store: StateStore, millions: int) -> dict[str, tuple[int, Callable[[], object]]]:
    """One pass of each kind of read, with how many keys or rows it returns."""
    kv: Any = store.table("kv")
    singles = some_keys(millions, GETS, 1)
    lists = [some_keys(millions, LIST_KEYS, 2 + seed) for seed in range(LISTS)]
    starts = some_keys(millions, SCANS, 20)
    return {
        "get, us": (GETS, lambda: [kv.get(key) for key in singles]),
        "multi_get of 10,000, us a key": (LISTS * LIST_KEYS, lambda: [kv.multi_get(keys) for keys in lists]),
        "scan of 1,000 rows, us": (SCANS, lambda: [list(kv.scan(key, limit=SCAN_ROWS)) for key in starts]),
    }


def read(folder: Path, millions: int, passes: int) -> dict[str, float]:
    """Microseconds of each kind of read, all in turn on one open store whose rows are in its cache."""
    cache = millions * 1_000_000 * dataset.ROW_BYTES * 5 // 4 + MARGIN_BYTES
    took: dict[str, list[float]] = {}
    with connect(f"file://{folder}", compaction=False, cache_bytes=cache) as store:
        seen = sum(batch.num_rows for batch in store.table("kv").scan())
        assert seen == millions * 1_000_000, f"{seen} rows"
        kinds = reads(store, millions)
        for number in range(passes + 1):
            for name, (count, work) in kinds.items():
                seconds = timing.processor_seconds(work)
                if number:
                    took.setdefault(name, []).append(seconds / count * 1e6)
    return {name: statistics.median(times) for name, times in took.items()}


def measure(folder: Path, millions: int, passes: int) -> dict[str, float]:
    """All figures of one size, by a process for each case."""
    store = folder / f"{millions}"
    found: dict[str, float] = {}
    try:
        fill(store, millions)
        for case in ("compact", "read"):
            command = [sys.executable, __file__, "--case", case, str(millions), str(passes), str(store)]
            done = subprocess.run(command, capture_output=True, text=True, check=False)
            if done.returncode:
                raise SystemExit(f"{case} of {millions} million rows failed:\n{done.stderr}")
            found |= json.loads(done.stdout)
    finally:
        shutil.rmtree(store, ignore_errors=True)
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--millions", type=int, nargs="+", default=[1, 10, 50])
    parser.add_argument("--passes", type=int, default=5)
    parser.add_argument("--folder", type=Path)
    parser.add_argument("--case", nargs=4, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.case:
        case, millions, passes, store = options.case
        of = Path(store), int(millions)
        print(json.dumps(compact(*of) if case == "compact" else read(*of, int(passes))))
        return
    with tempfile.TemporaryDirectory(dir=options.folder) as folder:
        sizes = {millions: measure(Path(folder), millions, options.passes) for millions in options.millions}
    first, *larger = sizes.values()
    rows = [
        [name, f"{cost:,.2f}", *(f"{size[name]:,.2f} (**{size[name] / cost:.2f}x**)" for size in larger)]
        for name, cost in first.items()
    ]
    head = ["figure", *(f"{millions} M rows" for millions in sizes)]
    print("\n".join(report.markdown_table(head, rows, right=1)))


if __name__ == "__main__":
    main()
