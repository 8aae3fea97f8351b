"""The functions of a program as a `Program` of the runner: epochs of requests in, records out, and records again."""

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple, TypeVar

import msgspec

from tussock.compute.applications.errors import NotDeterministic
from tussock.compute.applications.program import Host, Outcome
from tussock.compute.applications.records import Record, RecordKind
from tussock.compute.functions.batches.batch_run import EndedBatch
from tussock.compute.functions.batches.columns_request import ColumnsRequest, from_bytes, to_bytes
from tussock.compute.functions.comeback import Comeback
from tussock.compute.functions.entities.replies import FunctionReplies, KeptReply
from tussock.compute.functions.epochs.digest import digest_of
from tussock.compute.functions.epochs.drawn_values import fresh_draws, take_draws
from tussock.compute.functions.epochs.epoch import EndedEpoch
from tussock.compute.functions.epochs.request_records import (
    FunctionProgress,
    WaitingRecord,
    names_of,
    read_progress,
    unpack_request,
    waiting_of,
)
from tussock.compute.functions.epochs.sequencer import Sequencer, rebalance
from tussock.compute.functions.epochs.transaction import FunctionRequest, FunctionTransaction
from tussock.compute.functions.errors import ReplayDiffers, TransactionAborted
from tussock.compute.functions.feeds.fed_epochs import FedEpochs, requests_of
from tussock.compute.functions.figures import Figures
from tussock.compute.functions.program.directory import Operators
from tussock.compute.functions.program.draws import TransactionDraws
from tussock.compute.functions.questions import Act, Answer, Look, NextColumns, NextEpoch
from tussock.compute.functions.site import Site
from tussock.statestore import TussockError
from tussock.statestore.base.logs import get_logger
from tussock.statestore.errors import MetaUnavailable, ObjectStoreUnavailable
from tussock.statestore.transactions.delta import Delta

T = TypeVar("T")

__all__ = ["FunctionEngine"]

log = get_logger("tussock.compute.functions")

RETRY_SECONDS = 0.5
TRANSACTION_BYTES = 256
"""By which a transaction counts: with 256 MiB between two commits a recovery has a million of them to run again."""


