"""A small bank as an application that is partitioned by account, and the same in plain Python.

A border procedure books movements, refuses overdrafts into a stream, and a second procedure counts these; a trigger on
the first table keeps highest balances, and marks every third batch of a key with a random number and a UUID.
"""

from typing import Any

import pyarrow as pa

from tussock.compute import procedures as ps
from tussock.statestore import StateStore

__all__ = ["MOVE", "TABLES", "Ledger", "Unwanted", "ledger_app", "random_moves"]

MOVE = pa.schema(
    [
        pa.field("bank", pa.string(), nullable=False),
        pa.field("account", pa.int64(), nullable=False),
        pa.field("seq", pa.int64(), nullable=False),
        pa.field("amount", pa.int64()),
    ]
)
KEY = [pa.field("bank", pa.string(), nullable=False), pa.field("account", pa.int64(), nullable=False)]
TABLES = {
    "balances": (pa.schema([*KEY, ("balance", pa.int64()), ("batches", pa.int64())]), ["bank", "account"]),
    "refused": (pa.schema([*KEY, pa.field("nth", pa.int64(), nullable=False), ("amount", pa.int64())]), None),
    "marks": (
        pa.schema([*KEY, pa.field("batch", pa.int64(), nullable=False), ("r", pa.float64()), ("u", pa.string())]),
        None,
    ),
    "highest": (pa.schema([*KEY, ("balance", pa.int64())]), ["bank", "account"]),
}
UNWANTED = 666


class Unwanted(Exception):
    """A movement of an amount that ends its batch."""


def ledger_app(store: StateStore, name: str = "bank", **options: Any) -> ps.App:
    """The application; its tables are there afterwards."""
    app = ps.App(store, name, partition_by=["bank", "account"], **options)
    keys = {"refused": ["bank", "account", "nth"], "marks": ["bank", "account", "batch"]}
    for table, (schema, key) in TABLES.items():
        app.table(table, schema, primary_key=key or keys[table])
    overdrafts = app.stream("overdrafts", MOVE)

    @app.procedure("book", border=True, schema=MOVE, emits=overdrafts)
    def book(tx: Any, batch: pa.Table) -> Any:
        key = (batch["bank"][0].as_py(), batch["account"][0].as_py())
        balances = tx.table("balances")
        row = balances.get(key) or {"bank": key[0], "account": key[1], "balance": 0, "batches": 0}
        left = []
        for move in batch.to_pylist():
            if move["amount"] == UNWANTED:
                raise Unwanted(f"{key} {move['seq']}")
            if row["balance"] + move["amount"] < 0:
                left.append(move)
                continue
            row["balance"] = row["balance"] * 3 % 1009 + move["amount"]
        balances.upsert([{**row, "batches": row["batches"] + 1}])
        return left

    @app.procedure("count", consumes=overdrafts)
    def count(tx: Any, batch: pa.Table) -> None:
        refused = tx.table("refused")
        known = sum(part.num_rows for part in refused.read())
        rows = batch.to_pylist()
        refused.upsert(
            [
                {"bank": row["bank"], "account": row["account"], "nth": known + at, "amount": row["amount"]}
                for at, row in enumerate(rows)
            ]
        )

    @app.trigger("balances")
    def keep(tx: Any, rows: pa.Table) -> None:
        row = rows.to_pylist()[0]
        key = row["bank"], row["account"]
        known = tx.table("highest").get(key)
        if known is None or known["balance"] < row["balance"]:
            tx.table("highest").upsert([{"bank": key[0], "account": key[1], "balance": row["balance"]}])
        if row["batches"] % 3 == 0:
            mark = {"bank": key[0], "account": key[1], "batch": tx.batch_id, "r": tx.random(), "u": str(tx.uuid())}
            tx.table("marks").upsert([mark])
        if row["balance"] % 11 == 0 and known is not None:
            tx.table("highest").delete([key])

    return app


class Ledger:
    """The same in plain Python."""

    def __init__(self) -> None:
        self.balances: dict[tuple[str, int], tuple[int, int]] = {}
        self.refused: dict[tuple[str, int], list[int]] = {}
        self.highest: dict[tuple[str, int], int] = {}
        self.marks: set[tuple[str, int, int]] = set()

    def batch(self, batch_id: int, moves: list[dict[str, Any]]) -> bool:
        """Book a batch of movements; of one with an unwanted amount nothing stays, and it is `False`."""
        if any(move["amount"] == UNWANTED for move in moves):
            return False
        by_key: dict[tuple[str, int], list[int]] = {}
        for move in moves:
            by_key.setdefault((move["bank"], move["account"]), []).append(move["amount"])
        for key, amounts in by_key.items():
            balance, batches = self.balances.get(key, (0, 0))
            for amount in amounts:
                if balance + amount < 0:
                    self.refused.setdefault(key, []).append(amount)
                else:
                    balance = balance * 3 % 1009 + amount
            self.balances[key] = balance, batches + 1
            known = self.highest.get(key)
            if known is None or known < balance:
                self.highest[key] = balance
            if (batches + 1) % 3 == 0:
                self.marks.add((*key, batch_id))
            if balance % 11 == 0 and known is not None:
                del self.highest[key]
        return True

    def tables(self) -> dict[str, list[tuple[Any, ...]]]:
        """The rows of each table, sorted; of the marks without what was drawn."""
        return {
            "balances": sorted((*key, *value) for key, value in self.balances.items()),
            "refused": sorted((*key, at, one) for key, those in self.refused.items() for at, one in enumerate(those)),
            "marks": sorted(self.marks),
            "highest": sorted((*key, value) for key, value in self.highest.items()),
        }


def random_moves(chance: Any, seq: int) -> list[dict[str, Any]]:
    """A batch of up to 40 movements, sometimes none, sometimes with an unwanted one."""
    moves = [
        {
            "bank": chance.choice(("north", "south")),
            "account": chance.randrange(12),
            "seq": seq * 1000 + at,
            "amount": chance.randrange(-300, 300),
        }
        for at in range(chance.choice((0, 1, 5, 40)))
    ]
    if moves and chance.random() < 0.15:
        chance.choice(moves)["amount"] = UNWANTED
    return moves
