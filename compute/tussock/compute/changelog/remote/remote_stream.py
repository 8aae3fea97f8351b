"""`RemoteStream`: the calls of a `Stream` whose flow another process serves."""

import itertools
from concurrent.futures import Future
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from tussock.compute.applications.arguments import check_seconds
from tussock.compute.applications.errors import Full
from tussock.compute.applications.ipc_streams import ipc_bytes, ipc_table
from tussock.compute.applications.program import Outcome
from tussock.compute.applications.replies import give, result_within
from tussock.compute.changelog.bad_rows import BadRecord
from tussock.compute.changelog.changes.changes import Changes
from tussock.compute.changelog.changes.record import ChangeRecord
from tussock.compute.changelog.changes.transaction import StreamTransaction
from tussock.compute.changelog.loop.breakpoints import Side
from tussock.compute.changelog.loop.location import Location
from tussock.compute.changelog.push_ids import check_push_id
from tussock.compute.changelog.remote.remote_breakpoint import RemoteBreakpoint
from tussock.compute.changelog.remote.remote_subscription import RemoteSubscription
from tussock.compute.changelog.remote.wire import from_bytes, pack_records
from tussock.compute.changelog.subscriptions import BUFFER_MAX
from tussock.compute.service.client.replies import begin_ms
from tussock.compute.service.rpc import application_pb2 as pb
from tussock.statestore.errors import InvalidOption, SchemaMismatch

if TYPE_CHECKING:
    from tussock.compute.changelog.remote.client import FlowClient

__all__ = ["RemoteStream"]

FULL_MS = 50
COUNT_MAX = 1000
EVERY_MAX = 1_000_000_000


