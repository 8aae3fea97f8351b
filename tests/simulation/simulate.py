"""`make simulate`: many seeds over all cores, or one with its whole trace."""

import argparse
import gc
import multiprocessing
import time
import traceback
from collections.abc import Iterator

from simulation.planted import BUGS, planted
from simulation.world import Outcome, run_seed

__all__ = ["main"]


def _one(seed: int) -> tuple[int, str, float, dict[str, int]]:
    outcome = run_seed(seed)
    if seed % 8 == 0:
        gc.collect()
    return seed, _failure_text(outcome), outcome.seconds, outcome.counts


def _failure_text(outcome: Outcome) -> str:
    return f"{type(outcome.failure).__name__}: {outcome.failure}" if outcome.failure is not None else ""


def _hunt_bug(job: tuple[int, int, int]) -> tuple[int, int, str]:
    """Plant the bug of that number; returns the number, the seeds until it was found (0: never), and the failure."""
    number, first, most = job
    with planted(BUGS[number]):
        for seed in range(first, first + most):
            if told := _one(seed)[1]:
                return number, seed - first + 1, told
    return number, 0, ""


def hunt(first: int, most: int, processes: int, only: str) -> bool:
    """Print the seeds that each planted bug took; returns whether all were found."""
    jobs = [(number, first, most) for number, bug in enumerate(BUGS) if only in bug.name]
    missed = False
    with multiprocessing.get_context("spawn").Pool(processes) as pool:
        for number, seeds, told in pool.imap_unordered(_hunt_bug, jobs):
            print(f"{BUGS[number].name}: {f'{seeds} seeds: {told[:200]}' if seeds else 'NOT FOUND'}", flush=True)
            missed |= not seeds
    return not missed


def _outcomes(seeds: range, processes: int) -> Iterator[tuple[int, str, float, dict[str, int]]]:
    if processes == 1:
        yield from map(_one, seeds)
        return
    with multiprocessing.get_context("spawn").Pool(processes) as pool:
        yield from pool.imap_unordered(_one, seeds, chunksize=4)


def main() -> int:
    """Run seeds; the exit status is 1 if one failed."""
    parser = argparse.ArgumentParser(prog="simulate", description="Live through simulated histories of a cluster.")
    parser.add_argument("--seeds", type=int, default=1000, help="how many")
    parser.add_argument("--first", type=int, default=1, help="the first of them")
    parser.add_argument("--seed", type=int, help="this one only, with its trace")
    parser.add_argument("--hunt", nargs="?", const="", metavar="NAME", help="plant bugs, and count seeds to find each")
    parser.add_argument("--processes", type=int, default=multiprocessing.cpu_count())
    parser.add_argument("--seconds", type=float, help="begin no further seeds after this time")
    parser.add_argument("--failures", type=int, default=5, help="stop after this number of failures")
    options = parser.parse_args()
    if options.seed is not None:
        outcome = run_seed(options.seed, verbose=print)
        if outcome.failure is not None:
            traceback.print_exception(outcome.failure)
        print(f"seed {outcome.seed}: trace {outcome.trace_hash}, {outcome.seconds:.0f} s simulated, {outcome.counts}")
        return outcome.failure is not None
    if options.hunt is not None:
        return not hunt(options.first, options.seeds, options.processes, options.hunt)
    started, simulated, failures, done = time.monotonic(), 0.0, 0, 0
    totals: dict[str, int] = {}
    seeds = range(options.first, options.first + options.seeds)
    for seed, failure, seconds, counts in _outcomes(seeds, options.processes):
        done += 1
        simulated += seconds
        for name, count in counts.items():
            totals[name] = totals.get(name, 0) + count
        if failure:
            failures += 1
            print(f"seed {seed} FAILED: {failure[:1000]}\n  replay: make simulate SEED={seed}", flush=True)
            if failures == options.failures:
                break
        if options.seconds is not None and time.monotonic() - started >= options.seconds:
            break
    took = time.monotonic() - started
    print(
        f"{done} seeds in {took:.1f} s: {done / took:.1f} seeds/s; {simulated / 3600:.1f} h simulated; "
        + ", ".join(f"{count} {name}" for name, count in totals.items())
        + f"; {failures} failed"
    )
    return failures > 0
