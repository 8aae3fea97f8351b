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

from support.functions.transfer_process import appended, drawn_options, whole_lines
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
    return [(number, Reply(value, error)) for number, value, error in map(json.loads, whole_lines(journal))]


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
    options = drawn_options(random.Random(len(known)), workers_max)
    file = appended(journal)
    futures: deque[tuple[int, Any]] = deque()

    def take() -> None:
        number, future = futures.popleft()
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
