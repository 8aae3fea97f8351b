"""A process whose threads ask for transfers between accounts, and which is killed: `killed_lives.py` runs it.

`python transfer_process.py URL SEED COUNT JOURNAL WORKERS`: of `COUNT` requests it sends those that have no line in the
journal yet, under the ids that they always have, and writes a line for each reply. A few that have one it sends again,
and writes what came then, too. It has at most `WORKERS` workers.
"""

import os
import random
import sys
import threading
from collections import deque
from pathlib import Path
from typing import Any, NamedTuple

from support.functions.accounts import accounts
from tussock.compute import functions as fn
from tussock.statestore import connect

__all__ = [
    "ACCOUNTS",
    "BALANCE",
    "Transfer",
    "appended",
    "drawn_options",
    "input_of",
    "journaled",
    "said",
    "send",
    "transfers",
    "whole_lines",
]

ACCOUNTS, BALANCE = 30, 20
THREADS, OUTSTANDING = 4, 40
AGAIN = 30
"""Requests that have a reply, and are sent again by each process."""


class Transfer(NamedTuple):
    """One request."""

    debtor: str
    creditor: str
    amount: int


def transfers(seed: int, count: int) -> list[Transfer]:
    """Of all lives; some ask for more than there is."""
    draw = random.Random(seed)
    pairs = (draw.sample(range(ACCOUNTS), 2) for _ in range(count))
    return [Transfer(f"a{debtor}", f"a{creditor}", draw.randint(1, 15)) for debtor, creditor in pairs]


def input_of(url: str, seed: int) -> str | None:
    """With every other seed the input log is in another place than the store's."""
    return f"{url}-input" if seed % 2 else None


def send(runtime: fn.Runtime, number: int, one: Transfer) -> Any:
    """The future of a request, under its id."""
    return runtime.send("account", one.debtor, "transfer", one.creditor, one.amount, request_id=f"transfer {number}")


def said(future: Any) -> str:
    """The reply as the journal has it."""
    error = future.exception(120)
    if error is None:
        return str(future.result())
    if isinstance(error, fn.TransactionAborted):
        return str(error)
    raise error


def whole_lines(journal: Path) -> list[str]:
    """The lines of a journal; none of one that a process was killed in."""
    lines = journal.read_text().splitlines(keepends=True) if journal.exists() else []
    return [line.rstrip("\n") for line in lines if line.endswith("\n")]


def appended(journal: Path) -> int:
    """The descriptor of a journal that is to be written on: one call a line, so that what is killed has all or none."""
    return os.open(journal, os.O_WRONLY | os.O_APPEND | os.O_CREAT)


def drawn_options(draw: random.Random, workers_max: int) -> dict[str, Any]:
    """The options of one life: epochs and checkpoints of other sizes, and at most `workers_max` workers."""
    return {
        "checkpoint": draw.choice((0.02, 0.2, 3600.0)),
        "epoch_max": draw.choice((20, 1000)),
        "workers": draw.randint(0, workers_max) if workers_max else 0,
    }


def journaled(journal: Path) -> list[tuple[int, str]]:
    """Numbers of requests with their replies, in the order in which they were written."""
    return [(int(number), reply) for number, reply in (line.split("|") for line in whole_lines(journal))]


def _send_all(runtime: fn.Runtime, requests: list[tuple[int, Transfer]], file: int) -> None:
    futures: deque[tuple[int, Any]] = deque()
    for number, one in [*requests, *[(-1, None)] * OUTSTANDING]:
        if len(futures) >= OUTSTANDING or (one is None and futures):
            at, future = futures.popleft()
            os.write(file, f"{at}|{said(future)}\n".encode())
        if one is not None:
            futures.append((number, send(runtime, number, one)))


def _main(url: str, seed: int, count: int, journal: Path, workers_max: int) -> None:
    requests = list(enumerate(transfers(seed, count)))
    known = dict(journaled(journal))
    draw = random.Random(len(known))
    again = draw.sample(sorted(known), min(AGAIN, len(known)))
    left = [one for one in requests if one[0] not in known]
    file = appended(journal)
    failures: list[BaseException] = []

    def work(part: list[tuple[int, Transfer]]) -> None:
        try:
            _send_all(runtime, part, file)
        except BaseException as error:
            failures.append(error)

    options = drawn_options(draw, workers_max)
    with connect(url, compaction=False) as store:
        runtime = fn.Runtime(store, "bank", [accounts()], input=input_of(url, seed), **options)
        with runtime:
            parts = [[requests[number] for number in again], *(left[at::THREADS] for at in range(THREADS))]
            threads = [threading.Thread(target=work, args=(part,)) for part in parts]
            for thread in threads:
                thread.start()
            for thread in threads:
                thread.join()
    if failures:
        raise failures[0]


if __name__ == "__main__":
    _main(sys.argv[1], int(sys.argv[2]), int(sys.argv[3]), Path(sys.argv[4]), int(sys.argv[5]))
