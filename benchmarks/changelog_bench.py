"""`make bench-changelog`: measures streams of changes beside Bytewax, the delay of subscribers, and small pushes.

    python benchmarks/changelog_bench.py [--only WORD] [--rows N] [--rounds N] [--folder FOLDER]

Upserts over a million keys come in transactions of 100,000 rows and are durable: here by the input log and a commit
each second, there by a snapshot to Bytewax's recovery store (SQLite, without a sync of each) after each transaction.
Every sample is a new process, which compares the state at the end with a dict. In each round both sides run one
directly after the other, and the first one by turns; the ratio is taken within the round, and the median over them is
reported. All samples go to `benchmarks/results/` as JSON.
"""

import os
import statistics
import tempfile
from pathlib import Path

from run import say
from samples import Alone, Figure, Sample, keep, line, measure, options_of, print_table, sample

ROWS = 1_000_000

FIGURES = (
    Figure("upserts, computed by batch", "changelog", "tussock_batch", "bytewax_map", wanted=10),
    Figure("upserts, computed by record", "changelog", "tussock_rows", "bytewax_map", wanted=1),
)


ALONE = (
    Alone("delay of a subscriber behind durability, 10,000 changes a second, seconds", "subscriber_delay", 20),
    Alone("a record a transaction, through two streams", "single_pushes", 50_000),
)


def main() -> None:
    options = options_of(__doc__, "rows", ROWS, "of each sample")
    load = os.getloadavg()[0]
    with tempfile.TemporaryDirectory(prefix="tussock-changelog-", dir=options.folder) as scratch:
        results = {
            figure: measure(figure, Path(scratch), options.rows, options.rounds)
            for figure in FIGURES
            if options.only in figure.title
        }
        alone: dict[Alone, list[Sample]] = {}
        for one in ALONE:
            if options.only in one.title:
                for number in range(options.rounds):
                    say(f"{one.title}, round {number + 1}")
                    alone.setdefault(one, []).append(sample("changelog", one.case, Path(scratch), one.rows))
    keep(
        "changelog",
        load,
        rows=options.rows,
        rounds={figure.title: rounds for figure, rounds in results.items()},
        alone={one.title: rounds for one, rounds in alone.items()},
    )
    if results:
        head = "figure | Tussock, rows a second | Bytewax, rows a second | ratio | spread | wanted"
        print_table(head, [line(figure, rounds) for figure, rounds in results.items()])
    if alone:
        print_table("alone | ", [f"| {one.title} | {_medians(rounds)} |" for one, rounds in alone.items()])


def _medians(rounds: list[Sample]) -> str:
    names = [name for name in rounds[0] if name != "peak_bytes"]
    return ", ".join(f"{name} {statistics.median(one[name] for one in rounds):,.1f}" for name in names)


if __name__ == "__main__":
    main()
