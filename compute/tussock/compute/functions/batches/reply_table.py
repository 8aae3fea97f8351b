"""Replies of many requests as one table."""

import threading
from collections.abc import Sequence
from concurrent.futures import Future
from functools import partial
from typing import Any

import msgspec
import pyarrow as pa

from tussock.compute.applications.program import Outcome
from tussock.compute.applications.replies import ReplyFuture, give
from tussock.compute.applications.request_queue import Nesting
from tussock.compute.functions.epochs.transaction import FunctionRequest
from tussock.compute.functions.errors import FunctionFault, TransactionAborted
from tussock.compute.functions.program.columns import checked_keys, checked_table, values_of
from tussock.compute.functions.program.context import Target
from tussock.compute.functions.program.operators import Function
from tussock.compute.functions.program.values import size_of
from tussock.statestore.errors import MessageTooLarge

__all__ = ["argument_rows", "together"]


def argument_rows(function: Function, keys: Any, columns: Any) -> list[tuple[Any, tuple[Any, ...]]]:
    """For each key the arguments in its row; `FunctionFault` if there are not as many of both, or other columns."""
    keys = checked_keys(keys, function.title)
    names = keys if isinstance(keys, list) else values_of(keys, f"{function.title}: its keys")
    table = checked_table({} if columns is None else columns, function.title)
    order = function.ordered(table.column_names)
    if not order:
        return [(name, ()) for name in names]
    if table.num_rows != len(names):
        raise FunctionFault(f"{function.title}: {len(names)} keys, and columns of {table.num_rows} rows")
    rows = zip(*[values_of(table.column(name), f"{function.title}: {name}") for name in order], strict=True)
    return list(zip(names, rows, strict=True))


def together(
    targets: Sequence[Target], nesting: Nesting, now: float, bytes_max: int | None = None
) -> "tuple[list[FunctionRequest], Future[Any]]":
    """Requests, and the future of the table of all replies: `reply` and `error`.

    It fails with the first other error than an abort, and with `MessageTooLarge` where the replies take more than
    `bytes_max`, of which none is kept then. Until the first of the requests begins, `cancel` withdraws all.
    """
    begin = _Beginning()
    replies = [_OneOfMany(nesting, begin) for _ in targets]
    table = _TableFuture(nesting, begin, replies)
    found = _GatheredReplies(len(replies), table, bytes_max)
    if not replies:
        found.give()
    for at, reply in enumerate(replies):
        reply.add_done_callback(partial(found.end, at))
    return [FunctionRequest(target, None, one, now) for target, one in zip(targets, replies, strict=True)], table


class _Beginning:
    """Whether any of the requests has begun, or all are withdrawn: one of both."""

    def __init__(self) -> None:
        self.lock = threading.Lock()
        self.begun = 0
        self.is_withdrawn = False


class _OneOfMany(ReplyFuture):
    def __init__(self, nesting: Nesting, begin: _Beginning) -> None:
        super().__init__(nesting)
        self._begin = begin

    def set_running_or_notify_cancel(self) -> bool:
        """Begin the request, unless all are withdrawn."""
        begin = self._begin
        with begin.lock:
            if begin.is_withdrawn or not super().set_running_or_notify_cancel():
                return False
            begin.begun += 1
            return True

    def put_back(self) -> None:
        """It has not begun after all, and waits."""
        with self._begin.lock:
            super().put_back()
            self._begin.begun -= 1


class _TableFuture(ReplyFuture):
    def __init__(self, nesting: Nesting, begin: _Beginning, replies: Sequence[_OneOfMany]) -> None:
        super().__init__(nesting)
        self._begin = begin
        self._replies = replies

    def cancel(self) -> bool:
        """Withdraw all requests, if none has begun; some that run alone would be neither all nor none."""
        with self._begin.lock:
            if self._begin.begun or self.done():
                return self.cancelled()
            self._begin.is_withdrawn = True
        for one in self._replies:
            one.cancel()
        return super().cancel()


class _GatheredReplies:
    """Replies as they come, in any thread."""

    def __init__(self, count: int, table: "Future[Any]", bytes_max: int | None) -> None:
        self._lock = threading.Lock()
        self._left = self._count = count
        self._table = table
        self._bytes_max = bytes_max
        self._nbytes = 0
        self._values: list[Any] = [None] * count
        self._errors: list[str | None] = [None] * count
        self._failures: dict[int, Exception] = {}

    def end(self, at: int, reply: "Future[Any]") -> None:
        """The reply of that place is there."""
        if reply.cancelled():
            # With all others, and nobody waits for the table.
            return
        error = reply.exception()
        value = None if error is not None else reply.result()
        size = 0 if self._bytes_max is None else size_of((value,))
        with self._lock:
            self._left -= 1
            is_last = self._left == 0
            self._nbytes += size
            if isinstance(error, Exception) and not isinstance(error, TransactionAborted):
                self._failures[at] = error
            elif self._is_too_large:
                self._values = []
            else:
                self._values[at], self._errors[at] = value, None if error is None else str(error)
        if is_last:
            self.give()

    def give(self) -> None:
        """All are there."""
        if self._failures:
            give(self._table, Outcome(error=self._failures[min(self._failures)]))
        elif self._is_too_large:
            told = (
                f"the replies to {self._count:,} requests take {self._nbytes:,} bytes, and {self._bytes_max:,} are "
                "kept at most; the requests have run: send fewer at a time, or each by send(), with an id by which its "
                "reply can be asked for again"
            )
            give(self._table, Outcome(error=MessageTooLarge(told, self._nbytes)))
        else:
            table = pa.table({"reply": _array(self._values), "error": pa.array(self._errors, pa.string())})
            give(self._table, Outcome(value=table))

    @property
    def _is_too_large(self) -> bool:
        return self._bytes_max is not None and self._nbytes > self._bytes_max


def _array(values: list[Any]) -> pa.Array:
    """Of the type that they have in common; as JSON where they have none."""
    try:
        return pa.array(values)
    except (pa.ArrowException, TypeError, ValueError, OverflowError):
        return pa.array([None if value is None else msgspec.json.encode(value).decode() for value in values])
