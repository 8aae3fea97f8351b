"""`functions.Client`: the calls of a `Runtime` that another process serves."""

from concurrent.futures import Future
from typing import Any

import pyarrow as pa

from tussock.compute.applications.ipc_streams import ipc_bytes
from tussock.compute.functions.errors import FunctionFault
from tussock.compute.functions.option_checks import checked_request_id
from tussock.compute.functions.program.columns import checked_keys, checked_table
from tussock.compute.functions.program.values import Key, check_key, copy_of, pack
from tussock.compute.service.client.replies import begin_ms
from tussock.compute.service.client.service_client import ServiceClient
from tussock.compute.service.rpc import application_pb2 as pb
from tussock.statestore.errors import InvalidOption
from tussock.statestore.rows.python_values import python_rows

__all__ = ["FunctionClient"]


class FunctionClient(ServiceClient):
    """`functions.Client`: a program behind `tussock serve`.

    Safe to share between threads; use it in a `with` block, or close it.
    """

    _REFUSAL = FunctionFault

    def send(
        self,
        operator: str,
        key: Key,
        function: str,
        *arguments: Any,
        request_id: str | None = None,
        timeout: float | None = None,
    ) -> "Future[Any]":
        """Ask for a transaction, as `Runtime.send`; what that raises at once, the future raises here.

        If the connection breaks the request is repeated until it is answered, and runs once: one without an id gets
        one of the client's own. So the node keeps each reply, for `keep_replies` seconds. One that has not begun
        `timeout` seconds later is withdrawn, unless others wait for a request of this id: `WaitTimeout`.
        """
        if request_id is None:
            request_id = f"client-{self._system.random_bytes(16).hex()}"
        else:
            request_id = checked_request_id(request_id)
        what = _named(operator, function)
        send = pb.Send(
            operator=operator,
            key=_packed_key(key, operator),
            function=function,
            arguments=pack(copy_of(list(arguments), f"an argument of {what}")) if arguments else b"",
            request_id=_text(request_id, "the id of a request"),
        )
        return self.ask(pb.Request(send=send, deadline_ms=begin_ms(timeout)), is_repeatable=True)

    def send_many(
        self, operator: str, function: str, keys: Any, columns: Any = None, *, timeout: float | None = None
    ) -> pa.Table:
        """Ask for a transaction for each of many keys, and wait, as `Runtime.send_many`.

        `OutcomeUnknown` if the connection breaks after it was sent: some of them may have run, or may still run.
        `TimeoutError` after `timeout` seconds, with the requests still on their way; `WaitTimeout`, which is one, if
        none of them has begun, and none will.
        """
        self._connection.check_wait()
        asked = self._send_many(operator, function, keys, columns, timeout)
        replies: pa.Table = self.reply(asked, timeout, f"send_many of {_named(operator, function)}")
        return replies

    def send_many_async(self, operator: str, function: str, keys: Any, columns: Any = None) -> "Future[Any]":
        """The same, for a future of the table."""
        return self._send_many(operator, function, keys, columns, None)

    def query(self, operator: str, key: Key) -> dict[str, Any] | None:
        """The newest state of an entity; `None` where there is none."""
        name = _text(operator, "the name of an operator")
        found = self._look(pb.Request(query=pb.Query(operator=name, key=_packed_key(key, operator), as_row=True)))
        # A map of an operator without a schema, and from a node that does not know of rows.
        if isinstance(found, pa.Table):
            found = python_rows(found)[0] if found.num_rows else None
        state: dict[str, Any] | None = found
        return state

    def call_graph(self, request_id: str | None = None, *, tid: int | None = None) -> dict[str, Any] | None:
        """One of the newest thousand transactions, as `Runtime.call_graph`; `None` for another one."""
        if (request_id is None) == (tid is None):
            raise InvalidOption("call_graph takes the id of a request, or the number of a transaction")
        if tid is not None:
            if type(tid) is not int or not 0 <= tid < 1 << 63:
                raise InvalidOption(f"tid={tid!r:.100}; expected the number of a transaction")
            graph = pb.CallGraph(tid=tid)
        else:
            graph = pb.CallGraph(request_id=_text(request_id, "the id of a request"))
        found: dict[str, Any] | None = self._look(pb.Request(call_graph=graph))
        return found

    def _send_many(self, operator: str, function: str, keys: Any, columns: Any, timeout: float | None) -> "Future[Any]":
        table = _table(keys, columns, _named(operator, function))
        sent = pb.SendMany(operator=operator, function=function, arrow=ipc_bytes(table))
        return self.ask(pb.Request(send_many=sent, deadline_ms=begin_ms(timeout)), is_repeatable=False)


def _named(operator: Any, function: Any) -> str:
    """A function for messages; `FunctionFault` for names that no message can have."""
    return f"function {_text(operator, 'the name of an operator'):.120}.{_text(function, 'that of a function'):.120}"


def _text(value: Any, what: str) -> str:
    """Text as a message can have it; `FunctionFault` for anything else."""
    try:
        if isinstance(value, str) and value.encode():
            return value
    except UnicodeEncodeError:
        pass
    raise FunctionFault(f"{value!r:.100} is not {what}; expected text that is not empty")


def _packed_key(key: Any, operator: str) -> bytes:
    """A key in MessagePack; whether it is of its operator's type the node says."""
    if type(key) not in (str, int, bytes):
        raise FunctionFault(
            f"{key!r:.100} is no key of operator {operator!r:.120}; expected a string, an integer or bytes"
        )
    check_key(key, operator, type(key))
    return pack(key)


def _table(keys: Any, columns: Any, what: str) -> pa.Table:
    """The keys and the columns as one table."""
    try:
        keys = checked_keys(keys, what)
        first = pa.array(keys) if isinstance(keys, list) else keys
        rest = checked_table({} if columns is None else columns, what)
        if rest.num_columns and rest.num_rows != len(first):
            raise FunctionFault(f"{what}: {len(first)} keys, and columns of {rest.num_rows} rows")
        return pa.Table.from_arrays([first, *rest.columns], names=["", *rest.column_names])
    except (pa.ArrowException, TypeError, ValueError, OverflowError) as error:
        if isinstance(error, FunctionFault):
            raise
        raise FunctionFault(f"{what}: its keys and columns are no table: {error}") from error
