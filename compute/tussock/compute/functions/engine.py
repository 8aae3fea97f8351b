"""The functions of a program as a `Program` of the runner: epochs of requests in, records out, and records again."""

from collections.abc import Callable, Sequence
from typing import Any, TypeVar

import msgspec

from tussock.compute.applications.durability.reply_clock import ReplyClock
from tussock.compute.applications.durability.troubles import STATE
from tussock.compute.applications.errors import NotDeterministic
from tussock.compute.applications.program import Host, Outcome
from tussock.compute.applications.records import Record, RecordKind
from tussock.compute.functions.comeback import Comeback, Interrupted
from tussock.compute.functions.entities.replies import FoundReplies, FunctionReplies
from tussock.compute.functions.epochs.digest import digest_of
from tussock.compute.functions.epochs.drawn_values import fresh_draws, keep_texts, take_draws
from tussock.compute.functions.epochs.epoch import REPLY_BYTES_MAX, EndedEpoch
from tussock.compute.functions.epochs.replay_errors import other_result
from tussock.compute.functions.epochs.request_records import (
    FunctionProgress,
    WaitingRecord,
    read_progress,
    unpack_request,
    waiting_of,
)
from tussock.compute.functions.epochs.sequencer import EpochCount
from tussock.compute.functions.epochs.transaction import FunctionRequest, FunctionTransaction
from tussock.compute.functions.errors import ReplayDiffers
from tussock.compute.functions.feeds.column_epochs import ColumnEpochs
from tussock.compute.functions.feeds.fed_columns import FedColumns
from tussock.compute.functions.feeds.fed_epochs import FedEpochs, Waiting, requests_of
from tussock.compute.functions.figures import Figures
from tussock.compute.functions.program.directory import Operators
from tussock.compute.functions.program.draws import TransactionDraws
from tussock.compute.functions.questions import Act, Answer, Look, NextColumns, NextEpoch, sorted_out
from tussock.compute.functions.site import Site
from tussock.statestore import TussockError
from tussock.statestore.base.logs import get_logger
from tussock.statestore.errors import MetaUnavailable, ObjectStoreUnavailable
from tussock.statestore.transactions.delta import Delta

__all__ = ["FunctionEngine"]

T = TypeVar("T")

log = get_logger("tussock.compute.functions")

RETRY_SECONDS = 0.5
TRANSACTION_BYTES = 256
"""By which a transaction counts: with 256 MiB between two commits a recovery has a million of them to run again."""


