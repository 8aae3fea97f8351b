"""What a commit of one row costs beside what the store has: tables, and epochs behind it. In memory, processor time.

python benchmarks/commits_bench.py [--tables 1 100 1000] [--epochs 10000]

Processor time of the committing thread, since it is compared with itself; with the base versions that it writes.
"""

import argparse
import statistics
import time

from tussock.statestore import StateStore, connect

SAMPLES = 5
COMMITS = 640
"""In a sample: ten base versions are written meanwhile."""


def commit(store: StateStore, names: list[str], number: int) -> None:
    epoch = store.new_epoch()
    store.table(names[number % len(names)]).ingest_batch([(b"%06d" % (number * 7919 % 100_000), b"value")], epoch)
    store.commit_epoch(epoch)


def measure(tables: int, epochs: int) -> tuple[float, float, float]:
    """Microseconds of a commit: the median, the median of the samples' means, and of the whole process at the mean."""
    with connect("memory://", retention=0, gc_grace=0) as store:
        names = [f"t{number:04d}" for number in range(tables)]
        for name in names:
            store.create_table(name)
        for number in range(epochs):
            commit(store, names, number)
        single: list[float] = []
        means: list[float] = []
        began = time.process_time()
        for sample in range(SAMPLES):
            times = []
            for number in range(COMMITS):
                start = time.thread_time()
                commit(store, names, epochs + sample * COMMITS + number)
                times.append((time.thread_time() - start) * 1e6)
            single += times
            means.append(statistics.mean(times))
        process = (time.process_time() - began) / (SAMPLES * COMMITS) * 1e6
        return statistics.median(single), statistics.median(means), process


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--tables", type=int, nargs="+", default=[1, 100, 1000])
    parser.add_argument("--epochs", type=int, default=10_000)
    options = parser.parse_args()
    print("| tables | median, us | mean, us | whole process, us |\n|---:|---:|---:|---:|")
    for tables in options.tables:
        median, mean, process = measure(tables, options.epochs)
        print(f"| {tables:,} | {median:,.0f} | {mean:,.0f} | {process:,.0f} |", flush=True)


if __name__ == "__main__":
    main()
