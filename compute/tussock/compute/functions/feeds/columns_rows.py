"""Makes requests for a batch function of the rows of a feed: many rows are one request."""

from collections.abc import Iterator

import pyarrow as pa

from tussock.compute.applications.feeds.feed import BadMessage, FedBatch
from tussock.compute.applications.ipc_streams import alone_bytes
from tussock.compute.functions.batches.columns_request import ColumnsRequest, columns_request
from tussock.compute.functions.epochs.request_records import FeedPlace
from tussock.compute.functions.errors import FunctionFault
from tussock.compute.functions.feeds.fed_columns import FedColumns
from tussock.compute.functions.feeds.request_feed import FedRow, RequestFeed, argument_columns, id_of, origin_of
from tussock.compute.functions.intake import EPOCH_BYTES_MAX
from tussock.compute.functions.program.directory import Operators
from tussock.statestore import SchemaMismatch

__all__ = ["ColumnsRows"]


class ColumnsRows:
    """Of one feed."""

    def __init__(
        self, operators: Operators, declared: RequestFeed, schema: pa.Schema, what: str, rows_max: int
    ) -> None:
        """`SchemaMismatch` if the feed's `schema` does not fit the function; `what` names the feed.

        `rows_max`: of one request.
        """
        self._rows_max = rows_max
        self._operators = operators
        self._declared = declared
        self._number, self._function = operators.function(declared.operator, declared.function)
        own, self._arguments = argument_columns(declared, schema, what)
        self._columns = list(dict.fromkeys([*own, *self._arguments]))
        absent = [column for column, _ in self._function.touches if column not in self._arguments]
        if len(set(self._arguments)) < len(self._arguments):
            raise SchemaMismatch(f"{what}: arguments= names a column twice, and a batch has each once")
        if absent:
            raise SchemaMismatch(f"{what}: its function touches the keys in {absent}, and gets {self._arguments}")
        kinds = {name: schema.field(name).type for name in self._arguments}
        other = [name for name, kind in kinds.items() if pa.types.is_nested(kind) or pa.types.is_dictionary(kind)]
        if other:
            raise SchemaMismatch(
                f"{what}: columns {other} are of nested or dictionary types, which no batch function gets: name "
                "others by arguments="
            )

    def rows(self, batch: FedBatch, since: int, now: float) -> Iterator[FedRow]:
        """All rows of a batch but the first `since`; `now` is of the monotonic clock."""
        number = since
        for chunk in _chunks(batch.rows.select(self._columns).slice(since), self._rows_max):
            try:
                yield self._row(batch, number + chunk.num_rows, chunk, (), now)
            except FunctionFault:
                bad = self._bad_rows(chunk, number, batch)
            else:
                number += chunk.num_rows
                continue
            if self._declared.feed.on_bad == "stop" and bad:
                # What comes before it runs, and the next start begins with it.
                first = min(bad)
                if first:
                    yield self._row(batch, number + first, chunk.slice(0, first), (), now)
                yield FedRow(number + first + 1, None, (bad[first],))
                return
            number += chunk.num_rows
            good = chunk.filter(pa.array([at not in bad for at in range(chunk.num_rows)]))
            letters = tuple(bad.values())
            yield self._row(batch, number, good, letters, now) if good.num_rows else FedRow(number, None, letters)

    def _row(self, batch: FedBatch, number: int, rows: pa.Table, letters: tuple[BadMessage, ...], now: float) -> FedRow:
        """`number`: rows of the batch up to the last of these. Raises `FunctionFault` if a row cannot be a request."""
        request, ids = self._request(rows)
        place = FeedPlace(b"", batch.span, number)
        origin = f"{rows.num_rows:,} rows up to row {number:,} of {batch.rows.num_rows:,} of {batch.place}"
        return FedRow(number, FedColumns(self._declared.name, request, ids, place, letters, now, rows, origin), ())

    def _request(self, rows: pa.Table) -> tuple[ColumnsRequest, list[str] | None]:
        declared, ids = self._declared, None
        if declared.request_id is not None:
            ids = [id_of(declared.request_id, given) for given in rows.column(declared.request_id).to_pylist()]
        columns = rows.select(self._arguments) if self._arguments else None
        keys = rows.column(declared.key)
        return columns_request(self._operators, self._number, self._function, keys, columns), ids

    def _bad_rows(self, chunk: pa.Table, before: int, batch: FedBatch) -> dict[int, BadMessage]:
        """By their places, those that cannot be requests."""
        found: dict[int, BadMessage] = {}
        for at in range(chunk.num_rows):
            row = chunk.slice(at, 1)
            try:
                self._request(row)
            except FunctionFault as error:
                origin = origin_of(batch, before + at + 1, row.column(self._declared.key)[0].as_py())
                found[at] = BadMessage(origin, alone_bytes(row), str(error))
        return found


def _chunks(rows: pa.Table, most: int) -> Iterator[pa.Table]:
    """At most that many rows, of no more bytes than an epoch takes; a larger row is alone."""
    at = 0
    while at < rows.num_rows:
        chunk = rows.slice(at, most)
        while chunk.nbytes > EPOCH_BYTES_MAX and chunk.num_rows > 1:
            chunk = chunk.slice(0, chunk.num_rows // 2)
        yield chunk
        at += chunk.num_rows
