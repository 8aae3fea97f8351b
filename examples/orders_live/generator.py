"""Changes of a shop's database as Debezium writes them to Kafka: seeded, with late and corrected rows, and repeats.

Each message is a topic, a key and a value in Debezium's JSON without schemas. A table's changes come in the order in
which they were made; those of different tables do not, and some messages come twice, as Debezium's may after a crash.
"""

import json
import random
from collections.abc import Iterator
from typing import Any, NamedTuple

__all__ = ["TABLES", "Message", "changes"]

TABLES = ("orders", "shipments", "payments")
CUSTOMERS = 40
CARRIERS = ("post", "bike", "van")
BEGAN_MS = 1_700_000_000_000
REPEATED = 0.02
"""The share of messages that come twice."""


class Message(NamedTuple):
    """One of a topic."""

    table: str
    key: bytes
    value: bytes | None


class _Shop:
    """The database that the changes are of."""

    def __init__(self, seed: int) -> None:
        self._chance = random.Random(seed)  # noqa: S311 - nothing has to be secret
        self._rows: dict[str, dict[int, dict[str, Any]]] = {name: {} for name in TABLES}
        self._last = dict.fromkeys(TABLES, 0)
        self._now_ms = BEGAN_MS

    def step(self) -> Iterator[Message]:
        """Something happens."""
        chance = self._chance
        self._now_ms += chance.randint(1, 2000)
        orders = self._rows["orders"]
        what = chance.random()
        if what < 0.35 or len(orders) < 5:
            yield from self._insert("orders", customer=chance.randrange(CUSTOMERS), cents=chance.randint(100, 50_000))
            return
        order = chance.choice(list(orders.values()))
        if what < 0.6:
            # A payment may come in parts, and be for an order that is gone.
            part = order["cents"] if chance.random() < 0.7 else chance.randint(1, order["cents"])
            yield from self._insert("payments", order_id=order["id"], cents=part)
        elif what < 0.8:
            yield from self._insert("shipments", order_id=order["id"], carrier=chance.choice(CARRIERS))
        elif what < 0.88:
            # A correction: also of rows that came long ago.
            yield from self._update("orders", order["id"], cents=chance.randint(100, 50_000))
        elif what < 0.93 and self._rows["payments"]:
            payment = chance.choice(list(self._rows["payments"]))
            yield from self._update("payments", payment, cents=chance.randint(1, 50_000))
        elif what < 0.96 and self._rows["shipments"]:
            yield from self._delete("shipments", chance.choice(list(self._rows["shipments"])))
        else:
            yield from self._delete("orders", order["id"])

    def _insert(self, table: str, **columns: Any) -> Iterator[Message]:
        number = self._last[table] = self._last[table] + 1
        row = {"id": number, **columns, "at_ms": self._now_ms - self._chance.choice((0, 0, 0, 60_000))}
        self._rows[table][number] = row
        yield self._message(table, None, row, "c")

    def _update(self, table: str, number: int, **columns: Any) -> Iterator[Message]:
        before = self._rows[table][number]
        row = self._rows[table][number] = {**before, **columns}
        yield self._message(table, before, row, "u")

    def _delete(self, table: str, number: int) -> Iterator[Message]:
        before = self._rows[table].pop(number)
        message = self._message(table, before, None, "d")
        yield message
        # The tombstone by which a compacted topic forgets the key.
        yield message._replace(value=None)

    def _message(self, table: str, before: Any, after: Any, op: str) -> Message:
        row = after or before
        source = {"connector": "postgresql", "db": "shop", "schema": "public", "table": table}
        value = {"before": before, "after": after, "op": op, "ts_ms": self._now_ms, "source": source}
        return Message(table, json.dumps({"id": row["id"]}).encode(), json.dumps(value).encode())


def changes(seed: int, count: int) -> Iterator[Message]:
    """The first `count` messages of a seed."""
    shop, given = _Shop(seed), 0
    chance = random.Random(f"{seed} repeats")  # noqa: S311 - as above
    while given < count:
        for message in shop.step():
            for _ in range(2 if chance.random() < REPEATED else 1):
                if given < count:
                    given += 1
                    yield message
