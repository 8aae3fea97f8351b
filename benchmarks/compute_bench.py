"""`make bench-compute`: measures transactions and procedures beside SQLite, recovery, and state beyond memory.

    python benchmarks/compute_bench.py [--only WORD] [--votes N] [--rounds N] [--folder FOLDER]

Both sides are as durable as each other: a reply leaves when its transaction is synced to a file. SQLite runs in WAL
mode with synchronous=FULL, in one process. Procedures are those of `examples/voter`: three of them, a window of a
hundred votes that slides by one, and reads of the board beside; Tussock logs its input in a folder, with the default
`group_commit`. Transactions add one to a row of a million. Every sample is a new process, which compares what it did
with what it should have: each reply, the board and the votes with `examples/voter/checker.py`. In each round both sides
of a figure run one directly after the other, and the first one by turns; the ratio is taken within the round, and the
median over the rounds is reported. All samples go to `benchmarks/results/` as JSON.

It does not show: many connections (SQLite writes one transaction at a time), a bucket on S3, or clients in other
processes.
"""

import argparse
import datetime
import json
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any, NamedTuple

import report
from run import say

HERE = Path(__file__).parent
RESULTS = HERE / "results"
VOTES = 20_000
ROUNDS = 5

Sample = dict[str, Any]


class Figure(NamedTuple):
    """One line of the table: two cases of `cases`_cases.py, and what is wanted of their ratio."""

    title: str
    cases: str
    ours: str
    theirs: str
    times: float = 1
    """Measured with that many times the number of votes."""
    wanted: float | None = None


FIGURES = (
    Figure("a vote a batch, 64 clients", "voter", "tussock_votes", "sqlite_votes", wanted=3),
    Figure("a vote a batch, one client", "voter", "tussock_votes_alone", "sqlite_votes", 0.1),
    Figure("1,000 votes a batch on columns, 64 clients", "voter", "tussock_columns", "sqlite_batches", 10, 3),
    Figure("1,000 votes a batch on columns, one client", "voter", "tussock_columns_alone", "sqlite_batches", 10),
    Figure("1,000 votes a batch by rows, 64 clients", "voter", "tussock_rows", "sqlite_batches", 10),
    Figure("a transaction on a row, one thread", "transaction", "tussock_one", "sqlite_one", 0.1, 0.5),
    Figure("a transaction on a row, 16 threads", "transaction", "tussock_sixteen", "sqlite_one", 0.1, 3),
)


class Alone(NamedTuple):
    """One line of the second table: a case that has no other side."""

    title: str
    case: str
    rows: int


ALONE = (
    Alone("recovery of 100,000 batches of one row, the most that a log has", "recovery", 100_000),
    Alone("recovery after a million batches, a commit each second", "recovery_after", 1_000_000),
    Alone("20 M keys, a cache of 256 MiB: 100,000 batches of one row", "large_state", 20_000_000),
)


def sample(cases: str, case: str, scratch: Path, rows: int) -> Sample:
    """Run one case in a new process, in an empty folder."""
    folder = Path(tempfile.mkdtemp(prefix=f"{case}-", dir=scratch))
    command = [sys.executable, str(HERE / "measure.py"), cases, case, str(folder), str(rows)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    shutil.rmtree(folder)
    if done.returncode:
        raise SystemExit(f"{case} failed with code {done.returncode}:\n{done.stderr}")
    answer: Sample = json.loads(done.stdout.splitlines()[-1])
    return answer


def measure(figure: Figure, scratch: Path, rows: int, rounds: int) -> list[dict[str, Sample]]:
    """Per round the sample of each side."""
    found = []
    for number in range(rounds):
        say(f"{figure.title}, {rows:,}, round {number + 1}")
        sides = [figure.ours, figure.theirs]
        order = sides if number % 2 == 0 else sides[::-1]
        found.append({case: sample(figure.cases, case, scratch, rows) for case in order})
    return found


def line(figure: Figure, rounds: list[dict[str, Sample]]) -> str:
    """The figure as a line of Markdown."""
    ratios = [one[figure.ours]["rate"] / one[figure.theirs]["rate"] for one in rounds]
    ours, theirs = (statistics.median(one[case]["rate"] for one in rounds) for case in (figure.ours, figure.theirs))
    ratio = statistics.median(ratios)
    wanted = "" if figure.wanted is None else f"{figure.wanted:g}x {'reached' if ratio >= figure.wanted else 'MISSED'}"
    spread = f"{min(ratios):.2f} to {max(ratios):.2f}"
    return f"| {figure.title} | {ours:,.0f} | {theirs:,.0f} | **{ratio:.2f}x** | {spread} | {wanted} |"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", default="", help="lines whose titles have this word")
    parser.add_argument("--votes", type=int, default=VOTES, help="of the figures with a vote a batch")
    parser.add_argument("--rounds", type=int, default=ROUNDS)
    parser.add_argument("--folder", type=Path, help="a place on the disk to measure; otherwise that of temporary files")
    options = parser.parse_args()
    load = os.getloadavg()[0]
    share = min(options.votes / VOTES, 1)
    with tempfile.TemporaryDirectory(prefix="tussock-compute-", dir=options.folder) as scratch:
        results = {
            figure: measure(figure, Path(scratch), int(options.votes * figure.times), options.rounds)
            for figure in FIGURES
            if options.only in figure.title
        }
        alone = {}
        for one in ALONE:
            if options.only in one.title:
                say(one.title)
                alone[one] = sample("recovery", one.case, Path(scratch), int(one.rows * share))
    now = datetime.datetime.now(datetime.UTC)
    RESULTS.mkdir(exist_ok=True)
    target = RESULTS / f"compute-{now:%Y%m%d-%H%M%S}.json"
    kept = {
        "at": now.isoformat(),
        "machine": report.machine(),
        "load": [load, os.getloadavg()[0]],
        "votes": options.votes,
        "rounds": {figure.title: rounds for figure, rounds in results.items()},
        "alone": {one.title: found for one, found in alone.items()},
    }
    target.write_text(json.dumps(kept, indent=1))
    print(f"\nLoad average {load:.1f} at the start, {kept['load'][1]:.1f} at the end; samples in {target}\n")
    print("| figure | Tussock, a second | SQLite, a second | ratio | spread | wanted |")
    print("| --- | ---: | ---: | ---: | ---: | ---: |")
    for figure, rounds in results.items():
        print(line(figure, rounds))
    print("\n| alone | |\n| --- | --- |")
    for one, found in alone.items():
        print(f"| {one.title} | " + ", ".join(f"{name} {value:,}" for name, value in found.items()) + " |")


if __name__ == "__main__":
    main()
