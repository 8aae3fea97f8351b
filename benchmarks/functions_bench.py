"""`make bench-functions`: measures transactional functions, embedded, on one core or in two workers, beside Styx.

    python benchmarks/functions_bench.py [--only WORD] [--requests N] [--rounds N] [--folder FOLDER]

The workloads are those of `examples/functions`; a reply leaves when its epoch's record is synced to a file. Every
sample is a new process, which compares each reply and all tables with the workload's checker; `samples.py` says how
pairs are measured. The highest rate is that of an open loop: requests come at a rate whether or not replies do, and the
largest of `RATES` below which 99 % of the replies take less than `LATENCY_MS` counts. All samples go to
`benchmarks/results/` as JSON.

It does not show: clients in other processes, or a bucket on S3. What Styx
publishes was measured on other processors, with Kafka replicated three times.
"""

import os
import statistics
import tempfile
from pathlib import Path
from typing import NamedTuple

from run import say
from samples import Figure, Sample, keep, line, measure, options_of, print_table, sample

REQUESTS = 50_000
LATENCY_MS = 100
RATES = (1, 2, 4, 6, 8, 10, 12.5, 15, 17.5, 20, 22.5, 25, 30, 35, 40)
"""Thousands of requests a second."""
HIGHEST = "highest rate"
CORES = 112
"""Of the machines of the paper, Kafka's and MinIO's included."""

PAIRS = (
    Figure("Zipf 0.999 against uniform", "functions", "zipf", "uniform", wanted=0.7),
    Figure("a commit each second against none, 1 M keys", "functions", "many_keys", "many_keys_uncommitted", 2, 0.9),
)
RECOVERIES = (1_000_000, 10_000_000)


class Workload(NamedTuple):
    """One line of the table of workloads."""

    title: str
    case: str
    times: float = 1
    """Measured with that many times the number of requests."""
    styx: str = ""
    """Transactions a second that Styx publishes, with the latency in milliseconds (half / 99 %)."""
    styx_rate: float | None = None
    """The highest of these before its latency breaks away."""
    wanted: float | None = None


# Psarakis et al., "Styx", SIGMOD 2025, and the arrays of its plots.
WORKLOADS = (
    Workload("YCSB-T, uniform", "uniform", 1, "40,000 (72 / 199)", 40_000, 20_000),
    Workload("YCSB-T, uniform, two workers", "two_workers", 0.4, "", None, 30_000),
    Workload("YCSB-T, Zipf 0.99, two workers", "two_workers_zipf", 0.4),
    Workload("YCSB-T, Zipf 0.999", "zipf", 1, "2,000 (30 / 57)", 2_000),
    Workload("YCSB-T, a batch function", "batches", 20, "", None, 300_000),
    Workload("Deathstar travel", "travel", 1, "30,000 (70 / 256)", 30_000),
    Workload("Deathstar movie", "movie", 0.4, "8,000 (42 / 92)", 8_000),
    Workload("TPC-C, 1 warehouse", "tpcc_1", 0.1, "300 (30 / 54)", 300),
    Workload("TPC-C, 10 warehouses", "tpcc_10", 0.1, "1,500 (36 / 88)", 1_500),
)


def workload_line(workload: Workload, rounds: list[Sample]) -> str:
    """As a line of Markdown: medians, and beside them what Styx publishes."""
    rate = statistics.median(one["rate"] for one in rounds)
    spread = f"{min(one['rate'] for one in rounds):,.0f} to {max(one['rate'] for one in rounds):,.0f}"
    taken = ""
    if "p99_ms" in rounds[0]:
        half, most = (statistics.median(one[name] for one in rounds) for name in ("p50_ms", "p99_ms"))
        taken = f"{half:,.0f} / {most:,.0f}"
    core = "" if workload.styx_rate is None else f"{workload.styx_rate / CORES:,.0f}"
    wanted = ""
    if workload.wanted is not None:
        wanted = f"{workload.wanted:,.0f} {'reached' if rate >= workload.wanted else 'MISSED'}"
    busy = f"{statistics.median(one['busy_us'] for one in rounds):,.0f}" if "busy_us" in rounds[0] else ""
    return f"| {workload.title} | {rate:,.0f} | {spread} | {taken} | {busy} | {workload.styx} | {core} | {wanted} |"


