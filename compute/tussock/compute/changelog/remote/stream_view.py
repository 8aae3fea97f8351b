"""What somebody elsewhere sees of one stream: where it stands, what it works on, and what it has published last."""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

from tussock.compute.changelog.changes.changes import Changes
from tussock.compute.changelog.changes.record import ChangeRecord
from tussock.compute.changelog.changes.stream_shape import StreamShape
from tussock.compute.changelog.changes.transaction import StreamTransaction
from tussock.compute.changelog.debugging.picture import breakpoints_shown
from tussock.compute.changelog.debugging.what_if import WhatIf
from tussock.compute.changelog.engine.flow_engine import FlowEngine
from tussock.compute.changelog.remote.wire import as_bytes, as_text, record_text

if TYPE_CHECKING:
    from tussock.compute.changelog.flow_host import FlowHost

__all__ = ["TEXT_RECORDS_MAX", "stream_view", "tried"]

TEXT_RECORDS_MAX = 100
"""Of each list, as text."""
BEFORE = 3
"""Records that are shown before the one at which a stream stands."""
NEWEST_MAX = 20
"""Transactions that are looked through for the newest records."""


class _Sight(NamedTuple):
    """Of one moment, between two steps."""

    shape: StreamShape
    location: str
    row: int | None
    in_trans: StreamTransaction | None
    in_row: ChangeRecord | None
    out_row: list[ChangeRecord] | None
    out_trans: list[ChangeRecord] | None
    stored: list[dict[str, Any] | None]
    """What the store has under the keys of the last records of `out_trans`."""


def stream_view(flow: "FlowHost", name: str, most: int) -> dict[str, Any]:
    """A map of it; `most` records of each list as text, or with 0 all of them as bytes.

    A flow that runs is not held up: then it says where the stream is, and nothing of what it works on.
    """
    stream = flow.streams[name]
    at = flow.paused_at
    running = flow.started().streams[name]
    found: dict[str, Any] = {
        "name": name,
        "location": str(running.loop.location),
        "queued": len(running.loop.queue),
        "held": running.loop.is_held,
        "row": None,
        "in_trans": None,
        "in_row": None,
        "out_row": None,
        "out_trans": None,
        "breakpoints": breakpoints_shown(stream.breakpoints),
        "paused_at": None if at is None else at._asdict(),
        "rows_out": running.rows_out,
    }
    if at is not None:
        seen = flow.look(lambda engine: _seen(engine, name, min(most, TEXT_RECORDS_MAX)))
        found.update(_bytes_of(seen) if not most else _text_of(seen, min(most, TEXT_RECORDS_MAX)))
    if most:
        found["newest"] = _newest(flow, name, min(most, TEXT_RECORDS_MAX))
    return found


def tried(name: str, found: WhatIf, shape: StreamShape, most: int) -> dict[str, Any]:
    """What came of a try, as text or bytes, as above."""

    def listed(records: Sequence[ChangeRecord] | None) -> dict[str, Any] | None:
        if records is None:
            return None
        return _packed(StreamTransaction(found.taken.seq, Changes(shape, records, None, found.taken.time)), most)

    return {
        "stream": name,
        "taken": _packed(found.taken, most),
        "computed": listed(found.computed),
        "published": listed(found.published),
        "was": listed(found.was),
        "row": found.row,
        "location": None if found.location is None else str(found.location),
        "error": found.error,
    }


def _packed(one: StreamTransaction, most: int, start: int = 0) -> dict[str, Any]:
    return as_text(one, min(most, TEXT_RECORDS_MAX), start) if most else as_bytes(one)


def _seen(engine: FlowEngine, name: str, most: int) -> _Sight:
    """In the flow's thread."""
    loop = engine.streams[name].loop
    out = loop.out_trans
    stored: list[dict[str, Any] | None] = []
    if most and out:
        # What it will replace; of a key that comes twice in a transaction, what the store has.
        stored = [engine.row(name, loop.shape.key_of(one)) for one in out[-most:]]
    return _Sight(loop.shape, str(loop.location), loop.row, loop.in_trans, loop.in_row, loop.out_row, out, stored)


def _bytes_of(seen: _Sight) -> dict[str, Any]:
    def own(records: Sequence[ChangeRecord] | None) -> dict[str, Any] | None:
        return None if records is None else as_bytes(StreamTransaction(0, Changes(seen.shape, records, None, 0)))

    into = seen.in_trans
    row = None
    if into is not None and seen.in_row is not None:
        row = as_bytes(StreamTransaction(into.seq, Changes(into.changes.shape, [seen.in_row], None, into.time)))
    return {
        "location": seen.location,
        "row": seen.row,
        "in_trans": None if into is None else as_bytes(into),
        "in_row": row,
        "out_row": own(seen.out_row),
        "out_trans": own(seen.out_trans),
    }


def _text_of(seen: _Sight, most: int) -> dict[str, Any]:
    into, out = seen.in_trans, seen.out_trans
    shown = None if into is None else as_text(into, most, max((seen.row or 0) - BEFORE, 0))
    last = [] if out is None else out[-most:]
    records = [record_text(one, was) for one, was in zip(last, seen.stored, strict=True)]
    return {
        "location": seen.location,
        "row": seen.row,
        "in_trans": shown,
        "in_row": None if seen.in_row is None else record_text(seen.in_row),
        "out_row": None if seen.out_row is None else [record_text(one) for one in seen.out_row[:most]],
        "out_trans": None if out is None else {"count": len(out), "start": len(out) - len(last), "records": records},
    }


def _newest(flow: "FlowHost", name: str, most: int) -> list[dict[str, Any]]:
    """The newest records that were published, the newest last."""
    found: list[dict[str, Any]] = []
    for one in reversed(flow.started().streams[name].history.before(None, NEWEST_MAX)):
        left = most - len(found)
        if left <= 0:
            break
        records = as_text(one, left, len(one))["records"]
        found = [{"seq": one.seq, **record} for record in records] + found
    return found
