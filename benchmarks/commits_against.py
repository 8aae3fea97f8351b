"""Commits of 16 writers with this code and with that of another tree, in turn: prints a table and how they compare.

    git worktree add /tmp/before main
    python benchmarks/commits_against.py /tmp/before [--rounds N] [--folder FOLDER]

The bucket is a folder. Each sample is a new platform in new processes (`commits_in_folder` of `meta_cases.py`, of this
tree, on either code); a ratio is that of the two samples of a round, so what else the machine does concerns both.
"""

import argparse
import json
import os
import shutil
import statistics
import subprocess
import sys
from pathlib import Path
from typing import Any

import report

HERE = Path(__file__).resolve().parent
ROOMS = ("statestore", "meta", "compactor", "compute", "cli", "operator")
ROUNDS = 5

Sample = dict[str, Any]


def measure(tree: Path, folder: Path) -> Sample:
    """One sample of the code in `tree`."""
    shutil.rmtree(folder, ignore_errors=True)
    path = os.pathsep.join(str(tree / room) for room in ROOMS)
    command = [sys.executable, str(HERE / "meta_cases.py"), "commits_in_folder", str(folder)]
    done = subprocess.run(command, env={**os.environ, "PYTHONPATH": path}, stdout=subprocess.PIPE, check=False)
    shutil.rmtree(folder, ignore_errors=True)
    if done.returncode:
        raise SystemExit(f"the sample of {tree} failed with code {done.returncode}")
    sample: Sample = json.loads(done.stdout)
    sample["epochs_an_entry"] = sample["epochs"] / max(sample["log_entries"], 1)
    sample |= {f"{who}_ms": spent for who, spent in sample.pop("cpu_ms_per_epoch").items()}
    return sample


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("other", type=Path, help="the tree with the code to compare with")
    parser.add_argument("--rounds", type=int, default=ROUNDS)
    parser.add_argument("--folder", type=Path, default=HERE / "results" / "commits-work", help="on a disk")
    options = parser.parse_args()
    trees = {"before": options.other.resolve(), "now": HERE.parent}
    samples: dict[str, list[Sample]] = {name: [] for name in trees}
    for number in range(options.rounds):
        for name in list(trees) if number % 2 == 0 else list(trees)[::-1]:
            load = os.getloadavg()[0]
            samples[name].append({**measure(trees[name], options.folder.resolve()), "load": load})
            print(f"round {number + 1}, {name}: {samples[name][-1]}", file=sys.stderr, flush=True)
    rows = []
    for title, key in (
        ("epochs a second", "rate"),
        ("latency, p50, ms", "p50_ms"),
        ("latency, p99, ms", "p99_ms"),
        ("epochs in a log entry", "epochs_an_entry"),
        ("processor time of the service, ms an epoch", "meta_ms"),
        ("processor time of the writers, ms an epoch", "writers_ms"),
        ("load average before", "load"),
    ):
        before, now = ([one[key] for one in samples[name]] for name in trees)
        ratios = [later / max(earlier, 1e-9) for earlier, later in zip(before, now, strict=True)]
        shown = [
            f"{statistics.median(values):.2f} ({min(values):.2f} to {max(values):.2f})" for values in (before, now)
        ]
        ratio = f"**{statistics.median(ratios):.2f}** ({min(ratios):.2f} to {max(ratios):.2f})"
        rows.append([title, *shown, "" if key == "load" else ratio])
    print("\n".join(report.markdown_table(["", "before", "now", "now / before"], rows, 1)))


if __name__ == "__main__":
    main()
