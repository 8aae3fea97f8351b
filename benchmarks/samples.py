"""What the benchmarks of procedures and of functions share: samples in new processes, pairs, tables, and their record.

Of a pair each round measures both sides directly after the other, and the first one by turns; the ratio is taken
within the round, and the median over the rounds is reported.
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
from collections.abc import Iterable
from pathlib import Path
from typing import Any, NamedTuple

import report
from run import say

__all__ = ["Figure", "Sample", "keep", "line", "measure", "options_of", "print_table", "sample"]

HERE = Path(__file__).parent
RESULTS = HERE / "results"
ROUNDS = 5

Sample = dict[str, Any]


class Figure(NamedTuple):
    """One line of a table: two cases of `cases`_cases.py, and what is wanted of their ratio."""

    title: str
    cases: str
    ours: str
    theirs: str
    times: float = 1
    """Measured with that many times the number that a user gives."""
    wanted: float | None = None


class Alone(NamedTuple):
    """A case that has no other side."""

    title: str
    case: str
    rows: int


def options_of(description: str | None, unit: str, count: int, what: str) -> argparse.Namespace:
    """The command line; `--UNIT` is how many there are of `what`."""
    parser = argparse.ArgumentParser(description=description, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", default="", help="lines whose titles have this word")
    parser.add_argument(f"--{unit}", type=int, default=count, help=what)
    parser.add_argument("--rounds", type=int, default=ROUNDS)
    parser.add_argument("--folder", type=Path, help="a place on the disk to measure; otherwise that of temporary files")
    return parser.parse_args()


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


def print_table(head: str, lines: Iterable[str]) -> None:
    """A table of Markdown; of `head`, `a | b | c`, the columns after the first one are numbers."""
    marks = ["---", *["---:"] * head.count("|")]
    print("\n".join([f"\n| {head} |", f"| {' | '.join(marks)} |", *lines]))


def keep(name: str, load: float, **found: Any) -> None:
    """Write all samples, as JSON, beside those of other runs; `load` is that of the machine before."""
    now = datetime.datetime.now(datetime.UTC)
    RESULTS.mkdir(exist_ok=True)
    target = RESULTS / f"{name}-{now:%Y%m%d-%H%M%S}.json"
    after = os.getloadavg()[0]
    machine = report.machine()
    kept = {"at": now.isoformat(), "machine": machine, "load": [load, after], **found}
    target.write_text(json.dumps(kept, indent=1))
    print(
        f"\nLoad average {load:.1f} at the start, {after:.1f} at the end; a million steps of Python take "
        f"{machine['pace_ms']:.0f} ms here; samples in {target}"
    )
