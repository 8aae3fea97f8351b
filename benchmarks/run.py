"""`make bench`: measures Tussock beside RocksDB, SlateDB and Parquet, and prints a table of ratios.

    python benchmarks/run.py [--rows N] [--rounds N] [--folder FOLDER] [--no-spark] [--publish]

Every sample is a new process. In each round every figure is measured with each engine, one directly after the
other; a ratio is taken within a round and the median over the rounds is reported: what else the machine is doing then
slows both sides alike. All numbers go to `benchmarks/results/` as JSON.
"""

import argparse
import datetime
import json
import os
import shutil
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import report
from figures import (
    FIGURES,
    MEMORY_CASES,
    MEMORY_ROWS_SHARES,
    MIX_STORE,
    PREPARED,
    ROWS_FACTOR,
    US,
    Figure,
    Ratio,
    ratios,
)
from quiet import Watch, refuse_if_busy
from timing import VERSIONS

HERE = Path(__file__).parent
RESULTS = HERE / "results"
SPARK = HERE / "spark_write.py"
SPARK_WANTED = 0.8
VERSIONS_WANTED = 0.9
ROWS = 1_000_000
ROUNDS = 5
MEMORY_FACTOR = 10
"""Memory is measured with this multiple of the rows of the other figures."""

IMMUTABLE = {".sst", ".data", ".meta"}


def say(text: str) -> None:
    """Progress, with the time."""
    print(f"{datetime.datetime.now(datetime.UTC):%H:%M:%S} {text}", flush=True)


