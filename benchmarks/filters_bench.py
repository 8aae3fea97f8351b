"""What bounds of values in the meta cost a writer, how much larger they make it, and what a filter saves by them.

python benchmarks/filters_bench.py [--rows 2000000] [--rounds 9]

In memory. Both sides of a line are measured by turns; the median of the ratios is shown, processor time for the
writer. Without bounds a filter reads everything: so it does with a part that is not recognised.
"""

import argparse
import os
import statistics
import time
from collections.abc import Callable
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from tussock.statestore import StateStore, connect
from tussock.statestore.contract.records import TableSpec
from tussock.statestore.format.value_bounds import BoundsWriter
from tussock.statestore.rows.rows import Rows
from tussock.statestore.sst import writer as sst_writer
from tussock.statestore.tables.shape import encoder_of

HOUR = 3_600_000_000
URL = "memory://filters-bench"
OPTIONS: dict[str, Any] = {"compaction": False, "retention": 0, "cache_bytes": 1 << 30}


def events(rows: int) -> pa.Table:
    """Events by number: a time that ascends with it, two amounts in any order, a kind, and 40 bytes of text."""
    rng = np.random.default_rng(7)
    text = rng.integers(0, 256, (rows, 20), dtype=np.uint8).tobytes().hex()
    return pa.table(
        {
            "id": pa.array(np.arange(rows)),
            "at": pa.array(np.arange(rows) * 1_000_000).cast(pa.timestamp("us")),
            "amount": pa.array(rng.random(rows)),
            "count": pa.array(rng.integers(0, 1000, rows), pa.int32(), mask=rng.random(rows) < 0.1),
            "kind": pa.array(np.array(["new", "paid", "sent"])[rng.integers(0, 3, rows)]),
            "text": pa.array([text[at : at + 40] for at in range(0, 40 * rows, 40)]),
        }
    )


def numbers(rows: int) -> pa.Table:
    """Nothing but numbers: a key and ten columns of random ones, the most that bounds can cost."""
    rng = np.random.default_rng(7)
    columns = {f"n{at}": pa.array(rng.integers(0, 1 << 40, rows)) for at in range(10)}
    return pa.table({"id": pa.array(np.arange(rows)), **columns})


def spec_of(table: pa.Table) -> TableSpec:
    """The table as its SSTs are written."""
    return TableSpec(
        id=1,
        name="t",
        schema=table.schema.serialize().to_pybytes(),
        primary_key=("id",),
        distribution_key=("id",),
        vnodes=1,
    )


def write(rows: Rows, spec: TableSpec, *, bounds: bool) -> tuple[float, int, int]:
    """Encode one sorted run: processor seconds, bytes of blocks, bytes of metas."""
    made: Any = BoundsWriter if bounds else lambda _, block_bytes: BoundsWriter([], block_bytes)
    sst_writer.BoundsWriter, before = made, sst_writer.BoundsWriter  # type: ignore[misc]
    try:
        start = time.process_time()
        ssts = list(sst_writer.SstWriter(spec, sst_bytes=64 << 20, epoch_inherited=True).write([rows]))
        infos = [sst.objects(f"{number:032x}")[0] for number, sst in enumerate(ssts)]
        seconds = time.process_time() - start
    finally:
        sst_writer.BoundsWriter = before  # type: ignore[misc]
    return seconds, sum(info.data_bytes for info in infos), sum(info.meta_bytes for info in infos)


def show_writes(name: str, table: pa.Table, rounds: int) -> None:
    """One line on writing."""
    spec = spec_of(table)
    encoder = encoder_of(spec)
    (batch,) = table.combine_chunks().to_batches()
    rows = Rows(encoder.encode(batch), 0, None, tuple(batch.columns[1:]))
    ratios, sizes = [], {}
    for number in range(rounds):
        times = {}
        for bounds in (True, False) if number % 2 else (False, True):
            times[bounds], data, sizes[bounds] = write(rows, spec, bounds=bounds)
        ratios.append(times[True] / times[False])
    growth = sizes[True] / sizes[False] - 1
    print(
        f"| {name} | {len(rows):,} | {statistics.median(ratios):.3f} | {min(ratios):.3f} to {max(ratios):.3f} "
        f"| {sizes[False] / 1e3:,.0f} kB | {growth:+.1%} | {(sizes[True] - sizes[False]) / data:.2%} |"
    )


