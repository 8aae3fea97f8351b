"""A state function with several timers a key, late rows and deletes, as plain Python: the model of `stateful`.

The function writes to state and output what it is called with, so that a call too many, too few, in another order or
with another state shows. Keys are of mixed types.
"""

import random
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Any

import pyarrow as pa

import tussock.compute.spark as ts
from tussock.statestore.client import StateStore

__all__ = ["DELAY", "KEY", "Model", "create_tables", "log_call", "random_rows"]

TIME = pa.timestamp("us", "UTC")
NOON = datetime(2013, 1, 1, 12, tzinfo=UTC)
DELAY = timedelta(seconds=20)
KEY = ["id", "name", "price"]
_KEY_TYPES = {"id": pa.int64(), "name": pa.string(), "price": pa.decimal128(10, 2)}
_NARROW = {"id": pa.int32(), "name": pa.large_string(), "price": pa.decimal128(6, 1)}
Key = tuple[Any, ...]


def create_tables(store: StateStore) -> None:
    """State `t`, the log of all calls, and late rows."""
    key = list(_KEY_TYPES.items())
    columns = [("calls", pa.int64()), ("total", pa.int64())]
    store.create_table("t", schema=pa.schema([*key, *columns]), primary_key=KEY)
    log = [("batch", pa.int64()), ("call", pa.int64()), ("fired", TIME), ("rows", pa.list_(pa.int64())), *columns]
    store.create_table("log", schema=pa.schema([*key, *log]), primary_key=[*KEY, "batch", "call"])
    late = [("at", TIME), ("v", pa.int64()), ("timers", pa.list_(pa.int64()))]
    store.create_table("late", schema=pa.schema([*key, *late]), primary_key=["v"])


def log_call(key: Key, rows: list[Any], state: Any, turn: ts.Turn) -> Any:
    """Log the call; set the timers that rows ask for; forget a key whose total is a multiple of seven.

    A call by a timer of an odd second sets another one, at times in the past.
    """
    calls, total = (state["calls"], state["total"]) if state else (0, 0)
    values = [row["v"] for row in rows]
    seen = {"calls": calls, "total": total}
    own = dict(zip(KEY, key, strict=True))
    fired = turn.fired
    # The number of the call is not part of what is logged twice: `calls` tells them apart, and deletes begin anew.
    number = 0 if fired is None else int((fired - NOON).total_seconds() * 2) + 1
    batch = int(turn.watermark.timestamp()) if turn.watermark else 0
    turn.emit("log", {**own, "batch": batch, "call": number, "fired": fired, "rows": values, **seen})
    for row in rows:
        for seconds in row["timers"]:
            turn.timer(row["at"] + timedelta(seconds=seconds))
    if fired is not None and fired.second % 2:
        turn.timer(fired + timedelta(seconds=fired.second % 5 - 1, microseconds=500_000))
    total += sum(values) + (0 if fired is None else 1)
    return None if total % 7 == 0 and not rows else {"calls": calls + 1, "total": total}


def random_rows(chance: random.Random, batch: int, count: int, first: int) -> pa.Table:
    """Rows of few keys, some of them late, whose timers lie close together; `v` counts from `first`."""
    keys = [(n, f"k{n % 3}", n % 2 / 2) for n in range(12)]
    made = []
    for number in range(count):
        at = NOON + timedelta(seconds=25 * batch - chance.randrange(chance.choice([10, 60])))
        timers = [chance.randrange(-5, 45) for _ in range(chance.choice([0, 0, 1, 3]))]
        made.append((*chance.choice(keys), at, first + number, timers))
    types = (_NARROW if chance.random() < 0.3 else _KEY_TYPES) | {
        "at": TIME,
        "v": pa.int64(),
        "timers": pa.list_(pa.int64()),
    }
    columns = list(zip(*made, strict=True))
    arrays = []
    for (name, kind), values in zip(types.items(), columns, strict=True):
        exact = pa.array(values).cast(kind) if name == "price" else pa.array(values, kind)
        arrays.append(exact)
    return pa.table(arrays, names=list(types))


@dataclass
class Model:
    """The content of the tables after the batches given to it."""

    state: dict[Key, dict[str, int]] = field(default_factory=dict)
    log: list[dict[str, Any]] = field(default_factory=list)
    late: list[int] = field(default_factory=list)
    timers: set[tuple[datetime, Key]] = field(default_factory=set)
    newest: datetime | None = None

    def run(self, rows: list[dict[str, Any]]) -> None:
        """Run one batch, one key after the other."""
        watermark = None if self.newest is None else self.newest - DELAY
        in_time: dict[Key, list[dict[str, Any]]] = {}
        for row in rows:
            self.newest = max(row["at"], self.newest or row["at"])
            if watermark is not None and row["at"] <= watermark:
                self.late.append(row["v"])
            else:
                in_time.setdefault(tuple(row[name] for name in KEY), []).append(row)
        due = {timer for timer in self.timers if watermark is not None and timer[0] <= watermark}
        self.timers -= due
        for key in {*in_time, *(key for _, key in due)}:
            times: list[datetime | None] = sorted(at for at, of in due if of == key)
            for fired in times or [None]:
                # Rows are younger than every timer that is due, so they come with the last of them.
                self._call(key, in_time.get(key, []) if fired == (times or [None])[-1] else [], fired, watermark)

    def _call(self, key: Key, rows: list[Any], fired: datetime | None, watermark: datetime | None) -> None:
        turn = ts.Turn(watermark)
        own = dict(zip(KEY, key, strict=True))
        turn.begin(own, fired)
        answer = log_call(key, sorted(rows, key=lambda row: row["v"]), self.state.get(key), turn)
        if answer is None:
            self.state.pop(key, None)
        else:
            self.state[key] = answer
        self.log += turn.outputs["log"]
        self.timers |= {(timer["timer_at"], key) for timer in turn.timers}
