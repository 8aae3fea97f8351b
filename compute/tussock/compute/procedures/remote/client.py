"""`Client`: the calls of an `App` that another process serves."""

from concurrent.futures import Future
from typing import Any

import pyarrow as pa

from tussock.compute.applications.arguments import check_text
from tussock.compute.procedures.app import TRACE_MAX
from tussock.compute.procedures.borders.requests import BATCH_ID_MAX, pack_arguments
from tussock.compute.procedures.definitions import Window
from tussock.compute.procedures.rows import TupleShape, arrow_rows, is_plain, plain_rows, to_table
from tussock.compute.service.client.replies import begin_ms
from tussock.compute.service.client.service_client import ServiceClient
from tussock.compute.service.rpc import application_pb2 as pb
from tussock.compute.service.rpc.kinds import PLAIN_BYTES_MAX
from tussock.statestore.errors import InvalidOption

__all__ = ["Client"]


class Client(ServiceClient):
    """An application behind `tussock serve`. Safe to share between threads; use it in a `with` block, or close it."""

    def submit(
        self, procedure: str, rows: Any, batch_id: int | None = None, *, timeout: float | None = None
    ) -> "Future[Any]":
        """Give a border procedure a batch, as `App.submit`; what that raises at once, the future raises here.

        With `batch_id` it is repeated until it is answered, for the reply that it got first. Without one it ends with
        `OutcomeUnknown` if the connection breaks after it was sent. `cancel` of the future withdraws it until it is
        sent, and no longer; one that has not begun `timeout` seconds later is withdrawn by the service: `WaitTimeout`.
        """
        if batch_id is not None and (type(batch_id) is not int or not 1 <= batch_id <= BATCH_ID_MAX):
            raise InvalidOption(f"procedure {procedure!r}: batch_id {batch_id!r:.100}; expected 1 to 2**63-1, or None")
        submit = pb.Submit(procedure=check_text(procedure, "the border procedure"), batch_id=batch_id or 0)
        if type(rows) is list and all(type(row) is dict and is_plain(row) for row in rows):
            submit.plain = plain_rows(rows, f"procedure {procedure!r}")
        if not submit.plain or len(submit.plain) > PLAIN_BYTES_MAX:
            submit.arrow = arrow_rows(self._table(procedure, rows, timeout), f"procedure {procedure!r}")
        request = pb.Request(submit=submit, deadline_ms=begin_ms(timeout))
        return self.ask(request, is_repeatable=batch_id is not None)

    def call_async(self, name: str, *arguments: Any) -> "Future[Any]":
        """Run a call procedure, as `App.call_async`. `OutcomeUnknown` if the connection breaks after it was sent.

        `cancel` of the future withdraws it until it is sent, and no longer.
        """
        return self._call(name, arguments, None)

    def call(self, name: str, *arguments: Any, timeout: float | None = None) -> Any:
        """The same, waiting for the reply; `TimeoutError` after `timeout` seconds, with the call still on its way.

        A call that has not begun by then is withdrawn: `WaitTimeout`, which is a `TimeoutError`.
        """
        self._connection.check_wait()
        return self.reply(self._call(name, arguments, timeout), timeout, f"call {name!r}")

    def trace(self, last: int = 20) -> list[tuple[str, int | None]]:
        """The newest executions, in order, as `App.trace`."""
        if type(last) is not int or not 1 <= last <= TRACE_MAX:
            raise InvalidOption(f"last is {last!r:.100}; expected 1 to {TRACE_MAX:,}")
        return [(name, batch) for name, batch in self._look(pb.Request(trace=pb.Trace(last=last)))]

    def window_rows(self, name: str | Window, *, staged: bool = False) -> pa.Table:
        """The visible tuples of a window, by its name or as declared, oldest first; or those that wait for a slide."""
        window = check_text(name.name if isinstance(name, Window) else name, "the window")
        return self._look(pb.Request(window_rows=pb.WindowRows(window=window, staged=staged)))

    def _call(self, name: str, arguments: tuple[Any, ...], timeout: float | None) -> "Future[Any]":
        call = pb.Call(name=name, arguments=pack_arguments(check_text(name, "the call procedure"), arguments))
        return self.ask(pb.Request(call=call, deadline_ms=begin_ms(timeout)), is_repeatable=False)

    def _table(self, procedure: str, rows: Any, timeout: float | None) -> pa.Table:
        """Rows that are no plain dicts, by the schema that the procedure has declared."""
        schema = self._connection.hello(timeout).schemas.get(procedure, b"")
        shape = None
        if schema:
            with pa.ipc.open_stream(schema) as reader:
                shape = TupleShape(reader.schema, f"procedure {procedure!r}")
        return to_table(rows, shape, f"procedure {procedure!r}")
