"""Epochs of batch functions, which run requests as columns: of callers, and of feeds."""

from collections.abc import Callable, Collection
from typing import Any

from tussock.compute.applications.durability.troubles import FEED
from tussock.compute.applications.errors import BadInput
from tussock.compute.applications.program import Outcome
from tussock.compute.applications.records import FED, Record, RecordKind
from tussock.compute.functions.batches.batch_run import EndedBatch, failed_batch
from tussock.compute.functions.batches.columns_request import ColumnsRequest, from_bytes, to_bytes
from tussock.compute.functions.comeback import Comeback
from tussock.compute.functions.entities.replies import FunctionReplies
from tussock.compute.functions.epochs.replay_errors import other_batch
from tussock.compute.functions.epochs.sequencer import EpochCount
from tussock.compute.functions.errors import TransactionAborted
from tussock.compute.functions.feeds.fed_columns import FedColumns, unpack_rows
from tussock.compute.functions.feeds.fed_epochs import FedEpochs, requests_of
from tussock.compute.functions.figures import Figures
from tussock.compute.functions.program.directory import Operators
from tussock.compute.functions.questions import Answer
from tussock.compute.functions.site import Site

__all__ = ["ColumnEpochs"]

ROWS_A_TRANSACTION = 10
"""As a recovery runs them again, about."""


class ColumnEpochs:
    """A part of a program's engine; for its thread."""

    def __init__(
        self,
        operators: Operators,
        site: Site,
        fed: FedEpochs,
        replies: FunctionReplies,
        count: EpochCount,
        figures: Figures,
        comeback: Comeback,
        now_ms: Callable[[], int],
    ) -> None:
        """All of them are the engine's, which runs epochs of other functions on them."""
        self._operators = operators
        self._site = site
        self._fed = fed
        self._replies = replies
        self._count = count
        self._figures = figures
        self._comeback = comeback
        self._now_ms = now_ms

    def run(self, request: ColumnsRequest, seq: int) -> Outcome:
        """Alone in its epoch. One whose function raises leaves nothing, and no record."""
        ended = self._comeback.through(lambda: self._through(request))
        if isinstance(ended, TransactionAborted):
            self._figures.note_fault(ended)
            return Outcome(error=ended)
        record = self._record(request, seq, to_bytes(request), ended)
        return Outcome((record,), value=ended.replies, nbytes=ended.replies.nbytes)

    def run_rows(self, rows: FedColumns, seq: int, known: Collection[str | None]) -> Outcome | None:
        """The same of a feed's rows, each of which has a reply, and for which there is a record in any case.

        Rows with an id that is `known` do not run. `None` if no other is left: the epoch has begun, for its end.
        """
        self._fed.begin_rows(rows)
        fresh = rows.without({*known})
        if fresh is None:
            return None
        batch = self._comeback.through(lambda: self._rows_through(fresh))
        self._tell(fresh)
        record = self._record(fresh.request, seq, self._fed.given_rows(fresh), batch)
        return Outcome((record,), value=self._answered(fresh, batch))

    def replay(self, record: Record) -> Callable[[], list[Answer]]:
        """Run again what was recorded, held to its result; returns what keeps the replies."""
        rows: FedColumns | None = None
        if record.given[:1] == FED:
            rows = unpack_rows(self._operators, record.name, requests_of(record.given))
            ended: EndedBatch | TransactionAborted = self._rows_through(rows)
        else:
            ended = self._through(from_bytes(self._operators, record.name, record.given))
        found: Any = None if isinstance(ended, TransactionAborted) else (ended.digest, self._count.epoch)
        if isinstance(ended, TransactionAborted) or found != (record.digest, record.batch_id):
            raise other_batch(record)
        batch = ended
        return lambda: self._fed.end(self._count.epoch) if rows is None else self._answered(rows, batch)

    def _tell(self, rows: FedColumns) -> None:
        """Of a batch that failed as a whole the log and the status say so, and some end the program."""
        host, failed, what = self._comeback.host, rows.failed, f"{FEED} {rows.feed}"
        assert host is not None
        if failed is None:
            host.troubles.end(what)
            return
        self._figures.note_fault(failed, rows.feed)
        host.troubles.note(what, BadInput(f"{rows.origin} have no result: {failed.told}"))
        self._fed.refuse_rows(rows, failed)

    def _record(self, request: ColumnsRequest, seq: int, given: bytes, ended: EndedBatch) -> Record:
        record = Record(seq, RecordKind.EPOCH, request.name, self._count.epoch, given, [], ended.digest)
        self._comeback.note(record)
        return record

    def _rows_through(self, rows: FedColumns) -> EndedBatch:
        # Of a replay it is known that the function raised.
        ended = rows.failed or self._through(rows.request)
        if isinstance(ended, TransactionAborted):
            rows.failed, ended = ended, failed_batch(rows.request, ended)
            self._note(rows.request, ended)
        return ended

    def _through(self, request: ColumnsRequest) -> EndedBatch | TransactionAborted:
        ended = self._site.run_columns(request)
        if not isinstance(ended, TransactionAborted):
            self._note(request, ended)
        return ended

    def _note(self, request: ColumnsRequest, ended: EndedBatch) -> None:
        self._count.pass_over(request.columns.num_rows)
        self._count.since_cut += request.columns.num_rows // ROWS_A_TRANSACTION
        self._figures.note_batch(ended)

    def _answered(self, rows: FedColumns, batch: EndedBatch) -> list[Answer]:
        replies, now_ms = rows.replies(batch), self._now_ms()
        for request_id, one in zip(rows.ids or (), replies, strict=False):
            self._replies.add(request_id, now_ms, one.value, one.aborted)
        self._fed.rows_answered(rows, replies)
        return self._fed.end(self._count.epoch)
