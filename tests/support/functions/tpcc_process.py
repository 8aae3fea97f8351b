"""A process that plays TPC-C and is killed: `killed_lives.py` runs it.

`python tpcc_process.py URL SEED COUNT JOURNAL WORKERS`: of `COUNT` requests it sends those that have no line in the
journal yet, under the ids that they always have, and writes a line for each reply. It has at most `WORKERS` workers.
"""

import json
import os
import random
import sys
from collections import deque
from pathlib import Path
from typing import Any

from functions.tpcc_checker import Tpcc
from functions.workload import Reply

from tussock.compute import functions as fn
from tussock.statestore import connect

__all__ = ["make_tpcc", "written"]

OUTSTANDING = 40
REPLY_SECONDS = 120


def make_tpcc() -> Tpcc:
    """Two warehouses, whose few customers and items meet often."""
    return Tpcc(2, customers=30, items=40)


def written(journal: Path) -> list[tuple[int, Reply]]:
    """Numbers of requests with their replies, in the order in which they were written."""
    whole = journal.read_text().splitlines(keepends=True) if journal.exists() else []
    lines = [json.loads(line) for line in whole if line.endswith("\n")]
    return [(number, Reply(value, error)) for number, value, error in lines]


def _reply(future: Any) -> list[Any]:
    error = future.exception(REPLY_SECONDS)
    if error is None:
        return [future.result(), None]
    if isinstance(error, fn.TransactionAborted):
        return [None, str(error)]
    raise error


def _main(url: str, seed: int, count: int, journal: Path, workers_max: int) -> None:
    workload = make_tpcc()
    known = dict(written(journal))
    draw = random.Random(len(known))
    options: dict[str, Any] = {"checkpoint": draw.choice((0.02, 0.2, 3600.0)), "epoch_max": draw.choice((20, 1000))}
    options["workers"] = draw.randint(0, workers_max) if workers_max else 0
    file = os.open(journal, os.O_WRONLY | os.O_APPEND | os.O_CREAT)
    futures: deque[tuple[int, Any]] = deque()

    def take() -> None:
        number, future = futures.popleft()
        # One call a line: what is killed has written all of it, or nothing.
        os.write(file, json.dumps([number, *_reply(future)]).encode() + b"\n")

    with (
        connect(url, compaction=False) as store,
        fn.Runtime(store, "tpcc", workload.operators, **options) as runtime,
    ):
        for number, one in enumerate(workload.requests(count, seed)):
            if number not in known:
                if len(futures) >= OUTSTANDING:
                    take()
                sent = runtime.send(one.operator, one.key, one.function, *one.arguments, request_id=f"r{number}")
                futures.append((number, sent))
        while futures:
            take()


if __name__ == "__main__":
    _main(sys.argv[1], int(sys.argv[2]), int(sys.argv[3]), Path(sys.argv[4]), int(sys.argv[5]))
