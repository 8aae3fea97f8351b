"""A `Flow` as the node of `tussock serve` sees it."""

from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from typing import TYPE_CHECKING, Any, NoReturn

import pyarrow as pa

from tussock.compute.applications.arguments import clean_text
from tussock.compute.changelog.debugging.picture import breakpoints_shown
from tussock.compute.changelog.loop.breakpoints import Breakpoint, Side
from tussock.compute.changelog.remote.poll_desk import LEASE_SECONDS, PollDesk
from tussock.compute.changelog.remote.push_line import PushLine
from tussock.compute.changelog.remote.snapshot_desk import SnapshotDesk
from tussock.compute.changelog.remote.stream_view import TEXT_RECORDS_MAX, stream_view, tried
from tussock.compute.changelog.remote.wire import as_bytes, as_text, pack_schema
from tussock.compute.service.rpc import application_pb2 as pb
from tussock.compute.service.rpc.arrow_messages import read_table
from tussock.compute.service.rpc.values import plain_value
from tussock.statestore.errors import InvalidOption, SchemaMismatch

if TYPE_CHECKING:
    from tussock.compute.changelog.flow import Flow
    from tussock.compute.changelog.flow_host import FlowHost
    from tussock.compute.changelog.stream import Stream

__all__ = ["ServedFlow"]

LOOKS_MAX = 4
"""At once: each may wait for a transaction that is computed."""
ACTS_MAX = 2
"""The same for steps, which may wait longer."""
COUNT_MAX = 1000
HISTORY_RECORDS_MAX = 10_000
"""Of one reply as text: what JSON of it takes is bounded so."""
_STEPS = {pb.Step.ROW: "row", pb.Step.TRANSACTION: "trans", pb.Step.LOCATION: "location"}
_QUIESCES = {pb.Step.QUIESCE: "stream", pb.Step.QUIESCE_DOWNSTREAM: "downstream", pb.Step.QUIESCE_BASE: "base"}


