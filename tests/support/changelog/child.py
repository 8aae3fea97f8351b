"""`python child.py URL SEED PUSHES FOLDER`: runs a flow, pushes what is left of the pushes of the seed, and subscribes.

`FOLDER/answered` gets a line for each push that was answered, `FOLDER/seen-STREAM` one for each transaction that a
subscriber has got, made durable before it goes on; so what is in them, a client was told.
"""

import json
import os
import random
import sys
import threading
from collections import deque
from collections.abc import Iterator
from concurrent.futures import Future
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from tussock.compute import changelog as cl
from tussock.statestore import StateStore, connect

__all__ = ["SUBSCRIBED", "child_flow", "pushes_of", "read_lines"]

SCHEMA = pa.schema([("k", pa.int64()), ("n", pa.int64()), ("v", pa.int64())])
KEYS = 50
AT_ONCE = 16
SUBSCRIBED = ("source", "summed")


def pushes_of(seed: int, count: int) -> Iterator[list[cl.ChangeRecord]]:
    """The pushes of a seed; each record has the number of its push."""
    chance = random.Random(seed)
    for number in range(1, count + 1):
        records = []
        for _ in range(chance.choice((1, 1, 2, 5))):
            kind = cl.safedelete if chance.random() < 0.2 else cl.upsert
            records.append(kind(k=chance.randrange(KEYS), n=number, v=chance.randrange(1000)))
        yield [*records, cl.upsert(k=KEYS, n=number, v=number)]


def child_flow(store: StateStore, **options: Any) -> cl.Flow:
    """One source, a stream by record, one by batch behind it, and one whose rows expire."""
    more: dict[str, Any] = {"schema": SCHEMA, "key": ["k"], "history": 100_000}
    source = cl.Stream(store, "source", **more)
    summed = cl.Stream(store, "summed", inputs=[source], queue=4, **more)

    @summed.compute
    def doubled(row: cl.ChangeRecord) -> cl.ChangeRecord | None:
        if row["v"] % 7 == 3:
            return None
        made = cl.safedelete if row.op == "DELETE" else cl.upsert
        return made(k=row["k"] % 7, n=row["n"], v=row["v"] * 2)

    behind = cl.Stream(store, "behind", inputs=[summed], **more)

    @behind.compute_batch
    def negated(batch: pa.RecordBatch) -> pa.RecordBatch:
        return batch.set_column(2, "v", pc.negate(batch.column("v")))

    newest = cl.Stream(store, "newest", inputs=[source], keep="20 rows", **more)
    return cl.Flow(store, [source, summed, behind, newest], **options)


def read_lines(path: Path) -> list[Any]:
    """What was told; a last line that is torn was not."""
    if not path.exists():
        return []
    return [json.loads(line) for line in path.read_text().split("\n")[:-1]]


def run(url: str, seed: int, count: int, folder: Path) -> None:
    """Until all is pushed and seen."""
    chance = random.Random(f"{seed} {len(read_lines(folder / 'answered'))}")
    options = {"group_commit": chance.choice((None, 0.002, 0.01)), "checkpoint": chance.choice((0, 0.05, 0.3, 3600))}
    answered = _append(folder / "answered")
    with connect(url, compaction=False) as store, child_flow(store, **options) as flow:
        flow.drain(60)
        taken = flow.streams["source"].in_history()
        done = taken[-1].records[-1]["n"] if taken else 0
        readers = [threading.Thread(target=_read, args=(flow, name, folder, count)) for name in SUBSCRIBED]
        for one in readers:
            one.start()
        print("ready", done, json.dumps(options), flush=True)
        flying: deque[tuple[int, Future[int]]] = deque()
        for number, records in enumerate(pushes_of(seed, count), 1):
            if number <= done:
                continue
            flying.append((number, flow.streams["source"].push(records)))
            if len(flying) == AT_ONCE:
                _note(answered, *flying.popleft())
        for one in flying:
            _note(answered, *one)
        flow.drain(60)
        for one in readers:
            one.join()
    print("through", flush=True)


def _read(flow: cl.Flow, name: str, folder: Path, count: int) -> None:
    path = folder / f"seen-{name}"
    lines = read_lines(path)
    last = lines[-1][0] if lines else 0
    seen = _append(path)
    with flow.streams[name].subscribe(from_seq=last + 1, blocks=True) as found:
        for one in found:
            last = one.seq
            os.write(seen, json.dumps([one.seq, [repr(record) for record in one]]).encode() + b"\n")
            os.fsync(seen)
            if last == count:
                return


def _append(path: Path) -> int:
    if path.exists() and (data := path.read_bytes()) and not data.endswith(b"\n"):
        path.write_bytes(data[: data.rfind(b"\n") + 1])
    return os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o644)


def _note(journal: int, number: int, answer: "Future[int]") -> None:
    os.write(journal, json.dumps([number, answer.result(60)]).encode() + b"\n")
    os.fsync(journal)


if __name__ == "__main__":
    run(sys.argv[1], int(sys.argv[2]), int(sys.argv[3]), Path(sys.argv[4]))
