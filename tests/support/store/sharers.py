"""Random transactions of several threads on one store, without `writer=`: those that end at a time share a commit.

As a process, `python sharers.py URL JOURNAL NAME SEED`, it writes those that have committed into its journal.
"""

import json
import random
import sys
import threading
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from support.models.dependencies import Done
from tussock.statestore import Conflict, StateStore, Transaction, connect

__all__ = ["journaled", "share"]

KEYS = 10
THREADS, COUNT = 6, 20


def share(store: StateStore, name: str, seed: int) -> list[Done]:
    """What has committed of `COUNT` transactions in each of the threads, of which every other one begins together.

    On a busy machine threads would run one after the other otherwise, and their transactions meet nobody.
    """
    done: list[Done] = []
    wrong: list[BaseException] = []
    together = threading.Barrier(THREADS)

    def work(thread: int) -> None:
        dice = random.Random(f"{seed} {name} {thread}")
        try:
            for number in range(COUNT):
                if number % 2 == 0:
                    together.wait(60)
                one = _run(store, dice, f"{name}.{thread}.{number}")
                if one is not None:
                    done.append(one)
        except BaseException as error:
            wrong.append(error)
            together.abort()

    threads = [threading.Thread(target=work, args=(thread,)) for thread in range(THREADS)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong, wrong
    return done


def _run(store: StateStore, dice: random.Random, name: str) -> Done | None:
    reads: dict[int, str | None] = {}
    writes: dict[int, str] = {}
    try:
        with store.transaction() as tx:
            for step in range(dice.randint(1, 4)):
                _step(tx, dice, f"{name}.{step}", reads, writes)
    except Conflict:
        return None
    return Done(name, reads, writes, tx.epoch)


def _step(
    tx: Transaction, dice: random.Random, value: str, reads: dict[int, str | None], writes: dict[int, str]
) -> None:
    table = tx.table("t")
    kind, key = dice.random(), dice.randrange(KEYS)
    found: dict[int, Any]
    if kind < 0.3:
        found = {key: table.get(key)}
    elif kind < 0.45:
        end = min(key + dice.randrange(1, 6), KEYS)
        rows = {row["k"]: row for batch in table.read(between=((key,), (end,))) for row in batch.to_pylist()}
        # A key without a row was read, too: a row that comes is a phantom.
        found = {one: rows.get(one) for one in range(key, end)}
    else:
        keys = dice.sample(range(KEYS), dice.choice([1, 1, 2]))
        table.upsert([{"k": one, "v": value} for one in keys])
        writes.update(dict.fromkeys(keys, value))
        return
    for one, row in found.items():
        is_own = one in writes
        seen = None if row is None else row["v"]
        expected = writes[one] if is_own else reads.setdefault(one, seen)
        assert seen == expected, f"read {seen!r} of key {one}, and {expected!r} was there"


def journaled(path: Path) -> list[Done]:
    """What a process has written down."""
    lines = [json.loads(line) for line in path.read_text().splitlines()]
    return [
        Done(name, {int(k): v for k, v in reads.items()}, {int(k): v for k, v in writes.items()}, epoch)
        for name, reads, writes, epoch in lines
    ]


def main(url: str, path: str, name: str, seed: str) -> None:
    """Begin when the test says so, that all processes run at a time."""
    with connect(url) as store:
        print("ready", flush=True)
        sys.stdin.readline()
        done = share(store, name, int(seed))
    Path(path).write_text("".join(json.dumps(one) + "\n" for one in done))


if __name__ == "__main__":
    main(*sys.argv[1:])
