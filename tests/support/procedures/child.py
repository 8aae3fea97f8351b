"""`python child.py URL SEED BATCHES JOURNAL`: serves a random application, and notes each reply before it goes on.

It gives the batches of the seed whose replies are not in the journal, in order and several at once, until it is killed
or through. A line of the journal is one write, made durable: what is in it, a client was told.
"""

import json
import os
import random
import sys
from collections import deque
from concurrent.futures import Future
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from support.procedures.interpreter import Interpreter, Outcome
from support.procedures.oracle import Request
from support.procedures.plans import Plan, make_plan
from support.procedures.programs import Program, outcome_of, rows_of
from tussock.statestore import connect

__all__ = ["after_all", "journaled", "place_of", "requests_of"]

AT_ONCE = 8


def requests_of(seed: int, count: int) -> tuple[Plan, list[Request]]:
    """The application of a seed, and its batches: ids with gaps, some without tuples."""
    chance = random.Random(seed)
    plan = make_plan(chance)
    last = dict.fromkeys(plan.borders, 0)
    requests = []
    for _ in range(count):
        border = chance.choice(plan.borders)
        last[border] += chance.choice((1, 1, 1, 2))
        numbers = tuple(chance.randrange(997) for _ in range(chance.choice((0, 1, 1, 3, 8))))
        requests.append(Request(border, True, last[border], numbers))
    return plan, requests


def place_of(url: str, seed: int) -> str | None:
    """Where the application of a seed has its input log: in the bucket of the store, or beside it."""
    return None if seed % 2 else f"{url}-input"


def after_all(plan: Plan, requests: list[Request]) -> tuple[Interpreter, list[Outcome]]:
    """The state in the end, and every reply."""
    interpreter = Interpreter(plan)
    return interpreter, [request.do(interpreter) for request in requests]


def journaled(path: Path) -> list[tuple[int, Outcome]]:
    """What clients were told: the number of the request, and the outcome."""
    if not path.exists():
        return []
    lines = path.read_text().split("\n")
    return [(number, tuple(outcome)) for number, outcome in map(json.loads, filter(None, lines))]


def serve(url: str, seed: int, count: int, path: Path) -> None:
    """Until all is done."""
    plan, requests = requests_of(seed, count)
    told = {number for number, _ in journaled(path)}
    chance = random.Random(f"{seed} {len(told)}")
    options = {
        "recovery": chance.choice(("weak", "strong")),
        "group_commit": chance.choice((None, 0.002, 0.01)),
        "checkpoint": chance.choice((0, 0.05, 0.3, 3600)),
    }
    place = place_of(url, seed)
    journal = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o644)
    with connect(url, compaction=False) as store, Program(plan, store, input=place, **options).app as app:
        print("ready", json.dumps(options), flush=True)
        flying: deque[tuple[int, Future[Any]]] = deque()
        for number, request in enumerate(requests):
            if number in told:
                continue
            flying.append((number, app.submit(request.procedure, rows_of(list(request.given)), request.batch_id)))
            if len(flying) == AT_ONCE:
                _note(journal, *flying.popleft())
        for one in flying:
            _note(journal, *one)
    print("through", flush=True)


def _note(journal: int, number: int, ticket: "Future[Any]") -> None:
    os.write(journal, json.dumps([number, outcome_of(ticket)]).encode() + b"\n")
    os.fsync(journal)


if __name__ == "__main__":
    serve(sys.argv[1], int(sys.argv[2]), int(sys.argv[3]), Path(sys.argv[4]))
