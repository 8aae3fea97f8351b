"""A program with two workers that is killed after its replies: `python worker_process.py URL`."""

import sys
from concurrent.futures import Future
from typing import Any

from support.functions.accounts import accounts
from tussock.compute import functions as fn
from tussock.statestore import connect

__all__ = ["REQUESTS", "send"]

REQUESTS = 60


def send(runtime: fn.Runtime, number: int) -> "Future[Any]":
    """A request, under its id."""
    return runtime.send("account", "x", "transfer", "y", 1, request_id=f"r{number}")


def _main(url: str) -> None:
    store = connect(url, compaction=False)
    runtime = fn.Runtime(store, "bank", [accounts()], workers=2, checkpoint=3600)
    runtime.load("account", [{"key": "x", "balance": 1000}, {"key": "y", "balance": 0}])
    with runtime:
        print(*runtime.worker_processes(), flush=True)
        futures = [send(runtime, number) for number in range(REQUESTS)]
        for number, future in enumerate(futures):
            print(number, future.result(30), flush=True)
        print("done", flush=True)
        # It is killed now.
        sys.stdin.read()


if __name__ == "__main__":
    _main(sys.argv[1])
