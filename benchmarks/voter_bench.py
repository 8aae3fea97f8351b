"""`make bench-voter`: measures the voter of `examples/voter` beside the same logic in SQLite; prints a table of ratios.

    python benchmarks/voter_bench.py [--votes N] [--batch-votes N] [--rounds N] [--folder FOLDER]

Both sides are as durable as each other: a reply leaves when its vote is synced to a file. SQLite runs in WAL mode with
synchronous=FULL, in one process; Tussock logs its input in a folder, with the default `group_commit`. Every sample is a
new process, which compares each reply, the board and the votes that count with `examples/voter/checker.py`. In each
round both sides of a figure run one directly after the other, and the first one by turns; the ratio is taken within the
round, and the median over the rounds is reported. All samples go to `benchmarks/results/` as JSON.

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
BATCH_VOTES = 200_000
ROUNDS = 5

Sample = dict[str, Any]


class Figure(NamedTuple):
    """One line of the table: two cases of `voter_cases.py`, and what is wanted of their ratio."""

    title: str
    ours: str
    theirs: str
    in_batches: bool
    wanted: float | None = None
    share: int = 1
    """Measured with one vote in that many of the others."""


FIGURES = (
    Figure("a vote a batch, 64 clients", "tussock_votes", "sqlite_votes", False, 3),
    Figure("a vote a batch, one client", "tussock_votes_alone", "sqlite_votes", False, share=10),
    Figure("1,000 votes a batch on columns, 64 clients", "tussock_columns", "sqlite_batches", True, 3),
    Figure("1,000 votes a batch on columns, one client", "tussock_columns_alone", "sqlite_batches", True),
    Figure("1,000 votes a batch by rows, 64 clients", "tussock_rows", "sqlite_batches", True),
)


def sample(case: str, scratch: Path, votes: int) -> Sample:
    """Run one case in a new process, in an empty folder."""
    folder = Path(tempfile.mkdtemp(prefix=f"{case}-", dir=scratch))
    command = [sys.executable, str(HERE / "measure.py"), "voter", case, str(folder), str(votes)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    shutil.rmtree(folder)
    if done.returncode:
        raise SystemExit(f"{case} failed with code {done.returncode}:\n{done.stderr}")
    answer: Sample = json.loads(done.stdout.splitlines()[-1])
    return answer


def measure(figure: Figure, scratch: Path, votes: int, rounds: int) -> list[dict[str, Sample]]:
    """Per round the sample of each side."""
    found = []
    for number in range(rounds):
        say(f"{figure.title}, {votes:,} votes, round {number + 1}")
        sides = [figure.ours, figure.theirs]
        found.append({case: sample(case, scratch, votes) for case in (sides if number % 2 == 0 else sides[::-1])})
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
    parser.add_argument("--votes", type=int, default=VOTES, help="of the figures with a vote a batch")
    parser.add_argument("--batch-votes", type=int, help="of the figures with batches; ten times as many if not given")
    parser.add_argument("--rounds", type=int, default=ROUNDS)
    parser.add_argument("--folder", type=Path, help="a place on the disk to measure; otherwise that of temporary files")
    options = parser.parse_args()
    votes = (options.votes, options.batch_votes or options.votes * (BATCH_VOTES // VOTES))
    load = os.getloadavg()[0]
    with tempfile.TemporaryDirectory(prefix="tussock-voter-", dir=options.folder) as scratch:
        results = {
            figure: measure(figure, Path(scratch), votes[figure.in_batches] // figure.share, options.rounds)
            for figure in FIGURES
        }
    now = datetime.datetime.now(datetime.UTC)
    RESULTS.mkdir(exist_ok=True)
    target = RESULTS / f"voter-{now:%Y%m%d-%H%M%S}.json"
    kept = {
        "at": now.isoformat(),
        "machine": report.machine(),
        "load": [load, os.getloadavg()[0]],
        "votes": votes,
        "rounds": {figure.title: rounds for figure, rounds in results.items()},
    }
    target.write_text(json.dumps(kept, indent=1))
    print(f"\nLoad average {load:.1f} at the start, {kept['load'][1]:.1f} at the end; samples in {target}\n")
    print("| figure | Tussock, votes/s | SQLite, votes/s | ratio | spread | wanted |")
    print("| --- | ---: | ---: | ---: | ---: | ---: |")
    for figure, rounds in results.items():
        print(line(figure, rounds))


if __name__ == "__main__":
    main()