class _Interrupted(NamedTuple):
    """What a loss of workers has interrupted."""

    running: list[FunctionTransaction]
    waiting: dict[int, FunctionRequest]
    """By number, as callers wait for their replies."""
    is_replay: bool


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
    ) -> None:
        """`timeout`: seconds that the run of a transaction may take."""
        self._program = program
        self._operators = operators
        self._site = site
        self.fed = fed
        self._timeout = timeout
        self._keep_replies_ms = keep_replies_ms
        self.is_replay = False
        self._intent: Record | None = None
        """Of a replay, an epoch that asked outside and whose record has not come."""
        self._running: list[FunctionTransaction] = []
        self._since_cut = 0
        self._requests: list[FunctionRequest] = []
        """Of the epoch that runs, those that are new in it."""
        self._begin_again: Callable[[], None] | None = getattr(site, "restore", None)
        self._comeback = None if self._begin_again is None else Comeback(program, self._begin_again, self._again)
        self._lost: _Interrupted | None = None
        """While a loss is being made good."""
        self.figures = Figures()

    # --- As a program ------------------------------------------------------------------------------------------------

    def load(self, delta: Delta, state: bytes, host: Host) -> None:
        """Begin on these tables."""
        self._host = host
        self.system = delta.system
        self._replies = FunctionReplies(self._program, delta, self._keep_replies_ms)
        self.fed.load(delta, self._begin_at(state))
        self._site.open(delta, self)
        if self._comeback is not None and self._begin_again is not None:
            self._comeback.host = host
            self._comeback.note_cut(state)
            self._comeback.through(self._begin_again)

    def _begin_at(self, state: bytes) -> FunctionProgress:
        known = read_progress(self._program, state)
        self.epoch = known.epoch
        count = len(known.given)
        self._sequencers = [Sequencer(at + 1, count, given) for at, given in enumerate(known.given)]
        self.deferred = [self._restored(one) for one in known.deferred]
        return known

    def unload(self) -> None:
        """Nothing runs any more."""
        self._site.close()

    @property
    def nbytes(self) -> int:
        """What the next commit writes, and for each transaction what running it again takes."""
        kept = 0 if self._comeback is None else self._comeback.nbytes
        return self._site.dirty_bytes + self._replies.nbytes + kept + TRANSACTION_BYTES * self._since_cut

    def persist(self) -> bytes:
        """For a commit."""
        self._surely(self._site.persist)
        self._since_cut = 0
        self._replies.persist(self.system.now_ms())
        given = [one.given for one in self._sequencers]
        progress = FunctionProgress(self.epoch, given, waiting_of(self.deferred), *self.fed.persist())
        state = msgspec.msgpack.encode(progress)
        if self._comeback is not None:
            self._comeback.note_cut(state)
        return state

    def run(self, what: Any, seq: int) -> Outcome:
        """An epoch, or a look."""
        if type(what) is NextEpoch:
            return self._run_next(what, seq)
        if type(what) is NextColumns:
            return self._run_columns(what.request, seq)
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
        if record.kind != RecordKind.EPOCH:
            raise NotDeterministic(
                f"record {record.seq} of the input log is of kind {record.kind}, which functions do not write: another "
                f"application has been called {self._program!r}"
            )
        self._intent = None
        self.fed.again(record.given)
        self._answered(self._surely(lambda: self._replay(record)))
        self._note(record)

    def _replay(self, record: Record) -> Sequence[FunctionTransaction]:
        if record.name:
            self._replay_columns(record)
            return ()
        self.is_replay = True
        try:
            ended, again = self._run_once(self._unpacked(record.given), record.seq, record.drawn)
        except ReplayDiffers as error:
            raise NotDeterministic(f"record {record.seq} of the input log: {error}") from error
        finally:
            self.is_replay = False
        if again.digest != record.digest or self.epoch != record.batch_id:
            raise NotDeterministic(
                f"record {record.seq} of the input log: epoch {record.batch_id} of program {self._program!r} had "
                f"another result when it ran first ({names_of(ended.ended)}): functions have to depend on their "
                "arguments, their entities and what ctx gives, and may not change between a crash and the next start"
            )
        return ended.ended

    def resume(self, seq: int) -> Sequence[Outcome]:
        """After the replay: the epoch that was about to ask outside."""
        intent, self._intent = self._intent, None
        if intent is None:
            return ()
        self.fed.again(intent.given)
        ended, record = self._run_epoch(self._unpacked(intent.given), seq, intent.drawn)
        self._answered(ended.ended)
        return (Outcome((record,)),)

    # --- For users to look at ----------------------------------------------------------------------------------------

    def query(self, operator: str, key: Any) -> dict[str, Any] | None:
        """The newest state of an entity; between two epochs."""
        number = self._operators.number(operator)
        self._operators.check_key(number, key)
        return self._surely(lambda: self._site.query((number, key)))

    def stats(self) -> dict[str, Any]:
        """Figures of this run; in any thread."""
        return {
            "epoch": self.epoch,
            "tid": max(one.given for one in self._sequencers) * len(self._sequencers),
            "deferred": len(self.deferred),
            **self._site.stats(),
            **self.figures.stats(),
        }

    def move(self, change: Callable[[], None]) -> None:
        """Commit all there is, then let the site change; between two epochs."""
        self._host.commit_now()
        self._surely(change)

    # --- An epoch ----------------------------------------------------------------------------------------------------

    def _run_next(self, what: NextEpoch, seq: int) -> Outcome:
        requests, answers = self._sorted_out(self.fed.begin(what.take()))
        records: list[Record] = []
        if requests or self.deferred or self.fed.is_crossing:
            ended, record = self._run_epoch(requests, seq)
            records.append(record)
            answers += self._answered(ended.ended)
        what.ended(bool(self.deferred))
        return Outcome(records, value=answers)

    def _sorted_out(self, requests: Sequence[FunctionRequest]) -> tuple[list[FunctionRequest], list[Answer]]:
        """Those to run, and the replies to those that were answered before."""
        ids = [one.request_id for one in requests if one.request_id is not None]
        if not ids:
            return list(requests), []
        known = self._known_replies(ids)
        # One may be among those that an epoch left to the next one, this one, or come twice in it: of a feed, and of
        # a caller, who asks again after a crash.
        firsts = {one.request.request_id: one.request for one in self.deferred}
        fresh, answers = [], []
        for one in requests:
            request_id = one.request_id
            if request_id in known:
                answers.append(Answer(one.reply, known[request_id].value, known[request_id].aborted))
            elif request_id is None or (first := firsts.setdefault(request_id, one)) is one:
                fresh.append(one)
            else:
                first.reply = first.reply or one.reply
        return fresh, answers

    def _known_replies(self, request_ids: Sequence[str]) -> dict[str, KeptReply]:
        while True:
            try:
                return self._replies.find_many(request_ids)
            except TussockError as error:
                self.wait_for_store(error)

    def _run_epoch(
        self, requests: list[FunctionRequest], seq: int, drawn: Sequence[Any] = ()
    ) -> tuple[EndedEpoch, Record]:
        """A new one."""
        if self._comeback is None:
            return self._run_once(requests, seq, drawn)
        tries = 0

        def run() -> tuple[EndedEpoch, Record]:
            nonlocal tries
            tries += 1
            # What was drawn before a loss stays: a call outside is made once, if its answer has come.
            return self._run_once(requests, seq, drawn if tries == 1 else fresh_draws(self._running))

        ended, record = self._surely(run)
        self._note(record)
        return ended, record

    def _run_once(self, requests: list[FunctionRequest], seq: int, drawn: Sequence[Any]) -> tuple[EndedEpoch, Record]:
        self.epoch += 1
        self._seq = seq
        self._requests = requests
        numbers = self._sequencers[0].take(len(requests))
        transactions = [*self.deferred, *map(FunctionTransaction, numbers, requests)]
        self._running = transactions
        take_draws(transactions, drawn, self.draws, is_replay=self.is_replay)
        ended = self._site.run_epoch(self.epoch, transactions)
        self.deferred = ended.deferred
        self._since_cut += len(transactions)
        rebalance(self._sequencers)
        self._running = []
        self.figures.note(self.epoch, ended, self._operators)
        digest = digest_of(ended.ended, [one.tid for one in ended.deferred], ended.written)
        given = self.fed.given(requests)
        fresh = fresh_draws(transactions)
        for one in transactions:
            if one.draws is not None:
                one.draws.fresh = []
        return ended, Record(seq, RecordKind.EPOCH, "", self.epoch, given, fresh, digest)

    def _again(self, state: bytes, records: Sequence[Record]) -> None:
        """After a loss: what came since the newest cut; callers of those that were deferred still wait."""
        if self._lost is None:
            waiting = {one.tid: one.request for one in (*self.deferred, *self._running)}
            self._lost = _Interrupted(self._running, waiting, self.is_replay)
        self._begin_at(state)
        for record in records:
            self._replay(record)
        lost, self._lost = self._lost, None
        for one in self.deferred:
            one.request = lost.waiting.get(one.tid, one.request)
        self._running, self.is_replay = lost.running, lost.is_replay

    def _surely(self, work: Callable[[], T]) -> T:
        return work() if self._comeback is None else self._comeback.through(work)

    def _note(self, record: Record) -> None:
        if self._comeback is not None:
            self._comeback.note(record)

    # --- For the site ------------------------------------------------------------------------------------------------

    def wait_for_store(self, error: Exception) -> None:
        """An outage of the store is no result of a function: all wait. Raises what will not pass."""
        if not isinstance(error, ObjectStoreUnavailable | MetaUnavailable):
            raise error
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
        given = self.fed.given(self._requests)
        drawn = fresh_draws(self._running)
        self._host.write_now(Record(self._seq, RecordKind.INTENT, "", self.epoch, given, drawn, None))

    def _answered(self, ended: Sequence[FunctionTransaction]) -> list[Answer]:
        """The replies, kept where the request has an id, and put where the feed of it says."""
        answers = []
        now_ms = self.system.now_ms()
        self.fed.answered(ended)
        for one in ended:
            run, request = one.run, one.request
            assert run is not None
            if request.request_id is not None:
                self._replies.add(request.request_id, now_ms, run.value, run.aborted)
            answers.append(Answer(request.reply, run.value, run.aborted))
        return answers + self.fed.end(self.epoch)

    # --- Batches -----------------------------------------------------------------------------------------------------

    def _run_columns(self, request: ColumnsRequest, seq: int) -> Outcome:
        """Alone in its epoch. One whose function raises leaves nothing, and no record."""
        ended = self._surely(lambda: self._columns_through(request))
        if isinstance(ended, TransactionAborted):
            return Outcome(error=ended)
        record = Record(seq, RecordKind.EPOCH, request.name, self.epoch, to_bytes(request), [], ended.digest)
        self._note(record)
        return Outcome((record,), value=ended.replies)

    def _replay_columns(self, record: Record) -> None:
        ended = self._columns_through(from_bytes(self._operators, record.name, record.given))
        if isinstance(ended, TransactionAborted) or (ended.digest, self.epoch) != (record.digest, record.batch_id):
            raise NotDeterministic(
                f"record {record.seq} of the input log: batch function {record.name} had another result when it ran "
                "first: it has to depend on its batch only, and may not change between a crash and the next start"
            )

    def _columns_through(self, request: ColumnsRequest) -> EndedBatch | TransactionAborted:
        ended = self._site.run_columns(request)
        if not isinstance(ended, TransactionAborted):
            self.epoch += 1
            self._sequencers[0].take(request.columns.num_rows)
            rebalance(self._sequencers)
            self._since_cut += request.columns.num_rows // 10
            self.figures.note_batch(ended)
        return ended

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