def highest(scratch: Path) -> list[Sample]:
    """Samples of rising rates, up to the second that is not held."""
    found: list[Sample] = []
    for rate in RATES:
        say(f"{HIGHEST}: {rate:g} k/s")
        one = sample("functions", "offered", scratch, int(rate * 1000))
        one["is_held"] = one["is_held"] and one.get("p99_ms", LATENCY_MS) < LATENCY_MS
        found.append({"offered": int(rate * 1000), **one})
        if sum(not one["is_held"] for one in found) == 2:
            break
    return found


def print_tables(
    workloads: dict[Workload, list[Sample]],
    pairs: dict[Figure, list[dict[str, Sample]]],
    rates: list[Sample],
    recoveries: dict[int, list[Sample]],
) -> None:
    """Everything that was measured."""
    if workloads:
        head = "workload | a second | spread | ms, half / 99 % | us busy | Styx | Styx, a core of 112 | wanted"
        print_table(head, [workload_line(one, rounds) for one, rounds in workloads.items()])
        print("\nWhere Styx runs on one core a worker, it publishes 3,300 transfers over partitions a second and core.")
    if rates:
        lines = [
            f"| {one['offered']:,} | {one.get('p50_ms')} | {one.get('p99_ms')} | {one['is_held']} |" for one in rates
        ]
        print_table("offered, a second | ms, half | ms, 99 % | held", lines)
        held = max((one["offered"] for one in rates if one["is_held"]), default=0)
        print(f"\nThe highest rate that is held: {held:,} a second; 20,000 wanted")
    if pairs:
        lines = [line(figure, rounds) for figure, rounds in pairs.items()]
        print_table("figure | first | second | ratio | spread | wanted", lines)
    for keys, samples in recoveries.items():
        seconds = [one["seconds"] for one in samples]
        print(
            f"\nFrom `kill -9` to the first new reply with {keys:,} keys: {statistics.median(seconds):.2f} s "
            f"({min(seconds):.2f} to {max(seconds):.2f}), of it for the start "
            f"{statistics.median(one['start_seconds'] for one in samples):.2f} s; 2.5 s wanted, Styx publishes 2.5 s"
        )


def main() -> None:
    options = options_of(__doc__, "requests", REQUESTS, "of a sample of transfers")
    load = os.getloadavg()[0]
    workloads: dict[Workload, list[Sample]] = {}
    recoveries: dict[int, list[Sample]] = {}
    losses: dict[int, list[Sample]] = {}
    with tempfile.TemporaryDirectory(prefix="tussock-functions-", dir=options.folder) as name:
        scratch = Path(name)
        for number in range(options.rounds):
            for one in WORKLOADS:
                if options.only in one.title:
                    say(f"{one.title}, round {number + 1}")
                    count = int(options.requests * one.times)
                    workloads.setdefault(one, []).append(sample("functions", one.case, scratch, count))
            for keys in RECOVERIES:
                if options.only in f"loss of a worker with {keys:,} keys":
                    say(f"loss of a worker with {keys:,} keys, round {number + 1}")
                    losses.setdefault(keys, []).append(sample("functions", "worker_lost", scratch, keys))
                if options.only in f"recovery with {keys:,} keys":
                    say(f"recovery with {keys:,} keys, round {number + 1}")
                    recoveries.setdefault(keys, []).append(sample("functions", "recovery", scratch, keys))
        pairs = {
            pair: measure(pair, scratch, int(options.requests * pair.times), options.rounds)
            for pair in PAIRS
            if options.only in pair.title
        }
        rates = highest(scratch) if options.only in HIGHEST else []
    keep(
        "functions",
        load,
        requests=options.requests,
        workloads={one.title: rounds for one, rounds in workloads.items()},
        pairs={pair.title: rounds for pair, rounds in pairs.items()},
        rates=rates,
        recoveries=recoveries,
        losses=losses,
    )
    print_tables(workloads, pairs, rates, recoveries)
    for keys, samples in losses.items():
        seconds = [one["seconds"] for one in samples]
        print(
            f"\nFrom `kill -9` of one of two workers to a new reply with {keys:,} keys: "
            f"{statistics.median(seconds):.2f} s ({min(seconds):.2f} to {max(seconds):.2f}); 2.5 s wanted"
        )


if __name__ == "__main__":
    main()
