"""Replies of many requests as one table."""

import threading
from collections.abc import Sequence
from concurrent.futures import Future
from functools import partial
from typing import Any

import msgspec
import pyarrow as pa

from tussock.compute.functions.batches.columns_request import checked_keys, checked_table
from tussock.compute.functions.errors import FunctionFault, TransactionAborted
from tussock.compute.functions.program.operators import Function
from tussock.compute.functions.program.values import size_of
from tussock.statestore.errors import MessageTooLarge

__all__ = ["argument_rows", "together"]


def argument_rows(function: Function, keys: Any, columns: Any) -> list[tuple[Any, tuple[Any, ...]]]:
    """For each key the arguments in its row; `FunctionFault` if there are not as many of both, or other columns."""
    keys = checked_keys(keys, function.title)
    names = keys if isinstance(keys, list) else keys.to_pylist()
    table = checked_table({} if columns is None else columns, function.title)
    order = function.ordered(table.column_names)
    if not order:
        return [(name, ()) for name in names]
    if table.num_rows != len(names):
        raise FunctionFault(f"{function.title}: {len(names)} keys, and columns of {table.num_rows} rows")
    rows = zip(*[table.column(name).to_pylist() for name in order], strict=True)
    return list(zip(names, rows, strict=True))


def together(replies: Sequence["Future[Any]"], table: "Future[Any]", bytes_max: int | None = None) -> "Future[Any]":
    """The future of the table of all replies: `reply` and `error`; fails with the first other error than an abort.

    And with `MessageTooLarge` where the replies take more than `bytes_max`, of which none is kept then.
    It cannot be cancelled, since some of the requests may run already.
    """
    table.set_running_or_notify_cancel()
    found = _GatheredReplies(len(replies), table, bytes_max)
    if not replies:
        found.give()
    for at, reply in enumerate(replies):
        reply.add_done_callback(partial(found.end, at))
    return table


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
        self._failures: dict[int, BaseException] = {}

    def end(self, at: int, reply: "Future[Any]") -> None:
        """The reply of that place is there."""
        error = reply.exception()
        value = None if error is not None else reply.result()
        size = 0 if self._bytes_max is None else size_of((value,))
        with self._lock:
            self._left -= 1
            is_last = self._left == 0
            self._nbytes += size
            if error is not None and not isinstance(error, TransactionAborted):
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
            self._table.set_exception(self._failures[min(self._failures)])
        elif self._is_too_large:
            told = (
                f"the replies to {self._count:,} requests take {self._nbytes:,} bytes, and {self._bytes_max:,} are "
                "kept at most; the requests have run: send fewer at a time, or each by send(), with an id by which its "
                "reply can be asked for again"
            )
            self._table.set_exception(MessageTooLarge(told, self._nbytes))
        else:
            self._table.set_result(
                pa.table({"reply": _array(self._values), "error": pa.array(self._errors, pa.string())})
            )

    @property
    def _is_too_large(self) -> bool:
        return self._bytes_max is not None and self._nbytes > self._bytes_max


def _array(values: list[Any]) -> pa.Array:
    """Of the type that they have in common; as JSON where they have none."""
    try:
        return pa.array(values)
    except (pa.ArrowException, TypeError, ValueError, OverflowError):
        return pa.array([None if value is None else msgspec.json.encode(value).decode() for value in values])
