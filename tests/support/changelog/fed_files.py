"""A stream that is fed by files of messages: what its table has afterwards, and what went to the dead letters."""

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

import pyarrow as pa

from tussock.compute import changelog as cl
from tussock.statestore import StateStore

__all__ = ["Fed", "feed_lines", "rows_in_order", "write_lines"]


class Fed(NamedTuple):
    """What came of a run."""

    rows: list[dict[str, Any]]
    """By key."""
    letters: list[dict[str, Any]]
    published: list[cl.StreamTransaction]


def rows_in_order(store: StateStore, table: str) -> list[dict[str, Any]]:
    """All rows, by the key."""
    opened: Any = store.table(table)
    found = [row for batch in opened.read() for row in batch.to_pylist()]
    return sorted(found, key=lambda row: [row[name] for name in opened.primary_key])


def write_lines(folder: Path, name: str, messages: Sequence[Any]) -> None:
    """A file of messages; bytes stay as they are."""
    folder.mkdir(exist_ok=True)
    lines = [one if isinstance(one, bytes) else json.dumps(one).encode() for one in messages]
    part = folder / f".{name}"
    part.write_bytes(b"\n".join(lines))
    part.rename(folder / f"{name}.jsonl")


def feed_lines(
    store: StateStore,
    folder: Path,
    messages: Sequence[Any],
    schema: pa.Schema,
    key: Sequence[str] = ("id",),
    **options: Any,
) -> Fed:
    """One file of these messages, through a flow of one stream."""
    write_lines(folder, f"{len(list(folder.glob('*'))) if folder.exists() else 0:03d}", messages)
    stream = cl.Stream(store, "fed", schema=schema, key=list(key))
    flow = cl.Flow(store, [stream])
    flow.feed(stream, cl.FileFeed(folder.as_uri(), **{"on_bad": "skip", **options}))
    with flow:
        flow.drain(60)
        published = stream.out_history()
    return Fed(rows_in_order(store, "fed"), rows_in_order(store, "fed.dead_letters"), published)
