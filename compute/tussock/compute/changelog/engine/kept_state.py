"""What a flow has besides the rows of its streams: how far they are, histories, and what waits in queues.

In memory while it runs, written into the flow's tables by each commit of the state.
"""

from collections.abc import Mapping
from typing import Any

import msgspec
import pyarrow as pa
from msgspec.structs import replace

from tussock.compute.applications.errors import StreamChanged, TablesChanged
from tussock.compute.changelog.bad_rows import BadRows
from tussock.compute.changelog.borders.flow_borders import FlowBorders
from tussock.compute.changelog.changes.transaction import StreamTransaction, changes_from
from tussock.compute.changelog.engine.anew.beginnings import Beginning
from tussock.compute.changelog.engine.held_back import HeldBack
from tussock.compute.changelog.engine.journal import Journal
from tussock.compute.changelog.engine.running_stream import RunningStream
from tussock.compute.changelog.engine.tables.columns import difference
from tussock.compute.changelog.engine.tables.foreign_writes import made_anew_after, stream_of
from tussock.compute.changelog.engine.tables.ordered_table import ordered
from tussock.compute.changelog.histories import history_row
from tussock.compute.changelog.loop.stream_loop import Queued
from tussock.compute.changelog.plan import FlowPlan
from tussock.compute.changelog.progress import VERSION, FlowProgress, StreamProgress, read_progress
from tussock.compute.changelog.push_ids import PushIds
from tussock.statestore.errors import InvalidOption
from tussock.statestore.transactions.delta import Delta

__all__ = ["KeptState"]


