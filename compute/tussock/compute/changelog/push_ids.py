"""The ids of what was pushed, so that a transaction that is pushed again is taken once, and gets its first number.

Rows of table `FLOW.push_ids`, in the epoch of the state. An id stays for an hour, and a little longer: with each commit
some rows, in turn, are looked at, and those that are too old go.
"""

import re
from typing import Any, NamedTuple

import pyarrow as pa

from tussock.compute.applications.durability.reply_clock import ReplyClock
from tussock.statestore.errors import InvalidOption
from tussock.statestore.transactions.delta import Delta

__all__ = ["PUSH_IDS_KEY", "PUSH_IDS_SCHEMA", "PushIds", "check_push_id"]

PUSH_IDS_SCHEMA = pa.schema(
    [
        pa.field("request_id", pa.string(), nullable=False),
        pa.field("stream", pa.string(), nullable=False),
        pa.field("number", pa.int64(), nullable=False),
        pa.field("ms", pa.int64(), nullable=False),
    ]
)
PUSH_IDS_KEY = ("request_id",)
KEEP_MS = 3_600_000
SWEEP_LEAST = 1000
_ID = re.compile(r"[A-Za-z0-9_-]{1,64}")


class _Taken(NamedTuple):
    stream: str
    number: int
    ms: int


class PushIds:
    """Of one run."""

    def __init__(self, table: str, delta: Delta) -> None:
        """The table is there."""
        self._table = delta.table(table)
        self._clock = ReplyClock(delta.system)
        self._fresh: dict[str, _Taken] = {}
        """What the next commit writes."""
        self._behind = ""
        """The id up to which old rows were looked for."""

    def find(self, request_id: str, stream: str) -> int | None:
        """The number that a transaction has got; `None` if it was not pushed. `InvalidOption`: to another stream."""
        found = self._fresh.get(request_id)
        row = None if found is not None else self._table.get(request_id)
        if row is not None:
            found = _Taken(row["stream"], row["number"], row["ms"])
        if found is None:
            return None
        if found.stream != stream:
            raise InvalidOption(
                f"stream {stream!r}: the request id {request_id!r:.100} was used for stream {found.stream!r} before: "
                "give each transaction another one"
            )
        return found.number

    def add(self, request_id: str, stream: str, number: int) -> None:
        """A transaction is in the queue of its stream."""
        self._fresh[request_id] = _Taken(stream, number, self._clock.stamp_ms())

    def persist(self) -> None:
        """Write what is new, and take out some of what is too old."""
        fresh, self._fresh = self._fresh, {}
        self._sweep(SWEEP_LEAST + 2 * len(fresh))
        if fresh:
            streams, numbers, times = zip(*fresh.values(), strict=True)
            self._table.upsert(pa.table([list(fresh), streams, numbers, times], schema=PUSH_IDS_SCHEMA))

    def _sweep(self, most: int) -> None:
        """Look at the next rows; at the end begin anew."""
        seen, last = 0, ""
        gone: list[tuple[str]] = []
        until = self._clock.expiry_ms() - KEEP_MS
        for batch in self._table.read(["request_id", "ms"], between=((self._behind,), ()), limit=most):
            ids: list[Any] = batch.column("request_id").to_pylist()
            seen += len(ids)
            last = ids[-1] if ids else last
            gone += [(one,) for one, ms in zip(ids, batch.column("ms").to_pylist(), strict=True) if ms < until]
        self._behind = last if seen >= most else ""
        if gone:
            self._table.delete(gone)


def check_push_id(given: object, what: str) -> str:
    """An id as it is; `InvalidOption` if it is none."""
    if not isinstance(given, str) or not _ID.fullmatch(given):
        raise InvalidOption(f"{what}: request_id={given!r:.100}; expected 1 to 64 letters, digits, '_' and '-'")
    return given
