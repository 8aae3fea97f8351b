"""What a program declares of a feed: which function its rows ask for, and how a row becomes a request."""

from collections.abc import Iterator
from typing import NamedTuple

import pyarrow as pa

from tussock.compute.applications.feeds.feed import BadMessage, FedBatch, InputFeed
from tussock.compute.functions.epochs.transaction import FedPart, FunctionRequest
from tussock.compute.functions.errors import FunctionFault
from tussock.compute.functions.program.directory import Operators
from tussock.statestore import SchemaMismatch

__all__ = ["REQUEST_ID_MAX", "FedRow", "RequestFeed", "RequestRows"]

REQUEST_ID_MAX = 200
"""Characters of a request's id."""
CHUNK_ROWS = 1000
"""Of a batch, that are Python's objects at a time."""


class RequestFeed(NamedTuple):
    """A feed of a program, as declared."""

    name: str
    feed: InputFeed
    operator: str
    function: str
    key: str
    """The column that names the entity."""
    arguments: tuple[str, ...] | None
    """Columns, in the order of the arguments; `None`: all others, as they come."""
    request_id: str | None
    """The column with the ids."""
    replies: str | None
    """The name of the output."""


class FedRow(NamedTuple):
    """One row of a batch: a request, or what is wrong with it."""

    number: int
    """Rows of the batch up to this one."""
    request: FunctionRequest | None
    bad: BadMessage | None


class RequestRows:
    """Makes requests of the rows of one feed."""

    def __init__(self, operators: Operators, declared: RequestFeed, schema: pa.Schema, what: str) -> None:
        """`SchemaMismatch` if the feed's `schema` lacks a column; `what` names the feed."""
        self._operators = operators
        self._declared = declared
        own = [declared.key, *([] if declared.request_id is None else [declared.request_id])]
        arguments = declared.arguments
        self._arguments = [name for name in schema.names if name not in own] if arguments is None else list(arguments)
        self._columns = [*own, *self._arguments]
        missing = [name for name in self._columns if name not in schema.names]
        if missing:
            raise SchemaMismatch(f"{what}: its requests need the columns {missing}, and the feed has {schema.names}")

    def rows(self, batch: FedBatch, since: int, now: float) -> Iterator[FedRow]:
        """All rows of a batch but the first `since`; `now` is of the monotonic clock."""
        number = since
        for chunk in batch.rows.select(self._columns).slice(since).to_batches(max_chunksize=CHUNK_ROWS):
            columns = [column.to_pylist() for column in chunk.columns]
            for at, values in enumerate(zip(*columns, strict=True)):
                number += 1
                try:
                    yield FedRow(
                        number, self._request(values, FedPart(self._declared.name, batch.span, number), now), None
                    )
                except FunctionFault as error:
                    origin = f"row {number:,} of {batch.rows.num_rows:,} of a batch"
                    yield FedRow(number, None, BadMessage(origin, _ipc(chunk.slice(at, 1)), str(error)))

    def _request(self, values: tuple[object, ...], part: FedPart, now: float) -> FunctionRequest:
        declared = self._declared
        key, *rest = values
        request_id = None
        if declared.request_id is not None:
            # Where the key and the id are one column, it is there twice.
            given = rest.pop(0)
            request_id = str(given) if type(given) in (str, int) else ""
            if not 0 < len(request_id) <= REQUEST_ID_MAX:
                raise FunctionFault(
                    f"column {declared.request_id!r} has the id {given!r:.100}; expected an integer, or a string of 1 "
                    f"to {REQUEST_ID_MAX} characters"
                )
        target = self._operators.target(declared.operator, key, declared.function, tuple(rest))  # type: ignore[arg-type]
        return FunctionRequest(target, request_id, None, now, part)


def _ipc(rows: pa.RecordBatch) -> bytes:
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, rows.schema) as writer:
        writer.write_batch(rows)
    return sink.getvalue().to_pybytes()