class KeptState:
    """Of one run."""

    def __init__(
        self,
        plan: FlowPlan,
        streams: Mapping[str, RunningStream],
        delta: Delta,
        state: bytes,
        borders: FlowBorders,
        journal: Journal,
    ) -> None:
        """`state` is what `persist` returned for the newest commit, empty for a new flow."""
        self._borders = borders
        self._plan = plan
        self._streams = streams
        self._delta = delta
        known = read_progress(plan.name, state)
        old = [name for name, one in known.streams.items() if one.is_old]
        self.rebuilds = {name for name in old if name in streams and streams[name].plan.inputs}
        """Streams that are to be made anew."""
        self._away = {name: replace(one, is_away=True) for name, one in known.streams.items() if name not in streams}
        self.bad_rows = BadRows(plan.table("bad_rows"), delta, known.bad)
        self.push_ids = PushIds(plan.table("push_ids"), delta)
        self._opened = {name: delta.table(name) for name in streams}
        self._schemas = {name: one.schema for name, one in self._opened.items()}
        self.tables = {name: ordered(one, streams[name].plan.shape.names) for name, one in self._opened.items()}
        for name, stream in streams.items():
            self._open(name, stream, known)
        for name in self.rebuilds:
            # Noted as a table of the flow from its start on, even if nothing is ever written to it.
            self.table(name, "anew")
        self._load_histories(known)
        borders.load(delta, known, streams, journal)

    def rebuild_touched(self, touched: Mapping[str, int]) -> TablesChanged:
        """Let the next start make streams anew whose tables others have written to; returns what is to be told."""
        flow = self._plan.name
        for table in touched:
            name = stream_of(flow, table, self._streams)
            if name:
                self.rebuilds |= {name, *self._plan.behind(name)}
        table, epoch = next(iter(touched.items()))
        return made_anew_after(flow, table, epoch, stream_of(flow, table, self._streams))

    def altered(self) -> StreamChanged | None:
        """What is to be told if somebody has altered the table of a stream since the run began."""
        return next((told for name in self._opened if (told := self._altered(name)) is not None), None)

    def check_unaltered(self, name: str) -> None:
        """`StreamChanged` if that is so of the table of this stream."""
        told = self._altered(name)
        if told is not None:
            raise told

    def _altered(self, name: str) -> StreamChanged | None:
        found, was = self._opened[name].schema, self._schemas[name]
        if found is not was and (wrong := difference(found, was)):
            return StreamChanged(
                f"flow {self._plan.name!r}: the table of stream {name!r} was altered while the flow ran, and {wrong}. "
                "What came in until then is committed, and the flow ends: start it with the stream declared with the "
                f"columns of its table, {found.names}",
                name,
            )
        return None

    def persist(self) -> bytes:
        """Write what is new; returns how far the streams are."""
        self.push_ids.persist()
        table, fresh = self._histories(), []
        known = dict(self._away)
        for name, stream in self._streams.items():
            fresh += stream.history.persist(table) + stream.taken_history.persist(table)
            fresh += self._waiting(stream, table) + self._held(stream, table)
            ages = stream.plan.ages
            known[name] = StreamProgress(
                taken=stream.taken,
                published=stream.history.seq,
                pushed=stream.pushed,
                read=stream.read,
                queued=sorted(stream.waiting),
                rows=0 if ages is None else ages.count,
                numbered=0 if ages is None else ages.number,
                stamped=0 if ages is None else ages.newest,
                begins={source: one.taken for source, one in stream.begins.items()},
                definition=dict(stream.plan.definition),
                columns=[] if self.tables[name] is self._opened[name] else stream.plan.shape.names,
                is_rebuilt=name in self.rebuilds,
            )
        if fresh:
            table.upsert(pa.Table.from_pylist(fresh, schema=table.schema))
        progress = FlowProgress(known, self.bad_rows.count, *self._borders.persist(), version=VERSION)
        return msgspec.msgpack.encode(progress)

    @property
    def nbytes(self) -> int:
        """What the next commit writes of histories."""
        return sum(one.history.unsaved_bytes + one.taken_history.unsaved_bytes for one in self._streams.values())

    # --- The beginning -----------------------------------------------------------------------------------------------

    def _open(self, name: str, stream: RunningStream, known: FlowProgress) -> None:
        plan = stream.plan
        if name not in known.streams and any(batch.num_rows for batch in self.tables[name].read(limit=1)):
            raise InvalidOption(
                f"flow {self._plan.name!r}: table {name!r} has rows that stream {name!r} did not write: name the "
                f"stream otherwise, drop the table, or, if the flow had the stream before, `tussock repair stream "
                f"{self._plan.name} {name} --forget`"
            )
        progress = known.streams.get(name) or StreamProgress()
        plan.computation.open({key: self.table(name, key) for key in plan.computation.tables()})
        if plan.ages is not None:
            plan.ages.open(
                {key: self.table(name, key) for key in plan.ages.tables()},
                progress.rows,
                progress.numbered,
                progress.stamped,
            )

    def _load_histories(self, known: FlowProgress) -> None:
        rows: dict[tuple[str, str], list[dict[str, Any]]] = {}
        for batch in self._histories().read():
            for row in batch.to_pylist():
                rows.setdefault((row["stream"], row["side"]), []).append(row)

        def found(name: str, side: str) -> list[dict[str, Any]]:
            return sorted(rows.get((name, side), []), key=lambda row: row["seq"])

        def find(source: str, seq: int) -> StreamTransaction | None:
            return self._streams[source].history.find(seq) if source in self._streams else None

        shapes = {name: stream.plan.shape for name, stream in self._streams.items()}
        for name, stream in self._streams.items():
            progress = known.streams.get(name) or StreamProgress()
            stream.taken, stream.pushed, stream.read = progress.taken, progress.pushed, dict(progress.read)
            stream.history.load(found(name, "out"), progress.published, find, shapes)
            if name in self.rebuilds:
                # What waits, and what was held back, is among the rows of its inputs, and goes with the next commit.
                stream.stored_waiting = {row["seq"] for row in found(name, "queue")}
                stream.stored_held = {row["seq"]: None for row in found(name, "held")}
                continue
            for row in found(name, "queue"):
                what = f"histories of stream {name!r}, queue {row['seq']}"
                one = StreamTransaction(row["seq"], changes_from(row["data"], shapes[row["source"]], what))
                stream.stored_waiting.add(one.seq)
                stream.waiting[one.seq] = one
                stream.loop.enqueue(Queued("", one))
            for row in found(name, "held"):
                what = f"histories of stream {name!r}, held {row['seq']}"
                changes = changes_from(row["data"], shapes[row["source"]], what)
                held = HeldBack(row["seq"], row["source_seq"], changes)
                stream.held[row["source"]] = stream.stored_held[held.number] = held
        for name, stream in self._streams.items():
            progress = known.streams.get(name) or StreamProgress()
            stream.taken_history.load(found(name, "in"), progress.taken, find, shapes)
            for source in stream.plan.inputs:
                self._enqueue_unread(stream, source, progress.begins.get(source, 0))

    def _enqueue_unread(self, stream: RunningStream, source: str, taken: int) -> None:
        history = self._streams[source].history
        if stream.plan.name in self.rebuilds:
            # It takes the rows of its inputs.
            return
        if source not in stream.read and history.seq:
            # New in a flow that has run: what its input has comes first, once what has been recorded is replayed.
            shape = self._streams[source].plan.shape
            stream.begins[source] = Beginning(shape, self.tables[source], self._delta.system, taken)
            return
        # Noted from the beginning on, so that a stream that has read nothing yet is not taken for a new one.
        begun = stream.read.setdefault(source, 0)
        for seq in range(begun + 1, history.seq + 1):
            one = history.find(seq)
            assert one is not None, "what somebody has to read stays"
            stream.loop.enqueue(Queued(source, one))

    def _waiting(self, stream: RunningStream, table: Any) -> list[dict[str, Any]]:
        gone = [(stream.plan.name, "queue", seq) for seq in stream.stored_waiting if seq not in stream.waiting]
        if gone:
            table.delete(gone)
        fresh = [
            history_row(stream.plan.name, "queue", one)
            for seq, one in stream.waiting.items()
            if seq not in stream.stored_waiting
        ]
        stream.stored_waiting = set(stream.waiting)
        return fresh

    @staticmethod
    def _held(stream: RunningStream, table: Any) -> list[dict[str, Any]]:
        """What an operator holds back, by the number of the bad transaction that tells of it."""
        name, now = stream.plan.name, {one.number: one for one in stream.held.values()}
        gone = [(name, "held", number) for number in stream.stored_held if number not in now]
        if gone:
            table.delete(gone)
        fresh = [
            # The number of the first one, in place of that in another history: its records are here all the same.
            {**history_row(name, "held", StreamTransaction(number, one.changes)), "source_seq": one.seq}
            for number, one in now.items()
            if stream.stored_held.get(number) is not one
        ]
        stream.stored_held = {**now}
        return fresh

    def _histories(self) -> Any:
        return self._delta.table(self._plan.table("histories"))

    def table(self, *parts: str) -> Any:
        """One that the flow keeps."""
        return self._delta.table(self._plan.table(*parts))