class FunctionEngine:
    """The functions of one program; a `Program`, and the `SiteHost` of its site."""

    def __init__(
        self,
        program: str,
        operators: Operators,
        site: Site,
        fed: FedEpochs,
        *,
        timeout: float,
        keep_replies_ms: int,
        code: str,
    ) -> None:
        """`timeout`: seconds that the run of a transaction may take. `code` is other where results may be."""
        self._program = program
        self._operators = operators
        self._site = site
        self.fed = fed
        self._timeout = timeout
        self._keep_replies_ms = keep_replies_ms
        self._code = code
        self.is_replay = False
        self._intent: Record | None = None
        """Of a replay, an epoch that asked outside and whose record has not come."""
        self._running: list[FunctionTransaction] = []
        self._count = EpochCount()
        self._requests: list[FunctionRequest] = []
        """Of the epoch that runs, those that are new in it."""
        restore: Callable[[], None] | None = getattr(site, "restore", None)
        self._comeback = Comeback(program, restore, self._again)
        self._lost: Interrupted | None = None
        """While a loss is being made good."""
        self.figures = Figures()

    # --- As a program ------------------------------------------------------------------------------------------------

    def load(self, delta: Delta, state: bytes, host: Host) -> None:
        """Begin on these tables."""
        self._host = host
        self.system = delta.system
        self._replies = FunctionReplies(self._program, delta, self._keep_replies_ms)
        self._clock = ReplyClock(delta.system)
        self.figures.log_faults(self._program, self.system.monotonic)
        self._columns = ColumnEpochs(
            self._operators,
            self._site,
            self.fed,
            self._replies,
            self._count,
            self.figures,
            self._comeback,
            self._clock.stamp_ms,
        )
        self.fed.load(delta, self._begin_at(state))
        self._site.open(delta, self)
        self._comeback.begin(host, state)

    def _begin_at(self, state: bytes) -> FunctionProgress:
        known = read_progress(self._program, state)
        self._count.begin(known.epoch, known.given, known.sequenced)
        self.deferred = [self._restored(one) for one in known.deferred]
        return known

    def unload(self) -> None:
        """Nothing runs any more."""
        self._site.close()

    @property
    def nbytes(self) -> int:
        """What the next commit writes, and for each transaction what running it again takes."""
        again = self._comeback.nbytes + TRANSACTION_BYTES * self._count.since_cut
        return self._site.dirty_bytes + self._replies.nbytes + again

    def persist(self) -> bytes:
        """For a commit."""
        self._comeback.through(self._site.persist)
        self._count.since_cut = 0
        self._replies.persist(self._clock.expiry_ms())
        count = self._count
        waiting, fed = waiting_of(self.deferred), self.fed.persist()
        progress = FunctionProgress(
            count.epoch, count.given, waiting, *fed, self._code, count.feeds, self.fed.reply_tables
        )
        state = msgspec.msgpack.encode(progress)
        self._comeback.note_cut(state)
        return state

    def run(self, what: Any, seq: int) -> Outcome:
        """An epoch, or a look."""
        if type(what) is NextEpoch:
            return self._run_next(what, seq)
        if type(what) is NextColumns:
            return self._columns.run(what.request, seq)
        if type(what) is Act:
            return what.act(seq)
        assert isinstance(what, Look)
        try:
            return Outcome(value=what.look())
        except TussockError as error:
            return Outcome(error=error)

    def replay(self, record: Record) -> None:
        """Run an epoch again that was recorded, held to its result."""
        if record.kind == RecordKind.INTENT:
            self._intent = record
            return
        if record.kind == RecordKind.SENT:
            self.fed.note_sent(record.name, record.batch_id)
            return
        if record.kind not in (RecordKind.EPOCH, RecordKind.SEQUENCERS):
            raise NotDeterministic(
                f"record {record.seq} of the input log is of kind {record.kind}, which functions do not write: another "
                f"application has been called {self._program!r}"
            )
        self._intent = None
        self.fed.again(record.given)
        self._comeback.through(lambda: self._replay(record))()
        self._comeback.note(record)

    def _replay(self, record: Record) -> Callable[[], list[Answer]]:
        """Returns what keeps the replies, which outlive a loss of workers."""
        if record.kind == RecordKind.SEQUENCERS:
            self._count.divide_again(record)
            self.fed.know(self._count.feeds)
            return list
        if record.name:
            return self._columns.replay(record)
        self.is_replay = True
        try:
            ended, again = self._run_once(self._unpacked(record.given), record.seq, record.drawn, is_whole=True)
        except ReplayDiffers as error:
            raise NotDeterministic(f"record {record.seq} of the input log: {error}") from error
        finally:
            self.is_replay = False
        if again.digest != record.digest or self._count.epoch != record.batch_id:
            raise other_result(record, self._program, ended, self._count.epoch)
        return lambda: self._answered(ended.ended)

    def resume(self, seq: int) -> Sequence[Outcome]:
        """After the replay: the epoch that was about to ask outside, and sequencers for the feeds as they are now."""
        intent, self._intent = self._intent, None
        records = []
        if intent is not None:
            self.fed.again(intent.given)
            ended, record = self._run_epoch(self._unpacked(intent.given), seq, intent.drawn, is_whole=True)
            self._answered(ended.ended)
            records.append(record)
        if (divided := self._count.divide(seq + len(records), self.fed.feeds)) is not None:
            self._comeback.note(divided)
            records.append(divided)
        return [Outcome((one,)) for one in records]

    # --- For users to look at ----------------------------------------------------------------------------------------

    def query(self, operator: str, key: Any) -> dict[str, Any] | None:
        """The newest state of an entity; between two epochs."""
        number = self._operators.number(operator)
        self._operators.check_key(number, key)
        return self._comeback.through(lambda: self._site.query((number, key)))

    def stats(self) -> dict[str, Any]:
        """Figures of this run; in any thread."""
        return {
            "epoch": self._count.epoch,
            "tid": self._count.tid,
            "deferred": len(self.deferred),
            **self._site.stats(),
            **self.figures.stats(),
        }

    def move(self, change: Callable[[], None]) -> None:
        """Commit all there is, then let the site change; between two epochs."""
        self._host.commit_now()
        self._comeback.through(change)

    # --- An epoch ----------------------------------------------------------------------------------------------------

    def _run_next(self, what: NextEpoch, seq: int) -> Outcome:
        taken = what.take()
        if taken is None:
            what.ended(bool(self.deferred))
            return Outcome(value=())
        if taken and type(taken[0]) is FedColumns:
            outcome = self._run_rows(taken[0], seq)
            what.ended(bool(self.deferred))
            return outcome
        known = self._known_replies(taken)
        left, taken = taken[known.until :], taken[: known.until]
        requests, answers = sorted_out(self.fed.begin(taken), known.replies, self.deferred)
        nbytes, records = known.nbytes, list[Record]()
        if requests or self.deferred or self.fed.is_crossing:
            ended, record = self._run_epoch(requests, seq)
            records.append(record)
            left = [*self.fed.take_left(), *left]
            self._requests = []
            answers += self._answered(ended.ended)
            nbytes += ended.reply_bytes
        if left:
            # Those answers come again when their turn has come.
            later = {id(one.reply) for one in left}
            answers = [one for one in answers if id(one.reply) not in later]
            what.put_back(left)
        what.ended(bool(self.deferred))
        return Outcome(records, value=answers, nbytes=nbytes)

    def _run_rows(self, rows: FedColumns, seq: int) -> Outcome:
        """An epoch of rows for a batch function, of those that are new."""
        known = {
            *self._through_outages(lambda: self._replies.known(rows.ids or ())),
            *[one.request.request_id for one in self.deferred],
        }
        outcome = self._columns.run_rows(rows, seq, known)
        if outcome is None:
            ended, record = self._run_epoch([], seq)
            outcome = Outcome((record,), value=self._answered(ended.ended))
        return outcome

    def _known_replies(self, taken: Sequence[Waiting]) -> FoundReplies:
        ids = [one.request_id for one in taken]
        if not any(ids):
            return FoundReplies({}, 0, len(ids))
        return self._through_outages(lambda: self._replies.find_many(ids, REPLY_BYTES_MAX))

    def _through_outages(self, look: Callable[[], T]) -> T:
        while True:
            try:
                return look()
            except TussockError as error:
                self.wait_for_store(error)

    def _run_epoch(
        self, requests: list[FunctionRequest], seq: int, drawn: Sequence[Any] = (), *, is_whole: bool = False
    ) -> tuple[EndedEpoch, Record]:
        """A new one. `is_whole`: it does not end early, whatever its replies take."""
        tries = 0

        def run() -> tuple[EndedEpoch, Record]:
            nonlocal tries
            tries += 1
            # What was drawn before a loss stays: a call outside is made once, if its answer has come.
            again = drawn if tries == 1 else fresh_draws(self._running)
            return self._run_once(requests, seq, again, is_whole=is_whole)

        ended, record = self._comeback.through(run)
        self._comeback.note(record)
        return ended, record

    def _run_once(
        self, requests: list[FunctionRequest], seq: int, drawn: Sequence[Any], *, is_whole: bool
    ) -> tuple[EndedEpoch, Record]:
        self._seq = seq
        numbers, requests = self._count.next(requests)
        self._requests = requests
        epoch = self._count.epoch
        transactions = [*self.deferred, *map(FunctionTransaction, numbers, requests)]
        self._running = transactions
        take_draws(transactions, drawn, self.draws, is_replay=self.is_replay)
        ended = self._site.run_epoch(epoch, transactions, len(transactions if is_whole else self.deferred))
        if ended.left:
            self.fed.end_before(requests[-ended.left :])
            requests, transactions = requests[: -ended.left], transactions[: -ended.left]
            self._count.take_back(transactions[-1].tid if requests else None)
        self.deferred = ended.deferred
        self._count.since_cut += len(transactions)
        self._running = []
        keep_texts(ended.ended, self.draws, is_replay=self.is_replay)
        self.figures.note(epoch, ended, self._operators)
        digest = digest_of(ended.ended, [one.tid for one in ended.deferred], ended.written)
        given = self.fed.given(requests)
        fresh = fresh_draws(transactions)
        for one in transactions:
            if one.draws is not None:
                one.draws.fresh = []
        return ended, Record(seq, RecordKind.EPOCH, "", epoch, given, fresh, digest)

    def _again(self, state: bytes, records: Sequence[Record]) -> None:
        """After a loss: what came since the newest cut; callers of those that were deferred still wait."""
        if self._lost is None:
            waiting = {one.tid: one.request for one in (*self.deferred, *self._running)}
            self._lost = Interrupted(self._running, waiting, self.is_replay)
        self.figures.is_again = True
        self._begin_at(state)
        for record in records:
            self._replay(record)
        self.figures.is_again = False
        lost, self._lost = self._lost, None
        for one in self.deferred:
            one.request = lost.waiting.get(one.tid, one.request)
        self._running, self.is_replay = lost.running, lost.is_replay

    # --- For the site ------------------------------------------------------------------------------------------------

    def wait_for_store(self, error: Exception) -> None:
        """An outage of the store is no result of a function: all wait. Raises what will not pass."""
        if not isinstance(error, ObjectStoreUnavailable | MetaUnavailable):
            raise error
        self._host.troubles.note(STATE, error)
        log.warning("functions wait for the store", program=self._program, error=str(error))
        self.system.sleep(RETRY_SECONDS)

    def draws(self, one: FunctionTransaction) -> TransactionDraws:
        """What a transaction drew, and draws."""
        if one.draws is None:
            one.draws = TransactionDraws(self.system, self.before_call)
        one.draws.is_replay = self.is_replay
        return one.draws

    def before_call(self) -> None:
        """Make durable what led to a call outside: the epoch's requests, and what they have drawn so far."""
        self._site.excuse(self._write_intent)

    def _write_intent(self) -> None:
        given = self.fed.given(self._requests)
        drawn = fresh_draws(self._running)
        self._host.write_now(Record(self._seq, RecordKind.INTENT, "", self._count.epoch, given, drawn, None))

    def _answered(self, ended: Sequence[FunctionTransaction]) -> list[Answer]:
        """The replies, kept where the request has an id, and put where the feed of it says."""
        answers = []
        now_ms = self._clock.stamp_ms()
        self.fed.answered(ended)
        for one in ended:
            run, request = one.run, one.request
            assert run is not None
            if request.request_id is not None:
                self._replies.add(request.request_id, now_ms, run.value, run.aborted)
            answers.append(Answer(request.reply, run.value, run.aborted))
        return answers + self.fed.end(self._count.epoch)

    # --- Within ------------------------------------------------------------------------------------------------------

    def _unpacked(self, given: bytes) -> list[FunctionRequest]:
        return [unpack_request(self._operators, self._program, one) for one in requests_of(given)]

    def _restored(self, waiting: WaitingRecord) -> FunctionTransaction:
        one = FunctionTransaction(waiting.tid, unpack_request(self._operators, self._program, waiting.request))
        for name, value in waiting.draws.items():
            self.draws(one).keep(name, value)
        return one

    def hang(self) -> None:
        """A function cannot be stopped. In any thread."""
        self._host.give_up(
            f"program {self._program!r}: a function did not return within {self._timeout:g} s, and cannot be stopped: "
            "it waits in a library; the next start runs its epoch again"
        )
