"""Rows of a feed on their way through a batch function: from the queue to their replies, and as the input log has them.

A function that raises leaves nothing of a caller's request, not even a record. Rows of a feed are through with it all
the same: the record says what it raised, each row has that as its reply, or all of them are a dead letter, and a replay
does not run it again.
"""

from collections.abc import Collection, Sequence
from typing import Any

import msgspec
import pyarrow as pa

from tussock.compute.applications.borders.exact_json import json_part
from tussock.compute.applications.feeds.feed import BadMessage
from tussock.compute.functions.batches.batch_run import EndedBatch
from tussock.compute.functions.batches.columns_request import ColumnsRequest, from_bytes, to_bytes
from tussock.compute.functions.entities.replies import KeptReply
from tussock.compute.functions.epochs.request_records import FeedPlace
from tussock.compute.functions.errors import TransactionAborted
from tussock.compute.functions.program.directory import Operators
from tussock.statestore.rows.python_values import python_values

__all__ = ["FedColumns", "pack_rows", "unpack_rows"]

ENTITY_BYTES = 200
"""What Python takes for the name of one that a row touches."""
_NOWHERE = FeedPlace(b"")


class FedColumns:
    """Some rows of a feed, as one request; waits for its epoch as others do."""

    __slots__ = ("began", "failed", "feed", "given", "ids", "letters", "origin", "place", "request", "size")
    reply = None
    """As a request may have."""
    request_id: str | None = None
    """Each row has one."""
    is_alone = True
    """In its epoch."""

    def __init__(
        self,
        feed: str,
        request: ColumnsRequest,
        ids: list[str] | None,
        place: FeedPlace = _NOWHERE,
        letters: Sequence[BadMessage] = (),
        began: float = 0.0,
        given: pa.Table | None = None,
        origin: str = "",
    ) -> None:
        """`ids`: one a row, if rows have them. `given`: the rows as the feed gave them; of a replay `None`."""
        self.feed = feed
        self.given = given
        self.origin = origin
        """Where the rows are in the source."""
        self.request = request
        self.ids = ids
        self.place = place
        """Where the feed is behind the rows."""
        self.letters = letters
        """What could not be used between the rows."""
        self.began = began
        touched = sum(map(len, request.entities.values()))
        self.size = request.columns.nbytes + ENTITY_BYTES * touched + sum(len(one.data) for one in letters)
        """Bytes, about."""
        self.failed: TransactionAborted | None = None
        """What the function raised."""

    def without(self, known: Collection[str | None]) -> "FedColumns | None":
        """Those whose id is not known and comes for the first time; `None` if there are none."""
        if self.ids is None:
            return self
        seen = set(known)
        left = []
        for at, request_id in enumerate(self.ids):
            if request_id not in seen:
                seen.add(request_id)
                left.append(at)
        if len(left) == len(self.ids):
            return self
        if not left:
            return None
        function, columns, entities, _ = self.request
        request = ColumnsRequest(
            function,
            columns.take(pa.array(left)),
            {of: [ones[at] for at in left] for of, ones in entities.items()},
        )
        return FedColumns(
            self.feed,
            request,
            [self.ids[at] for at in left],
            given=None if self.given is None else self.given.take(pa.array(left)),
            origin=self.origin,
        )

    def replies(self, ended: EndedBatch) -> list[KeptReply]:
        """Of each row, in plain values."""
        function, kind = self.request.function, "TransactionAborted" if self.failed is None else self.failed.kind
        # What no plain value is, such as a decimal or a time, is told as JSON tells it.
        values = msgspec.to_builtins(
            python_values(ended.replies.column("reply")), builtin_types=(bytes,), enc_hook=json_part
        )
        errors = ended.replies.column("error").to_pylist()
        found = []
        for value, error, (_, key) in zip(values, errors, self.request.entities[None], strict=True):
            aborted = None
            if error is not None:
                aborted = TransactionAborted(error, kind, function.operator, key, function.name)
            found.append(KeptReply(value, aborted))
        return found


def pack_rows(rows: FedColumns) -> list[Any]:
    """Feed, requests, their ids, and what the function raised."""
    return [rows.feed, to_bytes(rows.request), rows.ids, [] if rows.failed is None else list(rows.failed.args)]


def unpack_rows(operators: Operators, name: str, packed: Sequence[Any]) -> FedColumns:
    """What `pack_rows` gave, for the function `name`, which is `OPERATOR.FUNCTION`."""
    feed, data, ids, failed = packed
    rows = FedColumns(feed, from_bytes(operators, name, data), ids)
    rows.failed = TransactionAborted(*failed) if failed else None
    return rows
