"""What reads fetch from a bucket when nothing is cached: with filters that lie apart from the metas, and without.

python benchmarks/cold_reads_bench.py [--rows 700000] [--samples 20]

In memory. Requests and bytes are those of the SSTs of one table, in one sorted run and in three, of which each key is
in one. Each line is of a new client; of single reads the mean of some samples is shown. A request of an object store
takes 10 to 30 ms to its first byte, in which a megabyte comes; that is why both columns are there.
"""

import argparse
import random
import statistics
from collections.abc import Callable
from typing import Any

import numpy as np
import pyarrow as pa
from filters_bench import events

from tussock.statestore import StateStore, TypedTable, connect
from tussock.statestore.base.limits import Limits

OPTIONS: dict[str, Any] = {"compaction": False, "retention": 0, "cache_bytes": 1 << 30}
LAYOUTS = {"whole": Limits(whole_filter_bytes=1 << 30), "apart": Limits()}
GETS = 1000


def fill(url: str, limits: Limits, rows: int, runs: int) -> None:
    """A table of that many runs, each of `rows` events, whose ids go round the runs; odd ids are absent."""
    with connect(url, **OPTIONS, limits=limits) as store:
        made: TypedTable | None = None
        for run in range(runs):
            table = events(rows)
            ids = pa.array((np.arange(rows) * runs + run) * 2)
            table = table.set_column(0, "id", ids)
            made = made or store.create_table("t", table.schema, ["id"], vnodes=1)
            epoch = store.new_epoch()
            made.upsert(table, epoch)
            store.commit_epoch(epoch)


def get_present(table: TypedTable, chance: random.Random, rows: int) -> None:
    assert table.get(2 * chance.randrange(rows)) is not None


def get_absent(table: TypedTable, chance: random.Random, rows: int) -> None:
    assert table.get(2 * chance.randrange(rows) + 1) is None


def many_present(table: TypedTable, chance: random.Random, rows: int) -> None:
    for _ in range(GETS):
        get_present(table, chance, rows)


def many_absent(table: TypedTable, chance: random.Random, rows: int) -> None:
    for _ in range(GETS):
        get_absent(table, chance, rows)


def one_call_present(table: TypedTable, chance: random.Random, rows: int) -> None:
    keys = pa.table({"id": [2 * chance.randrange(rows) for _ in range(GETS)]})
    assert table.multi_get(keys).null_count == 0


def one_call_absent(table: TypedTable, chance: random.Random, rows: int) -> None:
    keys = pa.table({"id": [2 * chance.randrange(rows) + 1 for _ in range(GETS)]})
    table.multi_get(keys)


def scan(table: TypedTable, chance: random.Random, rows: int) -> None:
    start = 2 * chance.randrange(rows - 10)
    assert sum(batch.num_rows for batch in table.read(between=((start,), ()), limit=10)) == 10


CASES: dict[str, Callable[[TypedTable, random.Random, int], None]] = {
    "get of a present key": get_present,
    "get of an absent key": get_absent,
    "scan of 10 rows": scan,
    f"{GETS:,} gets, present": many_present,
    f"{GETS:,} gets, absent": many_absent,
    f"multi_get of {GETS:,}, present": one_call_present,
    f"multi_get of {GETS:,}, absent": one_call_absent,
}


def fetched(store: StateStore) -> tuple[int, int]:
    """Requests and bytes of reads."""
    counts = store.requests().get("read", {}).values()
    return sum(count for count, _ in counts), sum(size for _, size in counts)


def measure(url: str, limits: Limits, case: Callable[..., None], rows: int, samples: int) -> tuple[float, float]:
    """Mean requests and bytes of one case, each time by a new client."""
    requests, sizes = [], []
    for seed in range(samples):
        with connect(url, **OPTIONS, limits=limits) as store:
            table = store.table("t")
            before = fetched(store)
            case(table, random.Random(seed), rows)
            after = fetched(store)
        requests.append(after[0] - before[0])
        sizes.append(after[1] - before[1])
    return statistics.mean(requests), statistics.mean(sizes)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", type=int, default=700_000)
    parser.add_argument("--samples", type=int, default=20)
    options = parser.parse_args()
    print("| read, nothing cached | runs | requests, whole | apart | kB, whole | apart |")
    print("| --- | ---: | ---: | ---: | ---: | ---: |")
    for runs in (1, 3):
        for layout, limits in LAYOUTS.items():
            fill(f"memory://cold-{layout}-{runs}", limits, options.rows, runs)
        for name, case in CASES.items():
            samples = 2 if f"{GETS:,}" in name else options.samples
            found = [
                measure(f"memory://cold-{layout}-{runs}", limits, case, options.rows * runs, samples)
                for layout, limits in LAYOUTS.items()
            ]
            (one, one_bytes), (two, two_bytes) = found
            print(f"| {name} | {runs} | {one:,.1f} | {two:,.1f} | {one_bytes / 1e3:,.0f} | {two_bytes / 1e3:,.0f} |")


if __name__ == "__main__":
    main()
