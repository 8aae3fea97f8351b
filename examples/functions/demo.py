"""Runs workloads of transactional functions, and checks all of what they leave.

    python examples/functions/demo.py [WORKLOAD ...] [--requests 10000] [--seed 1] [--store FOLDER] [--input FOLDER]

Workloads are ycsb_t, ycsb_t_batch, travel, movie and tpcc; all of them, unless some are named. A thousand requests are
under way at any time, and one is done when its reply is durable. Exit code 1 says that something differs.
"""

import argparse
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
from functions.movie import Movie
from functions.tpcc_checker import Tpcc
from functions.travel import Travel
from functions.workload import Reply, Request, Workload, load, play, tables_of
from functions.ycsb_t import YcsbT

from tussock.compute import functions as fn
from tussock.statestore import connect

BATCHED = "ycsb_t_batch"
WORKLOADS: dict[str, Callable[[], Workload]] = {
    "ycsb_t": YcsbT,
    BATCHED: YcsbT,
    "travel": Travel,
    "movie": Movie,
    "tpcc": lambda: Tpcc(items=10_000),
}


def run(name: str, folder: Path, count: int, seed: int, log: str | None) -> list[str]:
    """Run one workload in an empty folder, and print what it did; what is wrong."""
    workload = WORKLOADS[name]()
    requests = workload.requests(count, seed)
    with connect(folder.resolve().as_uri()) as store:
        runtime = fn.Runtime(store, name, workload.operators, input=log)
        load(runtime, workload)
        with runtime:
            began = time.monotonic()
            replies = _in_batches(runtime, requests) if name == BATCHED else play(runtime, requests)
            seconds = time.monotonic() - began
            stats = runtime.stats()
        wrong = workload.check(requests, replies, tables_of(store, workload))
    aborted = sum(reply.error is not None for reply in replies)
    print(
        f"{name}: {count:,} requests, {count / seconds:,.0f} a second; {aborted:,} aborted, {stats['locked']:,} "
        f"committed in the lock phase, {stats['epochs']:,} epochs"
    )
    print("\n".join(wrong[:20]) if wrong else "checked: replies and tables agree", flush=True)
    return wrong


def _in_batches(runtime: fn.Runtime, requests: list[Request]) -> list[Reply]:
    columns = {"to": [one.arguments[0] for one in requests], "amount": [one.arguments[1] for one in requests]}
    table = runtime.send_many("account", "transfers", [one.key for one in requests], columns)
    return [Reply(*pair) for pair in zip(table["reply"].to_pylist(), table["error"].to_pylist(), strict=True)]


def main() -> int:
    """Run what was asked for."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("workloads", nargs="*", metavar="WORKLOAD", help=", ".join(WORKLOADS))
    parser.add_argument("--requests", type=int, default=10_000)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--store", type=Path, help="an empty folder; otherwise one that is deleted afterwards")
    parser.add_argument("--input", type=Path, help="a folder for the input log; otherwise it is in the store")
    options = parser.parse_args()
    if unknown := set(options.workloads) - WORKLOADS.keys():
        parser.error(f"there is no workload {', '.join(sorted(unknown))}; there are {', '.join(WORKLOADS)}")
    wrong = []
    with tempfile.TemporaryDirectory(prefix="functions-") as scratch:
        for name in options.workloads or WORKLOADS:
            log = (options.input.resolve() / name).as_uri() if options.input else None
            wrong += run(name, (options.store or Path(scratch)) / name, options.requests, options.seed, log)
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
