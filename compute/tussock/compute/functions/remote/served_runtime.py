"""A `Runtime` as the node of `tussock serve` sees it."""

from concurrent.futures import Future
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from tussock.compute.applications.errors import Full, FunctionFault
from tussock.compute.applications.program import Outcome
from tussock.compute.applications.replies import give
from tussock.compute.functions.remote.held_replies import HeldReplies
from tussock.compute.functions.remote.shared_replies import SharedReplies
from tussock.compute.service.rpc import application_pb2 as pb
from tussock.compute.service.rpc.arrow_messages import read_table
from tussock.compute.service.rpc.kinds import MESSAGE_BYTES_LIMIT
from tussock.compute.service.rpc.values import plain_list, plain_value
from tussock.statestore.errors import InvalidOption

if TYPE_CHECKING:
    from tussock.compute.functions.runtime import Runtime
    from tussock.compute.functions.workers.staff.lobby import Lobby

__all__ = ["ROWS_MAX", "ServedRuntime"]

ROWS_MAX = 10_000
"""Of a `SendMany` for a function that takes one request at a time; a batch function takes more."""
REPLIES_BYTES_MAX = MESSAGE_BYTES_LIMIT
"""Of the replies to a `SendMany`: no message can be larger."""
AGAIN_MS = 50


class ServedRuntime:
    """A `ServedLayer`."""

    layer = "functions"
    kinds = frozenset({"send", "send_many", "query", "stats", "call_graph"})

    def __init__(self, runtime: "Runtime", store_url: str) -> None:
        """Not started yet."""
        self.name = runtime.name
        self.store_url = store_url
        self._runtime = runtime
        self._shared = SharedReplies()
        self._held = HeldReplies()

    def begin_with(self, workers: int) -> None:
        """The number of processes that run the functions; before the start."""
        self._runtime.begin_with(workers)

    def scale(self, workers: int) -> None:
        """Go on with that many workers."""
        self._runtime.scale(workers)

    def take_workers(self) -> "Lobby":
        """Let the workers be those that join."""
        return self._runtime.take_workers()

    def workers(self) -> dict[str, int]:
        """How many are wanted and how many have joined, where they join."""
        return self._runtime.workers_joined()

    def start(self) -> None:
        """Recover, and begin to take requests."""
        self._runtime.before_epochs = self._held.wait
        self._runtime.start()

    def stop(self) -> None:
        """Run what was taken, commit, end."""
        self._runtime.stop()

    def begin(self, kind: str, request: pb.Request) -> "Future[Any]":
        """Ask the program; `cancel` of a request with an id withdraws it once all who wait for it have done so."""
        runtime = self._runtime
        if kind in ("send", "send_many"):
            asked = self._send(request.send) if kind == "send" else self._send_many(request.send_many)
            asked.add_done_callback(self._held.note)
            return asked
        if kind == "query":
            return self._query(request.query)
        done: Future[Any] = Future()
        if kind == "stats":
            done.set_result(runtime.stats())
        elif kind == "call_graph":
            graph = request.call_graph
            is_tid = graph.WhichOneof("which") == "tid"
            done.set_result(
                runtime.call_graph(tid=graph.tid) if is_tid else runtime.call_graph(request_id=graph.request_id)
            )
        else:
            raise InvalidOption(
                f"a program of functions has no request {kind!r}: `status` has its newest transactions, and "
                "`call_graph` (`tussock call-graph`) what one of them called"
            )
        return done

    def schemas(self) -> dict[str, bytes]:
        """None: arguments have no schema."""
        return {}

    def pause(self) -> None:
        """Take requests, and run none."""
        self._runtime.pause()

    def resume(self) -> None:
        """Run requests again."""
        self._runtime.resume()

    def status(self) -> dict[str, Any]:
        """How the program is."""
        return self._runtime.status()

    @property
    def failure(self) -> Exception | None:
        """What has ended the program."""
        return self._runtime.failure

    def _send(self, send: pb.Send) -> "Future[Any]":
        what = f"function {send.operator:.120}.{send.function:.120}"
        key = plain_value(send.key, what)
        arguments = plain_list(send.arguments, what)
        self._check_room(1)
        request_id = send.request_id or None
        if request_id is None:
            return self._runtime.send(send.operator, key, send.function, *arguments)
        return self._shared.share(
            lambda: self._runtime.send(send.operator, key, send.function, *arguments, request_id=request_id)
        )

    def _query(self, query: pb.Query) -> "Future[Any]":
        key = plain_value(query.key, f"a key of operator {query.operator!r:.120}")
        found = self._runtime.query_async(query.operator, key)
        schema = self._runtime.state_schema(query.operator) if query.as_row else None
        # A look that runs may wait for long, as for a worker that is lost; its caller need not.
        row: Future[Any] = Future()
        found.add_done_callback(lambda state: give(row, _row_of(state, schema)))
        row.add_done_callback(lambda asked: asked.cancelled() and found.cancel())
        return row

    def _send_many(self, sent: pb.SendMany) -> "Future[Any]":
        what = f"function {sent.operator:.120}.{sent.function:.120}"
        table = read_table(sent.arrow, what)
        if not table.num_columns:
            raise FunctionFault(f"{what}: a table without columns; expected the keys as the first one")
        keys, columns = table.column(0), table.select(range(1, table.num_columns))
        given: pa.Table | None = columns if columns.num_columns else None
        if self._runtime.is_batch(sent.operator, sent.function):
            return self._runtime.send_many_async(sent.operator, sent.function, keys, given)
        if table.num_rows > ROWS_MAX:
            raise FunctionFault(
                f"{what}: {table.num_rows:,} requests; at most {ROWS_MAX:,} fit, send the rest after them"
            )
        self._check_room(table.num_rows)
        return self._runtime.send_many_async(sent.operator, sent.function, keys, given, bytes_max=REPLIES_BYTES_MAX)

    def _check_room(self, requests: int) -> None:
        """The caller is the node's loop, which must not wait."""
        if self._runtime.room < requests:
            raise Full(f"too many requests wait already; this one did not begin: try again in {AGAIN_MS} ms", AGAIN_MS)


def _row_of(state: "Future[Any]", schema: pa.Schema | None) -> Outcome:
    """A state as a table of one row, of none without one; as it is where there is no schema."""
    try:
        found = state.result()
        if schema is None:
            return Outcome(value=found)
        return Outcome(value=pa.Table.from_pylist([] if found is None else [found], schema=schema))
    except Exception as error:  # noqa: BLE001 - it is the caller's
        return Outcome(error=error)
