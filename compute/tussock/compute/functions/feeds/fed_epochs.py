"""The feeds of one run, as the thread that runs epochs sees them: how far each is, dead letters, and replies.

A record of an epoch holds its requests, be they of callers or of feeds, and how far each feed is with them; so a replay
needs no source. What it leaves, positions, letters and replies, is in the epoch of the state.
"""

from collections.abc import Mapping, Sequence
from concurrent.futures import Future
from typing import Any, NamedTuple

import msgspec
import pyarrow as pa

from tussock.compute.applications.borders.dead_letters import DEAD_LETTERS_SCHEMA, DeadLetters
from tussock.compute.applications.borders.output import Output
from tussock.compute.applications.borders.output_tables import OutputTables, create_output_tables
from tussock.compute.applications.durability.claims import OwnTables
from tussock.compute.applications.errors import BadInput
from tussock.compute.applications.feeds.feed import BadMessage
from tussock.compute.applications.ipc_streams import ipc_bytes
from tussock.compute.applications.program import Outcome
from tussock.compute.applications.records import FED, Record, RecordKind
from tussock.compute.applications.replies import WithdrawableFuture
from tussock.compute.functions.entities.replies import KeptReply
from tussock.compute.functions.epochs.request_records import FeedPlace, FunctionProgress, pack_request
from tussock.compute.functions.epochs.transaction import FunctionRequest, FunctionTransaction
from tussock.compute.functions.errors import TransactionAborted
from tussock.compute.functions.feeds.fed_columns import FedColumns, pack_rows
from tussock.compute.functions.feeds.request_feed import RequestFeed
from tussock.compute.functions.program.values import pack, unpack
from tussock.compute.functions.questions import Answer
from tussock.statestore import StateStore
from tussock.statestore.base.damage import UNREADABLE
from tussock.statestore.base.logs import get_logger
from tussock.statestore.errors import CorruptLog
from tussock.statestore.transactions.delta import Delta

__all__ = ["REPLY_SCHEMA", "FedEpochs", "FeedMark", "Waiting", "requests_of"]

log = get_logger("tussock.compute.functions.feeds")

REPLY_SCHEMA = pa.schema(
    [pa.field("request_id", pa.string(), nullable=False), ("reply", pa.string()), ("error", pa.string())]
)
"""Of outputs: a reply as JSON, or the text of the error."""


class FeedMark:
    """Stands between the requests of a feed: how far it is here, and what could not be used."""

    __slots__ = ("began", "feed", "letters", "place", "reply", "size")
    request_id: str | None = None
    """As a request may have."""
    is_alone = False

    def __init__(self, feed: str, place: FeedPlace, letters: Sequence[BadMessage], began: float) -> None:
        self.feed = feed
        self.place = place
        """Without a position: the former one stays."""
        self.letters = letters
        self.reply = WithdrawableFuture()
        """Ends when this is durable."""
        self.began = began
        self.size = sum(len(one.data) + len(one.cause) for one in letters)
        """Bytes, about."""


Waiting = FunctionRequest | FeedMark | FedColumns
"""What waits for an epoch."""


class _Crossing(NamedTuple):
    """What an epoch has of feeds beside its requests."""

    places: dict[str, FeedPlace]
    letters: list[list[Any]]
    """Of each the feed, origin, cause and data."""
    replies: list["Future[Any]"]


