"""`Client`: the calls of an `App` that another process serves."""

import os
from concurrent.futures import Future
from types import TracebackType
from typing import Any

import pyarrow as pa

from tussock.compute.applications.arguments import check_seconds, check_text
from tussock.compute.procedures.app import TRACE_MAX
from tussock.compute.procedures.borders.requests import BATCH_ID_MAX, pack_arguments
from tussock.compute.procedures.definitions import Window
from tussock.compute.procedures.rows import TupleShape, arrow_rows, is_plain, plain_rows, to_table
from tussock.compute.service.client.channel import ApplicationChannel
from tussock.compute.service.client.connection import ApplicationConnection
from tussock.compute.service.client.replies import begin_ms
from tussock.compute.service.rpc import application_pb2 as pb
from tussock.compute.service.rpc.kinds import PLAIN_BYTES_MAX
from tussock.meta.client.addresses import addresses_in
from tussock.statestore.base.identity import access_from
from tussock.statestore.base.system import RealSystem
from tussock.statestore.errors import InvalidOption

__all__ = ["Client"]

OUTSTANDING_MAX = 9000


class Client:
    """An application behind `tussock serve`. Safe to share between threads; use it in a `with` block, or close it."""

    def __init__(
        self,
        address: str,
        *,
        token: str | None = None,
        tls_ca: str | None = None,
        tls_cert: str | None = None,
        tls_key: str | None = None,
        tls_server_name: str | None = None,
        deadline: float = 30.0,
        outstanding: int = 256,
    ) -> None:
        """`address` is `host:port`; connects when it is first used.

        Token and certificates are given as to `connect`, or by the same variables of the environment.
        For `deadline` seconds a request that has not begun is tried again; with `outstanding` requests under way the
        next one waits. Raises `InvalidOption`.
        """
        try:
            if not isinstance(address, str) or len(addresses_in(address)) > 1:
                raise InvalidOption("there is one address")
        except InvalidOption:
            shown = "***" if isinstance(address, str) and "@" in address else address
            raise InvalidOption(f"the application's address is {shown!r:.200}; expected HOST:PORT") from None
        check_seconds(deadline, f"client of {address}: deadline", none=False)
        if type(outstanding) is not int or not 1 <= outstanding <= OUTSTANDING_MAX:
            raise InvalidOption(f"outstanding is {outstanding!r:.100}; expected 1 to {OUTSTANDING_MAX:,}")
        access = access_from(
            os.environ,
            token=token,
            tls_ca=tls_ca,
            tls_cert=tls_cert,
            tls_key=tls_key,
            tls_server_name=tls_server_name,
        )
        system = RealSystem()
        channel = ApplicationChannel(address.removeprefix("tussock://"), access, system)
        self._connection = ApplicationConnection(channel, system, deadline=deadline, outstanding=outstanding)

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

    def stats(self) -> dict[str, int]:
        """Counts of the service's run, as `App.stats`."""
        found: dict[str, int] = self._look(pb.Request(stats=pb.Stats()))
        return found

    def status(self) -> dict[str, Any]:
        """How application and service are; `docs/service.md` lists it."""
        found: dict[str, Any] = self._look(pb.Request(status=pb.Status()))
        return found

    def pause(self) -> None:
        """Let requests wait until `resume`; needs the role admin."""
        self._look(pb.Request(pause=pb.Pause()))

    def resume(self) -> None:
        """Run what waits, and what comes; needs the role admin."""
        self._look(pb.Request(resume=pb.Resume()))

    def drain(self) -> None:
        """Let the service end as by SIGTERM; returns once it has begun to. Needs the role admin.

        It ends the node, and waits for no feed; `App.drain` waits for the feeds, and ends nothing.
        """
        self.ask(pb.Request(drain=pb.Drain()), is_repeatable=False).result()

    def ask(self, request: pb.Request, *, is_repeatable: bool) -> "Future[Any]":
        """Send a request of the protocol as it is; `is_repeatable`: again, if the connection breaks."""
        return self._connection.ask(request, is_repeatable=is_repeatable)

    def reply(self, asked: "Future[Any]", timeout: float | None, what: str, *, again: str = "") -> Any:
        """Wait for what was asked for; the errors at the end of the time say what is known of `what`."""
        return self._connection.reply(asked, timeout, what, again=again)

    def close(self, timeout: float | None = None) -> None:
        """Wait at most `timeout` seconds for the replies under way, and end; `None`: the client's `deadline`.

        A request that has none by then ends with `OutcomeUnknown` if it was sent, else with `ServiceUnavailable`.
        Again: nothing.
        """
        if timeout is not None:
            check_seconds(timeout, "close of a client: timeout", none=False)
        self._connection.close(timeout)

    def __enter__(self) -> "Client":
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        # After an exception nobody waits for what else is under way.
        self.close(None if kind is None else 0)

    def _call(self, name: str, arguments: tuple[Any, ...], timeout: float | None) -> "Future[Any]":
        call = pb.Call(name=name, arguments=pack_arguments(check_text(name, "the call procedure"), arguments))
        return self.ask(pb.Request(call=call, deadline_ms=begin_ms(timeout)), is_repeatable=False)

    def _look(self, request: pb.Request) -> Any:
        return self.ask(request, is_repeatable=True).result()

    def _table(self, procedure: str, rows: Any, timeout: float | None) -> pa.Table:
        """Rows that are no plain dicts, by the schema that the procedure has declared."""
        schema = self._connection.hello(timeout).schemas.get(procedure, b"")
        shape = None
        if schema:
            with pa.ipc.open_stream(schema) as reader:
                shape = TupleShape(reader.schema, f"procedure {procedure!r}")
        return to_table(rows, shape, f"procedure {procedure!r}")
