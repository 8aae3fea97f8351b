"""Replies of many requests as one table."""

import threading
from collections.abc import Sequence
from concurrent.futures import Future
from typing import Any

import msgspec
import pyarrow as pa

from tussock.compute.functions.errors import FunctionFault, TransactionAborted

__all__ = ["argument_rows", "together"]


def argument_rows(function: str, keys: Any, columns: Any) -> list[tuple[Any, tuple[Any, ...]]]:
    """For each key the values of its row; `FunctionFault` if there are not as many of both."""
    names = keys.to_pylist() if isinstance(keys, pa.Array | pa.ChunkedArray) else list(keys)
    if columns is None:
        return [(name, ()) for name in names]
    rows = list(zip(*pa.table(columns).to_pydict().values(), strict=True))
    if len(rows) != len(names):
        raise FunctionFault(f"function {function}: {len(names)} keys, and columns of {len(rows)} rows")
    return list(zip(names, rows, strict=True))


def together(replies: Sequence["Future[Any]"]) -> "Future[Any]":
    """A future of the table of all replies: `reply` and `error`; fails with the first other error than an abort.

    It cannot be cancelled, since some of the requests may run already.
    """
    table: Future[Any] = Future()
    table.set_running_or_notify_cancel()
    left = len(replies)
    lock = threading.Lock()

    def ended(_: "Future[Any]") -> None:
        nonlocal left
        with lock:
            left -= 1
            is_last = left == 0
        if is_last:
            _give(replies, table)

    if not replies:
        _give(replies, table)
    for reply in replies:
        reply.add_done_callback(ended)
    return table


def _give(replies: Sequence["Future[Any]"], table: "Future[Any]") -> None:
    values, errors = [], []
    for reply in replies:
        error = reply.exception()
        if error is not None and not isinstance(error, TransactionAborted):
            table.set_exception(error)
            return
        values.append(reply.result() if error is None else None)
        errors.append(None if error is None else str(error))
    table.set_result(pa.table({"reply": _array(values), "error": pa.array(errors, pa.string())}))


def _array(values: list[Any]) -> pa.Array:
    """Of the type that they have in common; as JSON where they have none."""
    try:
        return pa.array(values)
    except (pa.ArrowException, TypeError, ValueError, OverflowError):
        return pa.array([None if value is None else msgspec.json.encode(value).decode() for value in values])