def read(store: StateStore, condition: pc.Expression) -> tuple[int, float, int]:
    """Rows that a filter leaves, milliseconds, and bytes fetched."""
    table = store.table("t")
    before = fetched(store)
    start = time.perf_counter()
    rows = sum(batch.num_rows for batch in table.read(filter=condition))
    took = (time.perf_counter() - start) * 1e3
    return rows, took, fetched(store) - before


def fetched(store: StateStore) -> int:
    """Bytes that reads have fetched."""
    return sum(size for _, size in store.requests().get("read", {}).values())


def show_reads(name: str, store: StateStore, condition: pc.Expression, rounds: int) -> None:
    """Two lines on reading: by a new client, and by one that has read the table before."""
    # Not recognised: the two sides of an OR.
    all_read = condition | (pc.field("id") < -1)
    for cold in (True, False):
        times: dict[bool, list[float]] = {True: [], False: []}
        sizes = {}
        for _ in range(rounds):
            for bounds in (True, False):
                wanted = condition if bounds else all_read
                if cold:
                    with connect(URL, **OPTIONS) as other:
                        rows, took, sizes[bounds] = read(other, wanted)
                else:
                    rows, took, sizes[bounds] = read(store, wanted)
                times[bounds].append(took)
        ours, theirs = (statistics.median(times[bounds]) for bounds in (True, False))
        print(
            f"| {name} | {'cold' if cold else 'cached'} | {rows:,} | {theirs:.1f} | {ours:.1f} "
            f"| {sizes[False] / 1e6:.2f} MB | {sizes[True] / 1e6:.2f} MB |"
        )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", type=int, default=2_000_000)
    parser.add_argument("--rounds", type=int, default=9)
    options = parser.parse_args()
    makers: dict[str, Callable[[int], pa.Table]] = {"events": events, "numbers": numbers}
    print(f"load average {os.getloadavg()[0]:.1f}\n")
    print("| writing | rows | with bounds / without | spread | meta without | meta | of the data |")
    print("| --- | ---: | ---: | ---: | ---: | ---: | ---: |")
    for name, make in makers.items():
        show_writes(name, make(options.rows), options.rounds)
    table = events(options.rows)
    with connect(URL, **OPTIONS) as store:
        made = store.create_table("t", table.schema, ["id"], vnodes=1)
        epoch = store.new_epoch()
        made.upsert(table, epoch)
        store.commit_epoch(epoch)
        middle = pa.scalar(options.rows // 2 * 1_000_000).cast(pa.timestamp("us"))
        after = pa.scalar(options.rows // 2 * 1_000_000 + HOUR).cast(pa.timestamp("us"))
        at, amount = pc.field("at"), pc.field("amount")
        for _ in made.read():
            pass
        print("\n| filter | cache | rows | ms, all read | ms, by bounds | fetched, all read | fetched, by bounds |")
        print("| --- | --- | ---: | ---: | ---: | ---: | ---: |")
        show_reads("one hour", store, (at >= middle) & (at < after), options.rounds)
        show_reads(
            "the newest 1 %", store, at >= pa.scalar(options.rows * 990_000).cast(pa.timestamp("us")), options.rounds
        )
        show_reads("no row", store, at < pa.scalar(-1).cast(pa.timestamp("us")), options.rounds)
        show_reads("a number in any order", store, amount < 0.001, options.rounds)
    print(f"\nload average {os.getloadavg()[0]:.1f}")


if __name__ == "__main__":
    main()
