"""The feeds of one run: their sources, positions and dead letters, as the engine sees them."""

from collections.abc import Iterator, Mapping, Sequence

import msgspec
import pyarrow as pa

from tussock.compute.applications.errors import BadInput, ProcedureError
from tussock.compute.applications.feeds.feed import FedBatch, Source
from tussock.compute.applications.ipc_streams import alone_bytes
from tussock.compute.applications.program import Outcome
from tussock.compute.applications.records import FED, Record, RecordKind
from tussock.compute.procedures.definitions import Definitions
from tussock.compute.procedures.rows import TupleShape
from tussock.compute.procedures.state import EngineState
from tussock.statestore import StateStore
from tussock.statestore.base.damage import UNREADABLE
from tussock.statestore.base.system import System
from tussock.statestore.errors import CorruptLog, InvalidOption, SchemaMismatch

__all__ = ["FedInputs", "given_of", "is_fed"]


class _Given(msgspec.Struct, array_like=True, frozen=True):
    feed: str
    part: bytes
    """A span of its source, or a position."""


def is_fed(given: bytes) -> bool:
    """Whether a record's `given` is of a feed."""
    return given[:1] == FED


def given_of(feed: str, part: bytes) -> bytes:
    """What a record has in place of rows."""
    return FED + msgspec.msgpack.encode(_Given(feed, part))


class FedInputs:
    """Used by the thread of requests; the feeders look at `committed` beside it."""

    def __init__(self, store: StateStore, definitions: Definitions) -> None:
        self._store = store
        self._definitions = definitions
        self._sources: dict[str, Source] = {}
        """By procedure; those that no feeder has taken over."""
        self._opened: Mapping[str, Source] = {}
        self._current: FedBatch | None = None
        """The batch that runs."""
        self._cut: dict[str, bytes] = {}
        self.committed: dict[str, bytes] = {}
        """By feed, positions that a commit holds for certain."""

    def open(self, system: System, state: EngineState, shapes: Mapping[str, TupleShape | None]) -> None:
        """Open all sources where the state is; raises what they raise, and `SchemaMismatch`."""
        self._state = state
        outputs = {output.table for output in self._definitions.outputs.values()}
        for procedure, declared in self._definitions.feeds.items():
            what = f"feed {declared.name!r} of application {self._definitions.application!r}"
            if getattr(declared.feed, "table", None) in outputs:
                raise InvalidOption(f"{what} reads an output table of the same application: it would never end")
            source = self._sources[procedure] = declared.feed.open(self._store, system, what)
            shape = shapes[procedure]
            if shape is not None and not source.schema.remove_metadata().equals(shape.schema.remove_metadata()):
                raise SchemaMismatch(
                    f"{what}: procedure {procedure!r} expects {_shown(shape.schema)}, and the feed has "
                    f"{_shown(source.schema)}",
                )
            position = state.positions.get(declared.name)
            if position is not None:
                # A replay reads what comes after it, which must not go meanwhile.
                source.seek(position)
        self._opened = dict(self._sources)

    def resume(self, numbers: Iterator[int]) -> Sequence[Outcome]:
        """After the replay, be ready to read on; a record for each feed that is new."""
        records = []
        for procedure, source in self._sources.items():
            name = self._definitions.feeds[procedure].name
            position = self._state.positions.get(name)
            if position is None:
                position = source.begin()
                records.append(self.move(next(numbers), procedure, position))
            source.seek(position)
        return [Outcome((record,)) for record in records]

    def hand_over(self) -> dict[str, Source]:
        """The sources, for feeders that close them."""
        sources, self._sources = self._sources, {}
        return sources

    def unload(self) -> None:
        """Close what no feeder has."""
        for source in self.hand_over().values():
            source.close()

    # --- Batches -----------------------------------------------------------------------------------------------------

    def arrived(self, batch: FedBatch) -> None:
        """A batch is about to run."""
        self._current = batch

    def again(self, record: Record) -> pa.Table:
        """The rows of a batch that is replayed."""
        given = self._given(record)
        declared = self._definitions.feeds.get(record.name)
        source = self._opened.get(record.name)
        if declared is None or source is None or declared.name != given.feed:
            found = "has no feed" if declared is None else f"has feed {declared.name!r}"
            raise InvalidOption(
                f"record {record.seq} of the input log has a batch of feed {given.feed!r} for procedure "
                f"{record.name!r}, which {found} now: start with the former feed, stop in order, then change it"
            )
        if given.feed not in self._state.positions:
            raise CorruptLog(f"record {record.seq} of the input log: feed {given.feed!r} has never begun")
        self._current = source.again(given.part)
        return self._current.rows

    def took(self, procedure: str, batch_id: int, given: bytes, cause: str) -> None:
        """A batch has ended, well or with a cause; of a client's batch nothing."""
        if not is_fed(given):
            return
        batch, name = self._current, self._definitions.feeds[procedure].name
        assert batch is not None, "a batch arrives before it ends"
        self._state.positions[name] = self._opened[procedure].after(self._state.positions[name], batch.span)
        for bad in batch.bad:
            self._state.letters.add(name, batch_id, bad.origin, bad.cause, bad.data)
        if cause:
            self._state.letters.add(name, batch_id, f"batch {batch_id}", cause, alone_bytes(batch.rows))
        self._current = None

    def check_goes_on(self, procedure: str, batch_id: int, given: bytes, error: ProcedureError) -> None:
        """`BadInput` if a batch that was refused stops the application; nothing of it is kept, and it comes again."""
        if is_fed(given) and self._definitions.feeds[procedure].feed.on_bad == "stop":
            name = self._definitions.feeds[procedure].name
            raise BadInput(
                f"feed {name!r} of application {self._definitions.application!r}: {error}; the application stops, and "
                "gives the batch again when it starts: mend the procedure, or declare the feed with on_bad='skip'",
                name,
                batch_id,
            ) from error

    def move(self, number: int, procedure: str, position: bytes) -> Record:
        """A feed stands at a position; the record of that."""
        name = self._definitions.feeds[procedure].name
        self._state.positions[name] = position
        return Record(number, RecordKind.FEED, procedure, 0, given_of(name, position), [], None)

    def moved(self, record: Record) -> None:
        """The same, in a replay."""
        given = self._given(record)
        is_new = given.feed not in self._state.positions
        self._state.positions[given.feed] = given.part
        source, declared = self._opened.get(record.name), self._definitions.feeds.get(record.name)
        if is_new and source is not None and declared is not None and declared.name == given.feed:
            source.seek(given.part)

    def cut(self) -> None:
        """A commit begins, so the one before it has ended."""
        self.committed, self._cut = self._cut, dict(self._state.positions)

    def _given(self, record: Record) -> _Given:
        try:
            return msgspec.msgpack.decode(record.given[1:], type=_Given)
        except UNREADABLE as error:
            raise CorruptLog(f"record {record.seq} of the input log has no span of a feed: {error}") from error


def _shown(schema: pa.Schema) -> str:
    return ", ".join(f"{field.name} {field.type}{'' if field.nullable else ' not null'}" for field in schema)
