"""What requests with an id were answered, so that one that comes again gets its first reply, and does not run again.

Rows of table `PROGRAM.replies`, by request id. A reply stays for as long as the program says, and a little longer:
with each commit some rows, in turn, are looked at, and those that are too old go.
"""

from collections.abc import Iterable, Iterator, Sequence
from typing import Any, NamedTuple

import pyarrow as pa

from tussock.compute.functions.errors import TransactionAborted
from tussock.compute.functions.program.values import pack, unpack
from tussock.statestore.base.damage import UNREADABLE
from tussock.statestore.transactions.delta import Delta

__all__ = ["REPLIES_SCHEMA", "FoundReplies", "FunctionReplies", "KeptReply", "replies_table"]

SWEEP_LEAST = 1000
READ_LEAST = 32
"""Requests whose replies are read together: each may be of 1 MiB."""
REPLY_BYTES = 200
"""What Python takes for one that is empty."""
REPLIES_SCHEMA = pa.schema(
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


class FoundReplies(NamedTuple):
    """Of requests, those that were answered before."""

    replies: dict[str, KeptReply]
    nbytes: int
    """What they take."""
    until: int
    """The place of the first request behind which no reply was looked for, as those before take all that may be."""


def replies_table(program: str) -> str:
    """The name of the table."""
    return f"{program}.replies"


class FunctionReplies:
    """The replies of one run, for the thread that runs the program."""

    def __init__(self, program: str, delta: Delta, keep_ms: int) -> None:
        """The table is there."""
        self._name = replies_table(program)
        self._table = delta.table(self._name)
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

    def known(self, request_ids: Iterable[str]) -> set[str]:
        """Those that were answered before."""
        ids = set(request_ids)
        found = ids & self._fresh.keys()
        unknown = list(ids - found)
        if unknown:
            # Without the replies, which may be large.
            rows = self._table.multi_get(unknown, columns=["ms"]).to_pylist()
            found.update([one for one, row in zip(unknown, rows, strict=True) if row is not None])
        return found

    def find_many(self, request_ids: Sequence[str | None], bytes_max: int) -> FoundReplies:
        """The replies of requests that were answered before, in their order, until they take that much."""
        known = self.known([one for one in request_ids if one is not None])
        replies: dict[str, KeptReply] = {}
        nbytes = 0
        for start in range(0, len(request_ids) if known else 0, READ_LEAST):
            part = [one for one in request_ids[start : start + READ_LEAST] if one in known and one not in replies]
            if nbytes >= bytes_max and part:
                return FoundReplies(replies, nbytes, start)
            for request_id, packed in self._packed(part):
                nbytes += len(packed)
                replies[request_id] = self._read(request_id, packed)
        return FoundReplies(replies, nbytes, len(request_ids))

    def _packed(self, known: list[Any]) -> Iterator[tuple[str, bytes]]:
        stored = []
        for request_id in known:
            if request_id in self._fresh:
                yield request_id, self._fresh[request_id][1]
            else:
                stored.append(request_id)
        if stored:
            rows = self._table.multi_get(stored, columns=["reply"]).to_pylist()
            yield from [(one, row["reply"]) for one, row in zip(stored, rows, strict=True) if row is not None]

    def _read(self, request_id: str, data: bytes) -> KeptReply:
        """Somebody else may have written to the table while no program ran: that is one request's misfortune."""
        try:
            return _unpack(data)
        except (*UNREADABLE, TypeError, ValueError) as error:
            told = (
                f"request {request_id!r} has run before, and its reply in table {self._name!r} cannot be read: "
                f"{error}; it does not run again: delete the row, to let it"
            )
            return KeptReply(None, TransactionAborted(told, "DamagedReply", "", "", ""))

    def persist(self, now_ms: int) -> None:
        """Write what is new into the delta, and take out some of what is too old."""
        fresh, self._fresh, self.nbytes = self._fresh, {}, 0
        self._sweep(now_ms, SWEEP_LEAST + 2 * len(fresh))
        if fresh:
            times, replies = zip(*fresh.values(), strict=True)
            self._table.upsert(pa.table([list(fresh), times, replies], schema=REPLIES_SCHEMA))

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
