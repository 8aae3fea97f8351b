"""`FunctionClient`: the calls of a `Runtime` that another process serves."""

import itertools
import os
from concurrent.futures import Future
from types import TracebackType
from typing import Any

import pyarrow as pa

from tussock.compute.applications.arguments import check_seconds
from tussock.compute.functions.errors import FunctionFault
from tussock.compute.functions.program.values import Key, check_key, copies_of, pack
from tussock.compute.service.client.channel import ApplicationChannel
from tussock.compute.service.client.connection import ApplicationConnection
from tussock.compute.service.rpc import application_pb2 as pb
from tussock.compute.service.rpc.values import arrow_bytes
from tussock.meta.client.addresses import addresses_in
from tussock.statestore.base.identity import access_from
from tussock.statestore.base.system import RealSystem
from tussock.statestore.errors import InvalidOption

__all__ = ["FunctionClient"]

OUTSTANDING_MAX = 9000
REQUEST_ID_MAX = 200


class FunctionClient:
    """A program behind `tussock serve`. Safe to share between threads; use it in a `with` block, or close it."""

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
        if not isinstance(address, str) or "," in address:
            raise InvalidOption(f"the program's address is {address!r:.200}; expected HOST:PORT")
        addresses_in(address)
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
        self._ids = f"client-{system.random_bytes(12).hex()}-"
        self._numbers = itertools.count(1)

    def send(
        self, operator: str, key: Key, function: str, *arguments: Any, request_id: str | None = None
    ) -> "Future[Any]":
        """Ask for a transaction, as `Runtime.send`; what that raises at once, the future raises here.

        If the connection breaks the request is repeated until it is answered, and runs once: one without an id gets
        one of the client's own. So the node keeps each reply, for `keep_replies` seconds.
        """
        if request_id is None:
            request_id = f"{self._ids}{next(self._numbers)}"
        elif not isinstance(request_id, str) or not 0 < len(request_id) <= REQUEST_ID_MAX:
            raise InvalidOption(
                f"request_id={request_id!r:.100}; expected a string of 1 to {REQUEST_ID_MAX} characters"
            )
        what = _named(operator, function)
        send = pb.Send(
            operator=operator,
            key=_packed_key(key, operator),
            function=function,
            arguments=pack(copies_of(arguments, f"an argument of {what}")) if arguments else b"",
            request_id=_text(request_id, "the id of a request"),
        )
        return self.ask(pb.Request(send=send), is_repeatable=True)

    def send_many(self, operator: str, function: str, keys: Any, columns: Any = None) -> pa.Table:
        """Ask for a transaction for each of many keys, and wait, as `Runtime.send_many`.

        `OutcomeUnknown` if the connection breaks after it was sent: some of them may have run, or may still run.
        """
        replies: pa.Table = self.send_many_async(operator, function, keys, columns).result()
        return replies

    def send_many_async(self, operator: str, function: str, keys: Any, columns: Any = None) -> "Future[Any]":
        """The same, for a future of the table."""
        table = _table(keys, columns, _named(operator, function))
        sent = pb.SendMany(operator=operator, function=function, arrow=arrow_bytes(table))
        return self.ask(pb.Request(send_many=sent), is_repeatable=False)

    def query(self, operator: str, key: Key) -> dict[str, Any] | None:
        """The newest state of an entity; `None` where there is none."""
        query = pb.Query(operator=_text(operator, "the name of an operator"), key=_packed_key(key, operator))
        state: dict[str, Any] | None = self._look(pb.Request(query=query))
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

    def stats(self) -> dict[str, Any]:
        """Counts of the node's run, as `Runtime.stats`."""
        found: dict[str, Any] = self._look(pb.Request(stats=pb.Stats()))
        return found

    def status(self) -> dict[str, Any]:
        """How program and node are; `docs/service.md` lists it."""
        found: dict[str, Any] = self._look(pb.Request(status=pb.Status()))
        return found

    def pause(self) -> None:
        """Let requests wait until `resume`; needs the role admin."""
        self._look(pb.Request(pause=pb.Pause()))

    def resume(self) -> None:
        """Run what waits, and what comes; needs the role admin."""
        self._look(pb.Request(resume=pb.Resume()))

    def drain(self) -> None:
        """Let the node end as by SIGTERM; returns once it has begun to. Needs the role admin."""
        self.ask(pb.Request(drain=pb.Drain()), is_repeatable=False).result()

    def ask(self, request: pb.Request, *, is_repeatable: bool) -> "Future[Any]":
        """Send a request of the protocol as it is; `is_repeatable`: again, if the connection breaks."""
        return self._connection.ask(request, is_repeatable=is_repeatable)

    def close(self) -> None:
        """Wait for the replies that are under way, and end the connection. Again: nothing."""
        self._connection.close()

    def __enter__(self) -> "FunctionClient":
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def _look(self, request: pb.Request) -> Any:
        return self.ask(request, is_repeatable=True).result()


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
        first = keys if isinstance(keys, pa.Array | pa.ChunkedArray) else pa.array(keys)
        rest = pa.table(columns) if columns is not None else pa.table({})
        if columns is not None and rest.num_rows != len(first):
            raise FunctionFault(f"{what}: {len(first)} keys, and columns of {rest.num_rows} rows")
        return pa.Table.from_arrays([first, *rest.columns], names=["", *rest.column_names])
    except (pa.ArrowException, TypeError, ValueError, OverflowError) as error:
        if isinstance(error, FunctionFault):
            raise
        raise FunctionFault(f"{what}: its keys and columns are no table: {error}") from error
