"""What requests with an id were answered, so that one that comes again gets its first reply, and does not run again.

Rows of table `PROGRAM.replies`, by request id. A reply stays for as long as the program says, and a little longer:
with each commit some rows, in turn, are looked at, and those that are too old go.
"""

from collections.abc import Iterable
from typing import Any, NamedTuple

import pyarrow as pa

from tussock.compute.functions.errors import TransactionAborted
from tussock.compute.functions.program.values import pack, unpack
from tussock.statestore import StateStore
from tussock.statestore.transactions.delta import Delta

__all__ = ["FunctionReplies", "KeptReply", "create_replies_table"]

SWEEP_LEAST = 1000
REPLY_BYTES = 200
"""What Python takes for one that is empty."""
SCHEMA = pa.schema(
    [
        pa.field("request_id", pa.string(), nullable=False),
        pa.field("ms", pa.int64(), nullable=False),
        pa.field("reply", pa.binary(), nullable=False),
    ]
)


class KeptReply(NamedTuple):
    """What a request was answered."""

    value: Any
    aborted: TransactionAborted | None


def replies_table(program: str) -> str:
    """The name of the table."""
    return f"{program}.replies"


def create_replies_table(store: StateStore, program: str) -> None:
    """The table, if it is not there."""
    if replies_table(program) not in store.tables():
        store.create_table(replies_table(program), SCHEMA, primary_key=["request_id"], vnodes=1)


class FunctionReplies:
    """The replies of one run, for the thread that runs the program."""

    def __init__(self, program: str, delta: Delta, keep_ms: int) -> None:
        """The table is there."""
        self._table = delta.table(replies_table(program))
        self._keep_ms = keep_ms
        self._fresh: dict[str, tuple[int, bytes]] = {}
        """What the next commit writes."""
        self.nbytes = 0
        """What the next commit writes, about."""
        self._behind = ""
        """The request id up to which old rows were looked for."""

    def add(self, request_id: str, now_ms: int, value: Any, aborted: TransactionAborted | None) -> None:
        """A request has its reply."""
        facts = [value] if aborted is None else [None, *aborted.args]
        packed = pack(facts)
        self._fresh[request_id] = now_ms, packed
        self.nbytes += REPLY_BYTES + len(packed)

    def find_many(self, request_ids: Iterable[str]) -> dict[str, KeptReply]:
        """The replies of those that were answered before."""
        found = {}
        unknown = []
        for request_id in request_ids:
            fresh = self._fresh.get(request_id)
            if fresh is not None:
                found[request_id] = _unpack(fresh[1])
            else:
                unknown.append(request_id)
        if unknown:
            rows = self._table.multi_get(unknown, columns=["reply"]).to_pylist()
            for request_id, row in zip(unknown, rows, strict=True):
                if row is not None:
                    found[request_id] = _unpack(row["reply"])
        return found

    def persist(self, now_ms: int) -> None:
        """Write what is new into the delta, and take out some of what is too old."""
        fresh, self._fresh, self.nbytes = self._fresh, {}, 0
        self._sweep(now_ms, SWEEP_LEAST + 2 * len(fresh))
        if fresh:
            times, replies = zip(*fresh.values(), strict=True)
            self._table.upsert(pa.table([list(fresh), times, replies], schema=SCHEMA))

    def _sweep(self, now_ms: int, most: int) -> None:
        """Look at the next rows; at the end begin anew."""
        seen = 0
        gone: list[tuple[str]] = []
        last = ""
        for batch in self._table.read(columns=["request_id", "ms"], between=((self._behind,), ()), limit=most):
            ids = batch.column("request_id").to_pylist()
            seen += len(ids)
            last = ids[-1] if ids else last
            gone += [
                (name,)
                for name, ms in zip(ids, batch.column("ms").to_pylist(), strict=True)
                if ms < now_ms - self._keep_ms
            ]
        self._behind = last if seen >= most else ""
        if gone:
            self._table.delete(gone)


def _unpack(data: bytes) -> KeptReply:
    value, *error = unpack(data)
    return KeptReply(value, TransactionAborted(*error) if error else None)
