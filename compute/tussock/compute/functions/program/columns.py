"""Keys and columns as callers give them: what Arrow would take for something else is refused."""

from collections.abc import Mapping
from typing import Any

import pyarrow as pa

from tussock.compute.functions.errors import FunctionFault

__all__ = ["checked_keys", "checked_table", "values_of"]


def checked_keys(keys: Any, what: str) -> Any:
    """An Arrow array or a list; `FunctionFault` if it is neither."""
    if isinstance(keys, pa.Array | pa.ChunkedArray | list):
        return keys
    if isinstance(keys, str | bytes | dict) or not hasattr(keys, "__len__"):
        raise FunctionFault(f"{what}: keys={keys!r:.100}; expected an Arrow array or a list")
    try:
        return list(keys) if isinstance(keys, tuple) else pa.array(keys)
    except (pa.ArrowException, TypeError, ValueError, OverflowError) as error:
        raise FunctionFault(f"{what}: keys={keys!r:.100}; expected an Arrow array or a list: {error}") from error


def checked_table(columns: Any, what: str) -> pa.Table:
    """Columns of a caller; `FunctionFault` if they are no table."""
    if isinstance(columns, Mapping):
        for name, values in columns.items():
            if isinstance(values, str | bytes | bytearray | memoryview):
                # Arrow would make a row of each of its characters.
                raise FunctionFault(
                    f"{what}: column {name!r:.100} is {values!r:.100}; expected an array with a value for each row"
                )
    try:
        return pa.table(columns)
    except (pa.ArrowException, TypeError, ValueError, OverflowError, KeyError, AttributeError) as error:
        raise FunctionFault(f"{what}: its columns are no table: {error}") from error


def values_of(given: pa.Array | pa.ChunkedArray, what: str) -> list[Any]:
    """As Python has them; `FunctionFault` where it has none, such as a day after its last year."""
    try:
        found: list[Any] = given.to_pylist()
        return found
    except (pa.ArrowException, ValueError, OverflowError) as error:
        raise FunctionFault(f"{what}: values of type {given.type} that Python does not have: {error}") from error