class FedEpochs:
    """For one thread; the feeders look at `places` at the start, and at `committed` beside it."""

    def __init__(self, program: str, feeds: Mapping[str, RequestFeed], outputs: Mapping[str, Output]) -> None:
        self._program = program
        self._feeds = feeds
        self._declared = outputs
        self._crossing = _Crossing({}, [], [])
        self._taken: Sequence[Waiting] = ()
        self._left: Sequence[Waiting] = ()
        self._rows: dict[str, list[dict[str, Any]]] = {}
        """By table, replies of the epoch that runs."""
        self._former: dict[str, str] = {}
        """By feed, declared or not, the table of replies that it had when what is replayed was recorded."""
        self._gone: set[str] = set()
        """Feeds that are not declared any more, of which the log of events was told."""
        self._cut: dict[str, bytes] = {}
        self.places: dict[str, FeedPlace] = {}
        self.committed: dict[str, bytes] = {}
        """By feed, positions that a commit holds for certain."""

    @property
    def feeds(self) -> list[list[str]]:
        """Name and table of replies, or of those for a topic, of each, sorted; the table is empty if there is none."""
        return [[name, one.replies or ""] for name, one in sorted(self._feeds.items())]

    def know(self, feeds: Sequence[list[str]]) -> None:
        """These, as `feeds` has them, the program had when what comes next was recorded."""
        self._former.update(feeds)  # type: ignore[arg-type]

    @property
    def output_tables(self) -> list[str]:
        """Names of the tables of replies."""
        return list(self._declared)

    @property
    def own_tables(self) -> OwnTables:
        """That of dead letters, if there are feeds."""
        return {self._letters_table: (DEAD_LETTERS_SCHEMA, ["number"])} if self._feeds else {}

    def create_outputs(self, store: StateStore) -> None:
        """Tables of replies that are not there yet."""
        create_output_tables(store, self._declared, dict.fromkeys(self._declared, REPLY_SCHEMA))
        for table in store.tables():
            is_outbox = table.startswith(f"{self._program}.") and table.endswith(".outbox")
            if is_outbox and table not in self._declared and any(store.table(table).read(limit=1)):
                log.warning("replies wait for a topic that no feed has now", program=self._program, table=table)

    def load(self, delta: Delta, known: FunctionProgress) -> None:
        """Begin where the newest commit is."""
        self.places = dict(known.feeds)
        self._letters = DeadLetters(self._letters_table, delta, known.letters)
        self._outputs = OutputTables(self._program, self._declared, delta, self._known_outputs(known))
        self.know(known.sequenced)

    def persist(self) -> tuple[dict[str, FeedPlace], int, dict[str, list[int]]]:
        """For a commit: positions, the number of letters, and how far the outputs are."""
        # The commit before this one has ended.
        self.committed, self._cut = self._cut, {name: place.position for name, place in self.places.items()}
        return self.places, self._letters.persist(), self._outputs.persist()

    @property
    def reply_tables(self) -> dict[str, int]:
        """For a commit: of each table that had replies in any run, its sequence."""
        return {**self._reply_tables, **{table: self.output(table)[0] for table in self._declared}}

    def _known_outputs(self, known: FunctionProgress) -> dict[str, list[int]]:
        """How far each output is, by table."""
        self._reply_tables = dict(known.reply_tables)
        # A release before has tables by the first of the feeds that share them.
        former = {
            one.replies: known.outputs[name]
            for name, one in self._feeds.items()
            if one.replies and name in known.outputs and self._declared[one.replies].topic is None
        }
        sent = {table: sent for table, (_, sent) in known.outputs.items()}
        return former | {table: [at, sent.get(table, 0)] for table, at in known.reply_tables.items()}

    # --- An epoch ----------------------------------------------------------------------------------------------------

    def begin(self, taken: Sequence[Waiting]) -> list[FunctionRequest]:
        """An epoch begins with what waited: its requests."""
        self._taken = taken
        self._crossing = _Crossing({}, [], [])
        requests: list[FunctionRequest] = []
        for one in taken:
            if isinstance(one, FeedMark):
                self._move(one.feed, one.place)
                self._crossing.letters.extend([one.feed, bad.origin, bad.cause, bad.data] for bad in one.letters)
                self._crossing.replies.append(one.reply)
                continue
            assert not isinstance(one, FedColumns), "they are alone in their epoch"
            if one.fed is not None:
                self._move(one.fed.feed, FeedPlace(b"", one.fed.span, one.fed.number))
            requests.append(one)
        return requests

    def end_before(self, behind: Sequence[FunctionRequest]) -> None:
        """The epoch goes without these: they, and what comes behind them from where they do, wait for a later one."""
        unrun = {*behind}
        # One that came again with its id, from somewhere else, has not run either.
        ids = {one.request_id for one in behind} - {None}
        ended: set[str | None] = set()
        kept: list[Waiting] = []
        left: list[Waiting] = []
        for one in self._taken:
            source = one.feed if isinstance(one, FeedMark | FedColumns) else one.fed and one.fed.feed
            if one in unrun or one.request_id in ids:
                ended.add(source)
            (left if source in ended else kept).append(one)
        self._left = left
        self.begin(kept)

    def take_left(self) -> Sequence[Waiting]:
        """What waits for a later epoch. Nothing here keeps requests, whose replies may be large, behind their epoch."""
        left, self._left, self._taken = self._left, (), ()
        return left

    def begin_rows(self, rows: FedColumns) -> None:
        """An epoch begins with rows for a batch function, and nothing else."""
        self._crossing = _Crossing({}, [[rows.feed, bad.origin, bad.cause, bad.data] for bad in rows.letters], [])
        self._move(rows.feed, rows.place)

    def _move(self, feed: str, place: FeedPlace) -> None:
        places = self._crossing.places
        if not place.position:
            before = places.get(feed) or self.places[feed]
            place = FeedPlace(before.position, place.span, place.taken)
        places[feed] = place

    @property
    def is_crossing(self) -> bool:
        """Whether the epoch has anything of feeds to record."""
        return bool(self._crossing.places)

    def given(self, requests: Sequence[FunctionRequest]) -> bytes:
        """What a record of the epoch that runs has."""
        packed = [pack_request(one) for one in requests]
        return self._with_crossing(packed) if self.is_crossing else pack(packed)

    def refuse_rows(self, rows: FedColumns, failed: TransactionAborted) -> None:
        """The batch function has raised: where nobody gets replies, the rows are a dead letter.

        They have not run, so their ids are not kept: they may come once more. Raises `BadInput` where bad rows are to
        stop the program.
        """
        feed = self._feeds[rows.feed]
        if feed.replies is not None:
            return
        cause = failed.told
        if feed.feed.on_bad == "stop":
            raise BadInput(
                f"feed {rows.feed!r} of program {self._program!r}: on {rows.origin}, function {rows.request.name} "
                f"raised {cause}; the program stops, and meets the rows again when it starts: mend the function, let "
                "it end single rows by batch.abort, or declare the feed with on_bad='skip', or with replies=",
                rows.feed,
            )
        given = rows.request.columns if rows.given is None else rows.given
        self._crossing.letters.append([rows.feed, rows.origin, cause, ipc_bytes(given)])
        rows.ids = None

    def given_rows(self, rows: FedColumns) -> bytes:
        """The same of an epoch of a batch function, which has run."""
        return self._with_crossing(pack_rows(rows))

    def _with_crossing(self, packed: list[Any]) -> bytes:
        places = {name: [place.position, place.span, place.taken] for name, place in self._crossing.places.items()}
        return FED + pack([packed, places, self._crossing.letters])

    def again(self, given: bytes) -> None:
        """An epoch begins that was recorded."""
        self._crossing = _Crossing({}, [], [])
        if given[:1] == FED:
            _, places, letters = _parts(given)
            self._crossing = _Crossing({name: FeedPlace(*place) for name, place in places.items()}, letters, [])
            for name in places.keys() - self._feeds.keys() - self._gone:
                self._gone.add(name)
                log.warning(
                    "a feed that is not declared any more has rows that no commit has, which run again",
                    program=self._program,
                    feed=name,
                    replies=self._former.get(name) or "in no table",
                )

    def answered(self, ended: Sequence[FunctionTransaction]) -> None:
        """Note replies that go to an output."""
        if not self._declared and not self._former:
            return
        for one in ended:
            request, run = one.request, one.run
            into = None if request.fed is None else self._replies_of(request.fed.feed)
            if into is None:
                continue
            assert run is not None
            is_done = run.aborted is None
            reply = msgspec.json.encode(run.value).decode() if is_done else None
            row = {"request_id": request.request_id, "reply": reply, "error": None if is_done else str(run.aborted)}
            self._rows.setdefault(into, []).append(row)

    def rows_answered(self, rows: FedColumns, replies: Sequence[KeptReply]) -> None:
        """The same of rows for a batch function."""
        into = self._replies_of(rows.feed)
        if into is None or rows.ids is None:
            return
        texts = [None if one.aborted else msgspec.json.encode(one.value).decode() for one in replies]
        errors = [None if one.aborted is None else str(one.aborted) for one in replies]
        self._write(into, pa.table([rows.ids, texts, errors], schema=REPLY_SCHEMA))

    def _replies_of(self, feed: str) -> str | None:
        """The table for replies to requests of a feed, which may not be declared any more; `None`: they go nowhere."""
        declared = self._feeds.get(feed)
        return (self._former.get(feed) or None) if declared is None else declared.replies

    def _write(self, table: str, rows: pa.Table) -> None:
        if table in self._declared:
            self._outputs.append(table, rows)
            return
        before = self._reply_tables.get(table, 0)
        self._reply_tables[table] = self._outputs.append_former(table, rows, before)

    def end(self, epoch: int) -> list[Answer]:
        """The epoch has run: keep what it has of feeds; returns whom to tell when it is durable."""
        self.places.update(self._crossing.places)
        for feed, origin, cause, data in self._crossing.letters:
            self._letters.add(feed, epoch, origin, cause, data)
        for into, rows in self._rows.items():
            self._write(into, pa.Table.from_pylist(rows, schema=REPLY_SCHEMA))
        self._rows = {}
        replies = self._crossing.replies
        self._crossing = _Crossing({}, [], [])
        return [Answer(reply, None, None) for reply in replies]

    # --- Outputs -----------------------------------------------------------------------------------------------------

    def output(self, stream: str) -> tuple[int, int, int]:
        """Sequence of the newest rows, what is sent, and how many rows are not known to be."""
        return self._outputs.of(stream)

    def sent(self, stream: str, sequence: int, seq: int) -> Outcome:
        """The topic has rows up to this sequence."""
        self.note_sent(stream, sequence)
        return Outcome((Record(seq, RecordKind.SENT, stream, sequence, b"", [], None),))

    def note_sent(self, stream: str, sequence: int) -> None:
        """The same, in a replay."""
        self._outputs.sent(stream, sequence)

    @property
    def _letters_table(self) -> str:
        return f"{self._program}.dead_letters"


def requests_of(given: bytes) -> list[Any]:
    """The packed requests of a record; of rows for a batch function what `pack_rows` gave."""
    found: list[Any] = _parts(given)[0] if given[:1] == FED else unpack(given)
    return found


def _parts(given: bytes) -> list[Any]:
    try:
        packed, places, letters = unpack(given[1:])
    except (ValueError, *UNREADABLE) as error:
        raise CorruptLog(f"an epoch of the input log does not say what it had of feeds: {error}") from error
    return [packed, places, letters]