def sample(engine: str, case: str, folder: Path, rows: int) -> dict[str, Any]:
    """Run one case in a new process."""
    command = [sys.executable, str(HERE / "measure.py"), engine, case, str(folder), str(rows)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        raise SystemExit(f"{engine} {case} failed with code {done.returncode}:\n{done.stderr}")
    answer: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return answer


def clone(source: Path, target: Path) -> None:
    """Copy a store; files that no engine changes once they are written become links, which costs no disk traffic."""

    def copy(old: str, new: str) -> None:
        if Path(old).suffix in IMMUTABLE:
            os.link(old, new)
        else:
            shutil.copy2(old, new)

    shutil.copytree(source, target, copy_function=copy)


def prepare(folder: Path, rows: int) -> None:
    """Make the stores that the figures read."""
    for case, engines in PREPARED.items():
        for engine in engines:
            say(f"preparing: {case} of {engine}")
            target = folder / case / engine
            target.mkdir(parents=True)
            sample(engine, case, target, rows * ROWS_FACTOR.get(case, 1))


def measure(figure: Figure, engine: str, folder: Path, rows: int) -> dict[str, Any]:
    """One sample of one figure, on the folder that it is due."""
    rows *= ROWS_FACTOR.get(figure.store or "", 1)
    prepared = folder / figure.store / engine if figure.store else None
    if prepared is not None and not figure.changes_store:
        return sample(engine, figure.case, prepared, rows)
    scratch = folder / "scratch"
    if prepared is not None:
        clone(prepared, scratch)
    else:
        scratch.mkdir()
    try:
        return sample(engine, figure.case, scratch, rows)
    finally:
        shutil.rmtree(scratch)


def measure_memory(folder: Path, rows: int) -> list[dict[str, Any]]:
    """Peak memory of reads and compaction, with some rows and with four times as many."""
    answers = []
    for share in MEMORY_ROWS_SHARES:
        size = rows // share
        say(f"memory: {size:,} rows")
        store = folder / "memory"
        store.mkdir()
        sample(US, "prepare_memory", store, size)
        for case in MEMORY_CASES:
            found = sample(US, case, store, size)
            answers.append({"case": case, "rows": size, **found})
            say(f"  {MEMORY_CASES[case]}: peak {found['peak_bytes'] / (1 << 20):,.0f} MiB")
        shutil.rmtree(store)
    return answers


def measure_mix(folder: Path, rows: int) -> dict[str, Any]:
    """Each kind of read alone, and among the others on one open store."""
    found = sample(US, "mixed_reads", folder / MIX_STORE / US, rows)
    worst = max(found["mixed"][kind] / alone for kind, alone in found["alone"].items())
    say(f"reads in turn on one store: at most {worst:.2f} times as long as alone")
    return found


def measure_versions(folder: Path, rows: int) -> dict[str, Any]:
    """Scans of the present with many versions a key retained, and with none."""
    scratch = folder / "scratch"
    scratch.mkdir()
    try:
        found = sample(US, "versions_scan", scratch, rows)
    finally:
        shutil.rmtree(scratch)
    rates = found["rates"]
    say(
        f"scan of the present: {rates['retained'] / rates['none']:.2f}x retention=0; of the oldest epoch: "
        f"{rates['oldest'] / rates['none']:.3f}x"
    )
    return found


def versions_ratio(rounds: list[dict[str, Any]]) -> Ratio:
    """These rounds as a line of the table."""
    rates = [{US: {"rate": one["rates"]["retained"]}, "retention=0": {"rate": one["rates"]["none"]}} for one in rounds]
    title = f"scan of the present, {VERSIONS} versions a key retained"
    wanted = {"retention=0": VERSIONS_WANTED}
    return ratios(Figure("versions", title, "rows/s", engines=(US, "retention=0"), wanted=wanted), rates)[0]


def measure_spark() -> dict[str, Any] | None:
    """What the Spark job prints: `rows`, and the `seconds` of each run with each format; `None` if it failed."""
    say("Spark: batch write beside Parquet")
    done = subprocess.run([sys.executable, str(SPARK)], stdout=subprocess.PIPE, text=True, check=False)
    if done.returncode:
        say(f"  failed with code {done.returncode}; left out")
        return None
    answer: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return answer


def spark_ratio(found: dict[str, Any]) -> Ratio:
    """The Spark job's runs as a line of the table: as rates, paired by run, like every other figure."""
    rates = [
        {US: {"rate": found["rows"] / ours}, "parquet": {"rate": found["rows"] / sorted_parquet}}
        for ours, sorted_parquet in zip(found["seconds"]["tussock"], found["seconds"]["parquet_sorted"], strict=True)
    ]
    title = f"Spark batch write of {found['rows'] / 1e6:g} M rows"
    figure = Figure("spark", title, "/s", engines=(US, "parquet"), wanted={"parquet": SPARK_WANTED})
    return ratios(figure, rates)[0]


def filesystem(folder: Path) -> str:
    """The type of the file system that holds `folder`; a benchmark of durable writes on tmpfs would be a lie."""
    mounts = [line.split() for line in Path("/proc/mounts").read_text().splitlines()]
    kind = max((len(path), kind) for _, path, kind, *_ in mounts if folder.is_relative_to(path))[1]
    if kind == "tmpfs":
        raise SystemExit(f"{folder} is on tmpfs, where syncing costs nothing; give a folder on a disk: --folder")
    return kind


def run(options: argparse.Namespace) -> dict[str, Any]:
    """All measurements, as they are stored."""
    folder: Path = options.folder
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    kind = filesystem(folder)
    started, load = time.monotonic(), os.getloadavg()[0]
    samples: dict[str, list[dict[str, Any]]] = {figure.case: [] for figure in FIGURES}
    try:
        prepare(folder, options.rows)
        for number in range(1, options.rounds + 1):
            for figure in FIGURES:
                taken = {engine: measure(figure, engine, folder, options.rows) for engine in figure.engines}
                samples[figure.case].append(taken)
                told = ", ".join(f"{one.ratio:.2f}x {one.peer}" for one in ratios(figure, [taken]))
                say(f"round {number} of {options.rounds}: {figure.title}: {told}")
        versions = [measure_versions(folder, options.rows) for _ in range(options.rounds)]
        mix = [measure_mix(folder, options.rows) for _ in range(options.rounds)]
        memory = measure_memory(folder, MEMORY_FACTOR * options.rows)
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    spark = None if options.no_spark else measure_spark()
    say(f"done after {(time.monotonic() - started) / 60:.0f} minutes")
    return {
        "date": f"{datetime.datetime.now(datetime.UTC):%Y-%m-%d}",
        "command": "make bench",
        "rows": options.rows,
        "rounds": options.rounds,
        "machine": report.machine(),
        "filesystem": kind,
        "load": [load, os.getloadavg()[0]],
        "memory_settings": 64 << 20,
        "memory": memory,
        "mix": mix,
        "versions": versions,
        "spark": spark,
        "samples": samples,
    }


def all_ratios(results: dict[str, Any]) -> list[Ratio]:
    """The lines of the table."""
    found = [one for figure in FIGURES for one in ratios(figure, results["samples"][figure.case])]
    found.append(versions_ratio(results["versions"]))
    return found if results["spark"] is None else [*found, spark_ratio(results["spark"])]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", type=int, default=ROWS, help="rows of a case; fewer for a quick look")
    parser.add_argument("--rounds", type=int, default=ROUNDS)
    parser.add_argument("--folder", type=Path, default=RESULTS / "work", help="for the data: on a disk, about 8 GB")
    parser.add_argument("--no-spark", action="store_true", help="leave out the Spark job")
    parser.add_argument("--publish", action="store_true", help="rewrite the tables in benchmarks/README.md")
    options = parser.parse_args()
    options.folder = options.folder.resolve()
    if options.publish:
        refuse_if_busy()
    watch = Watch()
    results = run(options)
    RESULTS.mkdir(exist_ok=True)
    file = RESULTS / f"{datetime.datetime.now(datetime.UTC):%Y%m%dT%H%M%S}.json"
    file.write_text(json.dumps(results, indent=1))
    lines = report.markdown(results, all_ratios(results))
    print("\n" + "\n".join(lines) + f"\n\nAll samples: {file}")
    if options.publish:
        if complaint := watch.complaint():
            raise SystemExit(complaint)
        report.publish(lines)


if __name__ == "__main__":
    main()
