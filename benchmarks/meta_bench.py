"""`make bench-meta`: measures the meta service on real MinIO with real processes, and prints a table.

    python benchmarks/meta_bench.py [--rounds N] [--only CASE ...] [--publish]

Every sample is a new process that starts a new platform (`meta_cases.py`). Ratios are taken within a
sample, where the two sides took turns; the median over the rounds is reported. All numbers go to
`benchmarks/results/` as JSON.
"""

import argparse
import datetime
import json
import os
import shutil
import statistics
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import report
from quiet import refuse_if_busy
from run import filesystem, say

HERE = Path(__file__).parent
RESULTS = HERE / "results"
BEGIN = "<!-- measured meta: begin (written by meta_bench.py --publish) -->"
END = "<!-- measured meta: end -->"
ROUNDS = 5

Sample = dict[str, Any]


@dataclass(frozen=True)
class Line:
    """One line of the table: a number out of a case's samples, and what is wanted of it."""

    case: str
    title: str
    unit: str
    of: Callable[[Sample], float]
    at_least: float | None = None
    at_most: float | None = None

    def wanted(self, value: float) -> str:
        """What is wanted, and whether it is reached; a line without is there to be honest."""
        if self.at_least is not None:
            return f"at least {self.at_least:g} {'reached' if value >= self.at_least else 'MISSED'}"
        if self.at_most is not None:
            return f"at most {self.at_most:g} {'reached' if value <= self.at_most else 'MISSED'}"
        return ""


LINES = (
    Line("commits", "epochs committed, 16 writers, no compactor", "/s", lambda one: one["rate"], at_least=500),
    Line("commits", "their latency, p50", "ms", lambda one: one["p50_ms"]),
    Line("commits", "their latency, p99", "ms", lambda one: one["p99_ms"], at_most=100),
    Line("commits", "epochs in a log entry", "", lambda one: one["epochs"] / max(one["log_entries"], 1)),
    Line("commits", "processor time for an epoch: MinIO", "ms", lambda one: one["cpu_ms_per_epoch"]["minio"]),
    Line("commits", "processor time for an epoch: meta service", "ms", lambda one: one["cpu_ms_per_epoch"]["meta"]),
    Line("commits", "processor time for an epoch: writers", "ms", lambda one: one["cpu_ms_per_epoch"]["writers"]),
    Line("commits_compacted", "epochs committed, 16 writers, one compactor beside them", "/s", lambda one: one["rate"]),
    Line("commits_compacted", "their latency, p99", "ms", lambda one: one["p99_ms"]),
    Line("latency", "one writer: commit, p50", "ms", lambda one: one["commit_p50_ms"]),
    Line("latency", "one PUT of the same bytes, p50", "ms", lambda one: one["put_p50_ms"]),
    Line("latency", "commit against PUT, p50", "x", lambda one: one["p50_ratio"], at_most=2.5),
    Line("latency", "commit against PUT, p99", "x", lambda one: one["p99_ratio"], at_most=5),
    Line("push", "delta at 100 clients, after its writer's answer, p50", "ms", lambda one: one["after_answer_p50_ms"]),
    Line(
        "push",
        "delta at 100 clients, after its writer's answer, p99",
        "ms",
        lambda one: one["after_answer_p99_ms"],
        at_most=50,
    ),
    Line("push", "the same, since the commit began, p99", "ms", lambda one: one["after_begin_p99_ms"]),
    Line("failover", "leader killed: longest time without a commit", "s", lambda one: one["seconds"], at_most=5),
    Line(
        "version",
        "version of 100,000 SSTs: a commit validated and applied",
        "ms",
        lambda one: one["commit_ms"],
        at_most=1,
    ),
    Line(
        "version",
        "version of 100,000 SSTs: a compaction's report validated and applied",
        "ms",
        lambda one: one["report_ms"],
        at_most=1,
    ),
    Line("version", "version of 100,000 SSTs: snapshot loaded", "s", lambda one: one["load_s"], at_most=1),
    Line("compaction", "compaction: two slots against one", "x", lambda one: one["ratio"], at_least=1.6),
)
CASES = tuple(dict.fromkeys(line.case for line in LINES))


