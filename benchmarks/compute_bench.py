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

import os
import tempfile
from pathlib import Path

from run import say
from samples import Alone, Figure, keep, line, measure, options_of, print_table, sample

VOTES = 20_000

FIGURES = (
    Figure("a vote a batch, 64 clients", "voter", "tussock_votes", "sqlite_votes", wanted=3),
    Figure("a vote a batch, one client", "voter", "tussock_votes_alone", "sqlite_votes", 0.1),
    Figure("1,000 votes a batch on columns, 64 clients", "voter", "tussock_columns", "sqlite_batches", 10, 3),
    Figure("1,000 votes a batch on columns, one client", "voter", "tussock_columns_alone", "sqlite_batches", 10),
    Figure("1,000 votes a batch by rows, 64 clients", "voter", "tussock_rows", "sqlite_batches", 10),
    Figure("a transaction on a row, one thread", "transaction", "tussock_one", "sqlite_one", 0.1, 0.5),
    Figure("a transaction on a row, 16 threads", "transaction", "tussock_sixteen", "sqlite_one", 0.1, 3),
)


ALONE = (
    Alone("recovery of 100,000 batches of one row, the most that a log has", "recovery", 100_000),
    Alone("recovery after a million batches, a commit each second", "recovery_after", 1_000_000),
    Alone("20 M keys, a cache of 256 MiB: 100,000 batches of one row", "large_state", 20_000_000),
)


def main() -> None:
    options = options_of(__doc__, "votes", VOTES, "of the figures with a vote a batch")
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
    keep(
        "compute",
        load,
        votes=options.votes,
        rounds={figure.title: rounds for figure, rounds in results.items()},
        alone={one.title: found for one, found in alone.items()},
    )
    if results:
        head = "figure | Tussock, a second | SQLite, a second | ratio | spread | wanted"
        print_table(head, [line(figure, rounds) for figure, rounds in results.items()])
    if alone:
        figures = {one: ", ".join(f"{name} {value:,}" for name, value in found.items()) for one, found in alone.items()}
        print_table("alone | ", [f"| {one.title} | {shown} |" for one, shown in figures.items()])


if __name__ == "__main__":
    main()
