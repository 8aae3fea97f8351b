"""An application that sums what it is fed, by key, and a process that serves it until it is killed.

`python sums.py URL JSON` with `feed`, `output` and the options; with `until` it ends once all is through.
"""

import json
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

import pyarrow as pa

from support.feeds.serving import live
from tussock.compute import procedures as ps
from tussock.statestore import StateStore, connect

__all__ = ["ITEM", "SUM", "rows_of", "sums_app", "sums_of"]

ITEM = pa.schema([pa.field("id", pa.int64(), nullable=False), ("key", pa.int64()), ("value", pa.int64())])
SUM = pa.schema([("key", pa.int64()), ("id", pa.int64()), ("total", pa.int64())])


def sums_app(store: StateStore, feed: Any, output: Any, **options: Any) -> ps.App:
    """Emits for each item the total of its key so far."""
    app = ps.App(store, "sums", **options)
    app.table("total", pa.schema([("key", pa.int64()), ("total", pa.int64())]), primary_key=["key"])
    totals = app.stream("totals", SUM)
    app.feed("add", feed)
    app.output(totals, output)

    @app.procedure("add", border=True, emits=totals)
    def add(tx: Any, batch: pa.Table) -> Any:
        table = tx.table("total")
        found = []
        for item in batch.to_pylist():
            before = table.get(item["key"])
            total = item["value"] + (before["total"] if before else 0)
            table.upsert([{"key": item["key"], "total": total}])
            found.append({"key": item["key"], "id": item["id"], "total": total})
        return found

    return app


def sums_of(items: list[Mapping[str, int]]) -> dict[int, list[tuple[int, int]]]:
    """What a program without any of this would emit: of each key, (id, total) in order."""
    found: dict[int, list[tuple[int, int]]] = {}
    for item in items:
        before = found.setdefault(item["key"], [])
        before.append((item["id"], item["value"] + (before[-1][1] if before else 0)))
    return found


def rows_of(table: Any) -> list[dict[str, Any]]:
    """All rows, in order."""
    return [row for batch in table.read() for row in batch.to_pylist()]


def serve(url: str, given: dict[str, Any]) -> None:
    """Until it is killed, or all is through."""
    feed = ps.KafkaFeed(schema=ITEM, **given["kafka"]) if "kafka" in given else ps.TableFeed("items", start=0)
    output = ps.KafkaTopic(**given["topic"]) if "topic" in given else "emitted"
    with connect(url, compaction=False) as store, sums_app(store, feed, output, **given["options"]) as app:
        live(app, given["until"])


if __name__ == "__main__":
    serve(sys.argv[1], json.loads(sys.argv[2]))
