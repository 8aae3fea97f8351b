"""States on their way between processes: rows of an operator's table, as IPC streams of at most a few megabytes."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import pyarrow as pa

from tussock.compute.applications.ipc_streams import ipc_bytes, ipc_table
from tussock.compute.functions.entities.forms import KEY, StateForm
from tussock.compute.functions.program.values import Key
from tussock.statestore.rows.python_values import python_rows

__all__ = ["from_rows", "in_parts", "table_of", "to_rows"]

ROWS_BYTES_MAX = 8 << 20
ROWS_MAX = 10_000
"""Of one message: with states of at most 1 MiB it has room, as rows are halved until they fit."""


def table_of(data: bytes) -> pa.Table | None:
    """The rows of an IPC stream, if there are some."""
    return ipc_table(data) if data else None


def from_rows(form: StateForm, data: bytes) -> dict[Key, Any]:
    """Stored forms by key."""
    table = table_of(data)
    return {} if table is None else {row[KEY]: form.of_row(row) for row in python_rows(table)}


def to_rows(form: StateForm, states: Mapping[Key, Any]) -> tuple[bytes, int]:
    """Rows of those that are there, and of how many of the states they are: as many as fit, at least one."""
    keys = list(states)[:ROWS_MAX]
    while True:
        there = {key: states[key] for key in keys if states[key] is not None}
        table = form.table(there) if there else None
        if table is None or table.nbytes <= ROWS_BYTES_MAX or len(keys) == 1:
            return b"" if table is None else ipc_bytes(table), len(keys)
        keys = keys[: len(keys) // 2]


def in_parts(gone: Sequence[Key], there: pa.Table | None) -> Iterator[tuple[list[Key], bytes]]:
    """Keys that are gone and rows, in parts that fit into messages."""
    for at in range(0, len(gone), ROWS_MAX):
        yield list(gone[at : at + ROWS_MAX]), b""
    if there is None:
        return
    waiting = [there.slice(at, ROWS_MAX) for at in range(0, there.num_rows, ROWS_MAX)][::-1]
    while waiting:
        part = waiting.pop()
        if part.nbytes > ROWS_BYTES_MAX and part.num_rows > 1:
            half = part.num_rows // 2
            waiting += [part.slice(half), part.slice(0, half)]
        else:
            yield [], ipc_bytes(part)