def measure(case: str, folder: Path) -> Sample:
    """One sample of one case, in a new process."""
    script = ["meta_version.py"] if case == "version" else ["meta_cases.py", case, str(folder)]
    done = subprocess.run([sys.executable, str(HERE / script[0]), *script[1:]], stdout=subprocess.PIPE, check=False)
    shutil.rmtree(folder, ignore_errors=True)
    if done.returncode:
        raise SystemExit(f"{case} failed with code {done.returncode}")
    answer: Sample = json.loads(done.stdout)
    if case == "version":
        times = {f"{kind}_ms": answer[kind]["p50_ms"] for kind in ("commit", "report")}
        return {**times, "load_s": answer["snapshot_decode_ms"] / 1000}
    return answer


def table(samples: dict[str, list[Sample]]) -> list[str]:
    """The lines of all cases that were measured, as Markdown."""
    rows = []
    for line in LINES:
        values = [line.of(one) for one in samples.get(line.case, [])]
        if values:
            middle = statistics.median(values)
            spread = f"{number(min(values))} to {number(max(values))}"
            rows.append([line.title, f"**{number(middle)}** {line.unit}".strip(), spread, line.wanted(middle)])
    return report.markdown_table(["figure", "median", "spread", "wanted"], rows, 1)


def number(value: float) -> str:
    """Three digits or so."""
    return f"{value:,.0f}" if abs(value) >= 100 else f"{value:.1f}" if abs(value) >= 10 else f"{value:.2f}"


def run(options: argparse.Namespace) -> dict[str, Any]:
    """All samples, as they are stored."""
    folder: Path = options.folder
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    kind, started, load = filesystem(folder), time.monotonic(), os.getloadavg()[0]
    samples: dict[str, list[Sample]] = {case: [] for case in options.only}
    loads = []
    for number in range(1, options.rounds + 1):
        for case in options.only:
            loads.append(os.getloadavg()[0])
            samples[case].append(measure(case, folder / "sample"))
            told = ", ".join(
                f"{name} {value:.4g}" for name, value in samples[case][-1].items() if isinstance(value, float)
            )
            say(f"round {number} of {options.rounds}: {case}: {told}")
    shutil.rmtree(folder, ignore_errors=True)
    say(f"done after {(time.monotonic() - started) / 60:.0f} minutes")
    return {
        "date": f"{datetime.datetime.now(datetime.UTC):%Y-%m-%d}",
        "rounds": options.rounds,
        "machine": report.machine(),
        "filesystem": kind,
        "load": [load, os.getloadavg()[0]],
        "loads": loads,
        "samples": samples,
    }


def markdown(results: dict[str, Any]) -> list[str]:
    """All that was measured, ready for the page."""
    found = results["machine"]
    return [
        (
            f"Measured on {results['date']} with `make bench-meta`: {results['rounds']} rounds, load average "
            f"{min(results['loads']):.1f} to {max(results['loads']):.1f} before a sample; {found['cpu']}, "
            f"{found['cores']} cores, {found['memory_gib']} GiB, {results['filesystem']}. MinIO, meta service, "
            "compactors and clients share these cores."
        ),
        "",
        *table(results["samples"]),
    ]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=ROUNDS)
    parser.add_argument("--only", nargs="+", choices=CASES, default=list(CASES), help="these cases")
    parser.add_argument(
        "--folder", type=Path, default=RESULTS / "meta-work", help="for the data: on a disk, about 2 GB"
    )
    parser.add_argument("--publish", action="store_true", help="rewrite the table in benchmarks/README.md")
    options = parser.parse_args()
    options.folder = options.folder.resolve()
    if options.publish:
        refuse_if_busy()
    results = run(options)
    file = RESULTS / f"meta-{datetime.datetime.now(datetime.UTC):%Y%m%dT%H%M%S}.json"
    file.write_text(json.dumps(results, indent=1))
    lines = markdown(results)
    print("\n" + "\n".join(lines) + f"\n\nAll samples: {file}")
    if options.publish:
        report.publish(lines, BEGIN, END)


if __name__ == "__main__":
    main()
