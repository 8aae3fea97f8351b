"""Stored rows as a function sees them: without expired keys, with what earlier calls in the batch wrote."""

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from tussock.compute.spark.state.records import State
from tussock.compute.spark.state.task.answers import CalledKeys, one_batch

__all__ = ["join_states", "state_after", "state_at", "state_of", "with_states"]


def state_of(rows: pa.RecordBatch, found: npt.NDArray[np.bool_], key: Sequence[str]) -> State:
    """Stored rows as a function sees them: of missing rows only the key."""
    at = pa.array(np.arange(len(found)), mask=~found)
    columns = [
        values if name in key else values.take(at) for name, values in zip(rows.schema.names, rows.columns, strict=True)
    ]
    return State(pa.RecordBatch.from_arrays(columns, names=rows.schema.names), found)


def state_after(
    state: State, parts: Sequence[tuple[pa.RecordBatch, bool]], known: CalledKeys, key: Sequence[str]
) -> State:
    """The stored rows of a call's keys after its writes; the parts are rows or deletes, oldest first."""
    found = state.found.copy()
    at = np.arange(len(found))
    pieces = [state.rows]
    count = len(found)
    for batch, deletes in parts:
        places = known.places(batch)
        found[places] = not deletes
        if not deletes:
            # Of a key that is named twice, the last row is assigned last.
            at[places] = count + np.arange(batch.num_rows)
            pieces.append(batch)
            count += batch.num_rows
    joined = one_batch(pa.Table.from_batches(pieces, state.rows.schema))
    wanted = joined.take(pa.array(at))
    return state_of(wanted, found, key)


def state_at(state: State, places: npt.NDArray[np.intp]) -> State:
    """The rows of the keys at these positions."""
    return State(state.rows.take(pa.array(places)), state.found[places])


def join_states(first: State, second: State) -> State:
    """The rows of the first state's keys, then those of the second's."""
    rows = one_batch(pa.Table.from_batches([first.rows, second.rows]))
    return State(rows, np.concatenate([first.found, second.found]))


def with_states(state: State, places: npt.NDArray[np.intp], other: State) -> State:
    """The rows of all keys, with those of `other` for the keys at `places`."""
    found = state.found.copy()
    found[places] = other.found
    at = np.arange(len(found))
    at[places] = len(found) + np.arange(len(places))
    return State(join_states(state, other).rows.take(pa.array(at)), found)