class ServedFlow:
    """A `ServedLayer`."""

    layer = "changelog"

    def __init__(self, flow: "Flow", host: "FlowHost", lease_seconds: float = LEASE_SECONDS) -> None:
        """Not started yet. `lease_seconds`: how long a stream waits for a subscriber that does not read on."""
        self.name = flow.name
        self.store_url = flow.store.url
        self._flow, self._host = flow, host
        self._lease_seconds = lease_seconds
        self._looks = ThreadPoolExecutor(LOOKS_MAX, thread_name_prefix="tussock-look")
        self._acts = ThreadPoolExecutor(ACTS_MAX, thread_name_prefix="tussock-act")
        self._lines: dict[str, PushLine] = {}
        self._desk: PollDesk | None = None
        self._snapshots: SnapshotDesk | None = None
        self._answers: dict[str, Callable[[Any], Future[Any]]] = {
            "push": self._push,
            "subscribe": self._subscribe,
            "stats": lambda _: self._looks.submit(flow.stats),
            "history": lambda asked: self._looks.submit(self._history, asked),
            "bad_rows": lambda asked: self._looks.submit(self._bad_rows, asked),
            "stream_row": lambda asked: self._looks.submit(self._row, asked),
            "stream_rows": lambda asked: self._looks.submit(self._rows, asked),
            "stream_look": lambda asked: self._looks.submit(self._look, asked),
            "replay_bad": lambda asked: self._acts.submit(flow.replay_bad, asked.number),
            "step": lambda asked: self._acts.submit(self._step, asked),
            "auto_step": lambda asked: self._acts.submit(self._auto_step, asked),
            "hold": lambda asked: self._acts.submit(self._hold, asked),
            "set_breakpoint": lambda asked: self._acts.submit(self._set_breakpoint, asked),
            "change_breakpoint": lambda asked: self._acts.submit(self._change_breakpoint, asked),
            "what_if": lambda asked: self._acts.submit(self._what_if, asked),
        }
        self.kinds = frozenset(self._answers)

    def begin_with(self, workers: int) -> None:
        """Streams run in one thread: `InvalidOption`, except for 0."""
        if workers:
            raise self._no_workers("leave `workers` out")

    def take_workers(self) -> NoReturn:
        """`InvalidOption`, for the same reason."""
        raise self._no_workers("leave `workers_listen` out")

    def scale(self, workers: int) -> NoReturn:  # noqa: ARG002 - it has none
        """`InvalidOption`, for the same reason."""
        raise self._no_workers("leave `workers_file` out")

    def workers(self) -> dict[str, int]:
        """None."""
        return {}

    def _no_workers(self, way_out: str) -> InvalidOption:
        return InvalidOption(
            f"flow {self.name!r}: its streams run in one process, and workers are for functions: {way_out}"
        )

    def start(self) -> None:
        """Recover, and begin to take transactions."""
        self._flow.start()
        self._lines = {name: PushLine(self._host, name) for name, one in self._host.streams.items() if not one.inputs}
        self._desk = PollDesk(self._host, self._host.started().system, self._lease_seconds)
        self._snapshots = SnapshotDesk(self._host, self._host.started().system, self._lease_seconds)

    def stop(self) -> None:
        """Commit what there is, and end; what waits in queues is there at the next start."""
        for pool in (self._looks, self._acts):
            pool.shutdown(wait=False, cancel_futures=True)
        for line in self._lines.values():
            line.stop()
        if self._desk is not None:
            self._desk.stop()
        self._flow.stop()

    def begin(self, kind: str, request: pb.Request) -> "Future[Any]":
        """Ask the flow."""
        answer = self._answers.get(kind)
        if answer is None:
            raise InvalidOption(f"a flow has no request {kind!r}")
        return answer(getattr(request, kind))

    def schemas(self) -> dict[str, bytes]:
        """By stream, columns and key."""
        return {name: pack_schema(one.plan.shape) for name, one in self._host.started().streams.items()}

    def pause(self) -> None:
        """Let all streams stand still; does not wait until they do."""
        self._host.pause_soon()

    def resume(self) -> None:
        """Let them go on."""
        self._flow.stop_auto_step()
        self._host.resume_soon()

    def status(self) -> dict[str, Any]:
        """How the flow is."""
        return self._flow.status()

    @property
    def failure(self) -> Exception | None:
        """What has ended the flow."""
        return self._flow.failure

    # --- Transactions ------------------------------------------------------------------------------------------------

    def _push(self, asked: pb.Push) -> "Future[Any]":
        stream = self._stream(asked.stream)
        line = self._lines.get(stream.name)
        if line is None:
            raise InvalidOption(f"stream {stream.name!r} reads other streams: push to one of those")
        return line.push(asked)

    def _subscribe(self, asked: pb.Subscribe) -> "Future[Any]":
        assert self._desk is not None, "what is asked has started"
        return self._desk.poll(asked)

    def _history(self, asked: pb.History) -> list[dict[str, Any]]:
        stream = self._host.started().streams[self._stream(asked.stream).name]
        _check_count(asked.count, "transactions of a history")
        _check_text(asked.text_records)
        history = stream.history if asked.side == pb.History.PUBLISHED else stream.taken_history
        found = history.before(asked.before or None, asked.count)
        if not asked.text_records:
            return [as_bytes(one) for one in found]
        most = max(min(asked.text_records, HISTORY_RECORDS_MAX // max(len(found), 1)), 1)
        return [as_text(one, most) for one in found]

    def _bad_rows(self, asked: pb.BadRows) -> list[dict[str, Any]]:
        _check_count(asked.last, "bad transactions")
        found = self._stream(asked.stream).bad_rows(asked.last, asked.before or None)
        return [{**one._asdict(), "location": str(one.location)} for one in found]

    def _row(self, asked: pb.StreamRow) -> pa.Table:
        stream = self._stream(asked.stream)
        found = stream.get(_key_of(asked, stream))
        return pa.Table.from_pylist([] if found is None else [found], schema=stream.schema)

    def _rows(self, asked: pb.StreamRows) -> dict[str, Any]:
        assert self._snapshots is not None, "what is asked has started"
        return self._snapshots.page(asked)

    # --- Looking into it ---------------------------------------------------------------------------------------------

    def _look(self, asked: pb.StreamLook) -> dict[str, Any]:
        _check_text(asked.text_records)
        return stream_view(self._host, self._stream(asked.stream).name, asked.text_records)

    def _step(self, asked: pb.Step) -> dict[str, Any]:
        stream = self._stream(asked.stream).name if asked.stream else None
        if asked.what in _QUIESCES:
            return self._flow.quiesce(stream, _QUIESCES[asked.what])._asdict()  # type: ignore[arg-type]
        return self._flow.step(_step_of(asked.what), stream)._asdict()

    def _auto_step(self, asked: pb.AutoStep) -> None:
        if asked.seconds:
            self._flow.auto_step(asked.seconds, _step_of(asked.what))
        else:
            self._flow.stop_auto_step()

    def _hold(self, asked: pb.Hold) -> None:
        self._host.hold(self._stream(asked.stream).name, is_held=asked.is_held)

    def _set_breakpoint(self, asked: pb.SetBreakpoint) -> dict[str, Any]:
        side: Side = "output" if asked.on_output else "input"
        one = self._stream(asked.stream).break_on(side, asked.condition or None, asked.every or 1)
        return breakpoints_shown([one])[0]

    def _change_breakpoint(self, asked: pb.ChangeBreakpoint) -> None:
        one = self._breakpoint(asked.number)
        if asked.how == pb.ChangeBreakpoint.ENABLE:
            one.enable()
        elif asked.how == pb.ChangeBreakpoint.DISABLE:
            one.disable()
        elif asked.how == pb.ChangeBreakpoint.REMOVE:
            one.remove()
        else:
            raise InvalidOption(f"a breakpoint is changed by {asked.how}, which is not known here")

    def _breakpoint(self, number: int) -> Breakpoint:
        for one in self._flow.breakpoints:
            if one.number == number:
                return one
        raise InvalidOption(f"flow {self.name!r} has no breakpoint {number}")

    def _what_if(self, asked: pb.WhatIf) -> dict[str, Any]:
        _check_text(asked.text_records)
        if asked.WhichOneof("which") == "bad":
            name = self._host.stream_of_bad(asked.bad)
            found = self._flow.what_if(bad=asked.bad)
        else:
            name = self._stream(asked.stream).name
            found = self._flow.what_if(name, asked.seq)
        return tried(name, found, self._host.started().streams[name].plan.shape, asked.text_records)

    def _stream(self, name: str) -> "Stream":
        return self._flow.stream(clean_text(name))


def _key_of(asked: pb.StreamRow, stream: "Stream") -> Any:
    what = f"a key of stream {stream.name!r}"
    if asked.WhichOneof("key") != "arrow":
        key = plain_value(asked.plain, what)
        return tuple(key) if isinstance(key, list) else key
    table = read_table(asked.arrow, what)
    if table.num_rows != 1 or table.column_names != list(stream.key):
        raise SchemaMismatch(f"{what}: {table.num_rows:,} rows of {table.column_names}; expected one of {stream.key}")
    values = tuple(column[0].as_py() for column in table.columns)
    return values if len(values) > 1 else values[0]


def _step_of(what: pb.Step.What) -> Any:
    if what not in _STEPS:
        raise InvalidOption(f"a step by {what}, which is not known here")
    return _STEPS[what]


def _check_count(count: int, what: str) -> None:
    if not 1 <= count <= COUNT_MAX:
        raise InvalidOption(f"{count:,} {what} are asked for; expected 1 to {COUNT_MAX:,}")


def _check_text(records: int) -> None:
    if records > TEXT_RECORDS_MAX:
        raise InvalidOption(f"{records:,} records as text are asked for; expected at most {TEXT_RECORDS_MAX}, or 0")
