"""A process of random transactions on a typed table: `python transactor.py URL JOURNAL NAME SEED COUNT`.

It writes what each transaction read and wrote into its journal before the commit, and the epoch after it. Started
again, it goes on behind the last batch of the journal, whose commit may or may not hold.
"""

import json
import random
import sys
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from tussock.statestore import Conflict, Transaction, connect

KEYS = 12


def touch(tx: Transaction, dice: random.Random, name: str, note: dict[str, Any]) -> None:
    """Random reads of keys and ranges, and writes of rows alone, together and as deletes."""
    table = tx.table("t")
    for _ in range(dice.randint(2, 6)):
        kind, key = dice.random(), dice.randrange(KEYS)
        if kind < 0.3:
            row = table.get(key)
            note["reads"].append([key, key, {} if row is None else {key: row["v"]}, dict(note["writes"])])
        elif kind < 0.5:
            end = dice.randrange(key, KEYS)
            rows = [row for batch in table.read(between=((key,), (end,))) for row in batch.to_pylist()]
            note["reads"].append([key, end, {row["k"]: row["v"] for row in rows}, dict(note["writes"])])
        elif kind < 0.65:
            table.delete([key])
            note["writes"][key] = None
        else:
            keys = dice.sample(range(KEYS), dice.choice([1, 1, 3]))
            rows = [{"k": one, "v": f"{name}.{dice.randrange(10**6)}"} for one in keys]
            table.upsert(rows)
            note["writes"].update((row["k"], row["v"]) for row in rows)


def main(url: str, path: str, name: str, seed: str, count: str) -> None:
    """Transactions until `count` batches were tried."""
    journal = Path(path)
    lines = [json.loads(line) for line in journal.read_text().splitlines()] if journal.exists() else []
    begun = max((line["batch"] for line in lines), default=0)
    known = {line["batch"] for line in lines if "epoch" in line}
    with connect(url, retention=3600, gc_grace=60) as store, journal.open("a") as out:
        if begun and begun not in known:
            # Killed at its commit: only the store knows.
            out.write(json.dumps({"batch": begun, "epoch": store.committed_batch(name, begun) or 0}) + "\n")
        for batch in range(begun + 1, int(count) + 1):
            dice = random.Random(f"{seed} {name} {batch}")
            note: dict[str, Any] = {"batch": batch, "reads": [], "writes": {}}
            try:
                with store.transaction(writer=name, batch_id=batch) as tx:
                    touch(tx, dice, f"{name}.{batch}", note)
                    out.write(json.dumps(note) + "\n")
                    out.flush()
                done = {"batch": batch, "epoch": tx.epoch}
            except Conflict:
                done = {"batch": batch, "epoch": 0}
            out.write(json.dumps(done) + "\n")
            out.flush()


if __name__ == "__main__":
    main(*sys.argv[1:])
