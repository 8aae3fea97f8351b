"""What a program declares of a feed: which function its rows ask for, and how a row becomes a request."""

from collections.abc import Iterator
from typing import NamedTuple

import pyarrow as pa

from tussock.compute.applications.feeds.feed import BadMessage, FedBatch, InputFeed
from tussock.compute.applications.ipc_streams import alone_bytes
from tussock.compute.functions.epochs.transaction import FedPart, FunctionRequest
from tussock.compute.functions.errors import FunctionFault
from tussock.compute.functions.feeds.fed_columns import FedColumns
from tussock.compute.functions.option_checks import REQUEST_ID_MAX, is_request_id
from tussock.compute.functions.program.directory import Operators
from tussock.statestore import SchemaMismatch

__all__ = ["FedRow", "RequestFeed", "RequestRows", "argument_columns", "id_of", "origin_of"]

CHUNK_ROWS = 1000
"""Of a batch, that are Python's objects at a time."""
_SCALARS = (
    *(pa.types.is_null, pa.types.is_boolean, pa.types.is_integer, pa.types.is_floating),
    *(pa.types.is_string, pa.types.is_large_string, pa.types.is_string_view),
    *(pa.types.is_binary, pa.types.is_large_binary, pa.types.is_binary_view, pa.types.is_fixed_size_binary),
)
"""Types whose values are plain ones."""


class RequestFeed(NamedTuple):
    """A feed of a program, as declared."""

    name: str
    feed: InputFeed
    operator: str
    function: str
    key: str
    """The column that names the entity."""
    arguments: tuple[str, ...] | None
    """Columns, in the order of the arguments; `None`: all others, by the names of the function's parameters."""
    request_id: str | None
    """The column with the ids."""
    replies: str | None
    """The name of the output."""


class FedRow(NamedTuple):
    """One row of a batch, or many for a batch function: a request, or what is wrong with it."""

    number: int
    """Rows of the batch up to this one."""
    request: FunctionRequest | FedColumns | None
    bad: tuple[BadMessage, ...]
    """If there is no request."""


class RequestRows:
    """Makes requests of the rows of one feed."""

    def __init__(self, operators: Operators, declared: RequestFeed, schema: pa.Schema, what: str) -> None:
        """`SchemaMismatch` if the feed's `schema` lacks a column; `what` names the feed."""
        self._operators = operators
        self._declared = declared
        own, arguments = argument_columns(declared, schema, what)
        function = operators.function(declared.operator, declared.function)[1]
        try:
            if declared.arguments is None:
                arguments = function.ordered(arguments)
            else:
                function.check_number(len(arguments))
        except FunctionFault as error:
            way = "" if declared.arguments is not None else "; or say by arguments= which columns are its arguments"
            raise SchemaMismatch(f"{what}: {error}{way}") from error
        for column in arguments:
            kind = schema.field(column).type
            if not _is_plain(kind):
                raise SchemaMismatch(
                    f"{what}: column {column!r} is of type {kind}, which no argument can have: leave it out of "
                    "arguments=, or store it as a number or text"
                )
        self._columns = [*own, *arguments]

    def rows(self, batch: FedBatch, since: int, now: float) -> Iterator[FedRow]:
        """All rows of a batch but the first `since`; `now` is of the monotonic clock."""
        number = since
        for chunk in batch.rows.select(self._columns).slice(since).to_batches(max_chunksize=CHUNK_ROWS):
            columns = [column.to_pylist() for column in chunk.columns]
            for at, values in enumerate(zip(*columns, strict=True)):
                number += 1
                try:
                    yield FedRow(
                        number, self._request(values, FedPart(self._declared.name, batch.span, number), now), ()
                    )
                except FunctionFault as error:
                    origin = origin_of(batch, number, values[0])
                    yield FedRow(number, None, (BadMessage(origin, alone_bytes(chunk, at, 1), str(error)),))

    def _request(self, values: tuple[object, ...], part: FedPart, now: float) -> FunctionRequest:
        declared = self._declared
        key, *rest = values
        request_id = None
        if declared.request_id is not None:
            # Where the key and the id are one column, it is there twice.
            request_id = id_of(declared.request_id, rest.pop(0))
        target = self._operators.target(declared.operator, key, declared.function, tuple(rest))  # type: ignore[arg-type]
        return FunctionRequest(target, request_id, None, now, part)


def argument_columns(declared: RequestFeed, schema: pa.Schema, what: str) -> tuple[list[str], list[str]]:
    """The columns of key and id, and those of the arguments; `SchemaMismatch` if the feed's `schema` lacks one."""
    own = [declared.key, *([] if declared.request_id is None else [declared.request_id])]
    arguments = declared.arguments
    found = [name for name in schema.names if name not in own] if arguments is None else list(arguments)
    missing = [name for name in [*own, *found] if name not in schema.names]
    if missing:
        raise SchemaMismatch(f"{what}: its requests need the columns {missing}, and the feed has {schema.names}")
    return own, found


def origin_of(batch: FedBatch, number: int, key: object) -> str:
    """Where the row of that number is, counted from 1, and which key it has."""
    return f"row {number:,} of {batch.rows.num_rows:,} of {batch.place}, key {key!r:.100}"


def _is_plain(kind: pa.DataType) -> bool:
    """Whether Python has values of a type of Arrow as plain values."""
    if pa.types.is_struct(kind):
        return all(_is_plain(field.type) for field in kind)
    if pa.types.is_map(kind):
        return _is_plain(kind.key_type) and _is_plain(kind.item_type)
    if pa.types.is_nested(kind) or pa.types.is_dictionary(kind):
        return not pa.types.is_union(kind) and _is_plain(kind.value_type)
    return any(is_of(kind) for is_of in _SCALARS)


def id_of(column: str, given: object) -> str:
    """The id of a request; `FunctionFault` if it cannot be one."""
    request_id = str(given) if type(given) in (str, int) else ""
    if not is_request_id(request_id):
        raise FunctionFault(
            f"column {column!r} has the id {given!r:.100}; expected an integer, or a string of 1 to {REQUEST_ID_MAX} "
            "characters"
        )
    return request_id