class RemoteStream:
    """Of a `FlowClient`."""

    def __init__(self, client: "FlowClient", name: str) -> None:
        self._client = client
        self.name = name
        self._shape = client.shapes()[name]
        self.schema: pa.Schema = self._shape.schema
        self.key: tuple[str, ...] = self._shape.key

    def __repr__(self) -> str:
        return f"RemoteStream({self.name!r})"

    # --- Clients -----------------------------------------------------------------------------------------------------

    def push(
        self, records: Any, wait: bool = True, timeout: float | None = None, *, request_id: str | None = None
    ) -> "Future[int]":
        """One transaction, as `Stream.push`; needs the role writer.

        Returns a future of its number, once it is durable. With a full queue it waits at the node, and is withdrawn
        after `timeout` seconds: `WaitTimeout`; with `wait=False` the future raises `Full`. If the connection breaks
        after it was sent, it is sent again for the client's `deadline`, and taken once; then `OutcomeUnknown`, after
        which it may be pushed again with the `request_id` that it was given.
        """
        if request_id is None:
            request_id = self._client.unique_name()
        else:
            check_push_id(request_id, f"stream {self.name!r}")
        changes = Changes.of_pushed(self._shape, records, 0)
        push = pb.Push(stream=self.name, no_wait=not wait, request_id=request_id)
        pack_records(push, changes)
        asked = self._client.ask(pb.Request(push=push, deadline_ms=begin_ms(timeout)), is_repeatable=True)
        number = self._client.future()
        asked.add_done_callback(lambda found: self._pushed(found, number))
        return number

    def subscribe(
        self, from_seq: int | None = 0, *, blocks: bool = False, buffer: int = 1024, timeout: float | None = None
    ) -> RemoteSubscription:
        """What the stream publishes from a number on, as `Stream.subscribe`.

        The stream waits for this subscriber as for others, but only while it reads on: see docs/changelog-debugging.md.
        """
        if from_seq is not None and (type(from_seq) is not int or not 0 <= from_seq < 1 << 63):
            raise InvalidOption(f"stream {self.name!r}: from_seq={from_seq!r:.100}; expected 0 and up, or None")
        if type(buffer) is not int or not 1 <= buffer <= BUFFER_MAX:
            raise InvalidOption(f"stream {self.name!r}: buffer={buffer!r:.100}; expected 1 to {BUFFER_MAX:,}")
        check_seconds(timeout, f"stream {self.name!r}: timeout", none=True)
        return RemoteSubscription(self._client, self.name, from_seq, blocks=blocks, buffer=buffer, timeout=timeout)

    def in_history(self, last: int = COUNT_MAX) -> list[StreamTransaction]:
        """The newest transactions that it has taken, and that were good; the newest last, at most 1,000."""
        return self._history(pb.History.TAKEN, last)

    def out_history(self, last: int = COUNT_MAX) -> list[StreamTransaction]:
        """The newest transactions that it has published, with update blocks; the newest last, at most 1,000."""
        return self._history(pb.History.PUBLISHED, last)

    def get(self, key: Any, *, timeout: float | None = None) -> dict[str, Any] | None:
        """The row of a key as it is now, be it committed or not.

        Raises `SchemaMismatch` for what is no key, and `WaitTimeout` after `timeout` seconds.
        """
        check_seconds(timeout, f"stream {self.name!r}: timeout", none=True)
        values = key if isinstance(key, tuple) else (key,)
        if len(values) != len(self.key):
            raise SchemaMismatch(f"stream {self.name!r}: key {key!r:.100} has {len(values)} parts; expected {self.key}")
        fields = [self.schema.field(name) for name in self.key]
        try:
            columns = [pa.array([value], field.type) for value, field in zip(values, fields, strict=True)]
        except (pa.ArrowException, TypeError, ValueError, OverflowError) as error:
            raise SchemaMismatch(f"stream {self.name!r}: key {key!r:.100} does not fit: {error}") from None
        row = ipc_bytes(pa.record_batch(columns, schema=pa.schema(fields)))
        found: pa.Table = self._look(pb.Request(stream_row=pb.StreamRow(stream=self.name, arrow=row)), timeout)
        return found.to_pylist()[0] if found.num_rows else None

    def snapshot(self) -> tuple[list[dict[str, Any]], int]:
        """All rows as they are now, and the number of the newest transaction in them, as `Stream.snapshot`.

        The node gives them in pages of at most 10,000 rows, all as of the moment of the first. Raises `HistoryGone` if
        it takes longer than 30 seconds from one page to the next, and `Full` while the node reads as many as it can.
        """
        reader, rows = self._client.unique_name(), []
        for page in itertools.count():
            found = self._look(pb.Request(stream_rows=pb.StreamRows(stream=self.name, reader=reader, page=page)))
            if found["rows"] is not None:
                rows += ipc_table(found["rows"]).to_pylist()
            if found["is_last"]:
                break
        return rows, int(found["seq"])

    def bad_rows(self, last: int = COUNT_MAX, before: int | None = None) -> list[BadRecord]:
        """The newest transactions that were bad, as `Stream.bad_rows`, at most 1,000; the newest last."""
        if before is not None and (type(before) is not int or not 1 <= before < 1 << 63):
            raise InvalidOption(f"stream {self.name!r}: before={before!r:.100}; expected the number of a bad one")
        asked = pb.BadRows(stream=self.name, last=_count(last), before=before or 0)
        found = self._look(pb.Request(bad_rows=asked))
        return [BadRecord(**{**one, "location": Location(one["location"])}) for one in found]

    # --- Looking into the loop: what is worked on shows in a pause only ----------------------------------------------

    @property
    def location(self) -> Location:
        """Where the stream is in its loop."""
        return Location(self._view()["location"])

    @property
    def in_trans(self) -> StreamTransaction | None:
        """In a pause, the transaction that is worked on."""
        return self._seen("in_trans")

    @property
    def in_row(self) -> ChangeRecord | None:
        """In a pause, the record that is computed, or is next."""
        found = self._seen("in_row")
        return None if found is None else found.records[0]

    @property
    def out_row(self) -> list[ChangeRecord] | None:
        """In a pause, what the newest record was computed to; until then, of the record before it."""
        found = self._seen("out_row")
        return None if found is None else found.records

    @property
    def out_trans(self) -> list[ChangeRecord] | None:
        """In a pause, what was computed so far of the transaction; `None` from PUT on."""
        found = self._seen("out_trans")
        return None if found is None else found.records

    @property
    def queued(self) -> int:
        """Transactions that wait for the stream."""
        return int(self._view()["queued"])

    def hold(self) -> None:
        """Take nothing from the queue until `release`; needs the role admin."""
        self._hold(is_held=True)

    def release(self) -> None:
        """Take transactions again; needs the role admin."""
        self._hold(is_held=False)

    def break_on(self, side: Side, condition: str | None = None, every: int = 1) -> RemoteBreakpoint:
        """As `Stream.break_on`, with a condition as text; needs the role admin."""
        if side not in ("input", "output"):
            raise InvalidOption(f"stream {self.name!r}: a breakpoint on {side!r:.100}; expected 'input' or 'output'")
        if condition is not None and not isinstance(condition, str):
            raise InvalidOption(f"stream {self.name!r}: condition {condition!r:.100}; over a network it is a text")
        if type(every) is not int or not 1 <= every <= EVERY_MAX:
            raise InvalidOption(f"stream {self.name!r}: every={every!r:.100}; expected 1 to {EVERY_MAX:,}")
        wanted = pb.SetBreakpoint(stream=self.name, on_output=side == "output", condition=condition or "", every=every)
        return RemoteBreakpoint(
            self._client, self._client.ask_now(pb.Request(set_breakpoint=wanted), is_repeatable=False)
        )

    @property
    def breakpoints(self) -> list[RemoteBreakpoint]:
        """Those that are there, as they are now."""
        return [RemoteBreakpoint(self._client, one) for one in self._view()["breakpoints"]]

    # --- Within ------------------------------------------------------------------------------------------------------

    def _pushed(self, asked: "Future[Any]", number: "Future[int]") -> None:
        try:
            found = asked.result()
        except BaseException as error:  # noqa: BLE001 - it is the caller's; also the end of a wait
            give(number, Outcome(error=error if isinstance(error, Exception) else Full(str(error), FULL_MS)))
            return
        if found is None:
            give(number, Outcome(error=Full(f"stream {self.name!r}: its queue is full; nothing was taken", FULL_MS)))
        else:
            give(number, Outcome(value=found))

    def _history(self, side: Any, last: int) -> list[StreamTransaction]:
        history = pb.History(stream=self.name, side=side, count=_count(last))
        shapes = self._client.shapes()
        return [from_bytes(one, shapes) for one in self._look(pb.Request(history=history))]

    def _view(self) -> dict[str, Any]:
        found: dict[str, Any] = self._look(pb.Request(stream_look=pb.StreamLook(stream=self.name)))
        return found

    def _seen(self, name: str) -> StreamTransaction | None:
        found = self._view()[name]
        return None if found is None else from_bytes(found, self._client.shapes())

    def _hold(self, *, is_held: bool) -> None:
        self._client.ask_now(pb.Request(hold=pb.Hold(stream=self.name, is_held=is_held)), is_repeatable=True)

    def _look(self, request: pb.Request, timeout: float | None = None) -> Any:
        self._client.check_wait()
        return result_within(self._client.ask(request, is_repeatable=True), timeout, f"stream {self.name!r}")


def _count(last: object) -> int:
    if type(last) is not int or not 1 <= last <= COUNT_MAX:
        raise InvalidOption(f"last={last!r:.100}; expected 1 to {COUNT_MAX:,}")
    return last
