"""`make bench-functions`: measures transactional functions, embedded, on one core, beside what Styx publishes.

    python benchmarks/functions_bench.py [--only WORD] [--requests N] [--rounds N] [--folder FOLDER]

The workloads are those of `examples/functions`; a reply leaves when its epoch's record is synced to a file. Every
sample is a new process, which compares each reply and all tables with the workload's checker. Of a pair of cases, each
round measures both directly after the other, and the first one by turns; the ratio is taken within the round. The
highest rate is that of an open loop: requests come at a rate whether or not replies do, and the largest of `RATES`
below which 99 % of the replies take less than `LATENCY_MS` counts. All samples go to `benchmarks/results/` as JSON.

It does not show: clients in other processes, a bucket on S3, or several processes that share the work. What Styx
publishes was measured on other processors, with Kafka replicated three times.
"""

import argparse
import datetime
import json
import os
import statistics
import tempfile
from pathlib import Path
from typing import Any, NamedTuple

import report
from compute_bench import RESULTS, Figure, Sample, line, measure, sample
from run import say

REQUESTS = 50_000
ROUNDS = 5
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
RECOVERIES = (100_000, 1_000_000)


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
        print("| workload | a second | spread | ms, half / 99 % | us busy | Styx | Styx, a core of 112 | wanted |")
        print("| --- | ---: | ---: | ---: | ---: | ---: | ---: | ---: |")
        print("\n".join(workload_line(one, rounds) for one, rounds in workloads.items()))
        print("\nWhere Styx runs on one core a worker, it publishes 3,300 transfers over partitions a second and core.")
    if rates:
        print("\n| offered, a second | ms, half | ms, 99 % | held |\n| ---: | ---: | ---: | --- |")
        for one in rates:
            print(f"| {one['offered']:,} | {one.get('p50_ms')} | {one.get('p99_ms')} | {one['is_held']} |")
        held = max((one["offered"] for one in rates if one["is_held"]), default=0)
        print(f"\nThe highest rate that is held: {held:,} a second; 20,000 wanted")
    if pairs:
        print("\n| figure | first | second | ratio | spread | wanted |\n| --- | ---: | ---: | ---: | ---: | ---: |")
        print("\n".join(line(figure, rounds) for figure, rounds in pairs.items()))
    for keys, samples in recoveries.items():
        seconds = [one["seconds"] for one in samples]
        print(
            f"\nFrom `kill -9` to the first new reply with {keys:,} keys: {statistics.median(seconds):.2f} s "
            f"({min(seconds):.2f} to {max(seconds):.2f}), of it for the start "
            f"{statistics.median(one['start_seconds'] for one in samples):.2f} s; 2.5 s wanted, Styx publishes 2.5 s"
        )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", default="", help="lines whose titles have this word")
    parser.add_argument("--requests", type=int, default=REQUESTS, help="of a sample of transfers")
    parser.add_argument("--rounds", type=int, default=ROUNDS)
    parser.add_argument("--folder", type=Path, help="a place on the disk to measure; otherwise that of temporary files")
    options = parser.parse_args()
    load = os.getloadavg()[0]
    workloads: dict[Workload, list[Sample]] = {}
    recoveries: dict[int, list[Sample]] = {}
    with tempfile.TemporaryDirectory(prefix="tussock-functions-", dir=options.folder) as name:
        scratch = Path(name)
        for number in range(options.rounds):
            for one in WORKLOADS:
                if options.only in one.title:
                    say(f"{one.title}, round {number + 1}")
                    count = int(options.requests * one.times)
                    workloads.setdefault(one, []).append(sample("functions", one.case, scratch, count))
            for keys in RECOVERIES:
                if options.only in f"recovery with {keys:,} keys":
                    say(f"recovery with {keys:,} keys, round {number + 1}")
                    recoveries.setdefault(keys, []).append(sample("functions", "recovery", scratch, keys))
        pairs = {
            pair: measure(pair, scratch, int(options.requests * pair.times), options.rounds)
            for pair in PAIRS
            if options.only in pair.title
        }
        rates = highest(scratch) if options.only in HIGHEST else []
    now = datetime.datetime.now(datetime.UTC)
    RESULTS.mkdir(exist_ok=True)
    target = RESULTS / f"functions-{now:%Y%m%d-%H%M%S}.json"
    kept: dict[str, Any] = {
        "at": now.isoformat(),
        "machine": report.machine(),
        "load": [load, os.getloadavg()[0]],
        "requests": options.requests,
        "workloads": {one.title: rounds for one, rounds in workloads.items()},
        "pairs": {pair.title: rounds for pair, rounds in pairs.items()},
        "rates": rates,
        "recoveries": recoveries,
    }
    target.write_text(json.dumps(kept, indent=1))
    print(f"\nLoad average {load:.1f} at the start, {kept['load'][1]:.1f} at the end; samples in {target}\n")
    print_tables(workloads, pairs, rates, recoveries)


if __name__ == "__main__":
    main()
