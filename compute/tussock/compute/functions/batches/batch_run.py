"""Runs a batch function on all requests of one caller, in rounds of requests that share no entity."""

import zlib
from contextlib import suppress
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa

from tussock.compute.applications.arguments import class_of, text_of
from tussock.compute.applications.deadline import Deadline, Overdue
from tussock.compute.functions.batches.abort_texts import texts_of, worded
from tussock.compute.functions.batches.batch import FunctionBatch, Overlay, RoundEnd, StateSource, array_of
from tussock.compute.functions.batches.columns_request import ColumnsRequest
from tussock.compute.functions.batches.rounds import rounds
from tussock.compute.functions.epochs.digest import encode_facts
from tussock.compute.functions.errors import FunctionFault, StateUnread, TransactionAborted
from tussock.compute.functions.program.context import Entity
from tussock.compute.functions.program.operators import Function
from tussock.compute.functions.program.places import place_of
from tussock.statestore.rows.python_values import python_values

__all__ = ["EndedBatch", "failed_batch", "run_batch", "run_guarded"]


class EndedBatch(NamedTuple):
    """What became of a batch."""

    writes: dict[Entity, Any]
    replies: pa.Table
    """`reply` and `error`, for each request."""
    digest: int
    rounds: int
    aborted: int
    texts: list[Any]
    """By which texts it aborted rows, for the record."""


def run_guarded(entities: StateSource, request: ColumnsRequest, deadline: Deadline) -> EndedBatch | TransactionAborted:
    """The same as `run_batch`; what the function raised, as the error that its caller gets. Raises `StateUnread`."""
    ran: list[int] = []
    try:
        return deadline.run(lambda: run_batch(entities, request, ran))
    except StateUnread:
        raise
    except BaseException as error:  # noqa: BLE001 - of the user's code, which may raise anything
        text = _overdue(ran, request.columns.num_rows)
        if not issubclass(type(error), Overdue):
            with suppress(Overdue):
                # The text is the user's code, too.
                text = deadline.run(text_of, error)
        function = request.function
        at = place_of(error)
        aborted = TransactionAborted(text, class_of(error), function.operator, "", function.name, at)
        aborted.__cause__ = error
        return aborted


def _overdue(ran: list[int], requests: int) -> str:
    told = "the batch function did not return in time"
    if not ran:
        return told
    return (
        f"{told}: it had run {sum(ran):,} of {requests:,} requests, in {len(ran):,} rounds; requests of one entity are "
        "in separate rounds, so give it fewer of them at a time"
    )


def failed_batch(request: ColumnsRequest, error: TransactionAborted) -> EndedBatch:
    """Of a function that raised, where each request has that as its reply."""
    rows = request.columns.num_rows
    replies = pa.table({"reply": pa.nulls(rows), "error": pa.array([str(error)] * rows, pa.string())})
    return EndedBatch({}, replies, 0, 0, rows, [])


def run_batch(entities: StateSource, request: ColumnsRequest, ran: list[int]) -> EndedBatch:
    """Run the function in rounds; nothing is applied. Raises what the function raises, and `FunctionFault`.

    `ran` gets how many requests each round had that has ended.
    """
    overlay = Overlay(entities)
    codes, keys = _codes(request.entities)
    replies: list[Any] = [None] * request.columns.num_rows
    errors: list[str | None] = [None] * request.columns.num_rows
    kinds: set[pa.DataType] = set()
    for rows in rounds(codes, keys):
        is_all = len(rows) == len(replies)
        part = request.columns if is_all else request.columns.take(pa.array(rows))
        picked = rows.tolist()
        own = {of: ones if is_all else [ones[at] for at in picked] for of, ones in request.entities.items()}
        end = RoundEnd(len(picked))
        batch = FunctionBatch(overlay, part, own, end)
        try:
            returned = _reply_array(request.function, request.function.code(batch), len(picked))
        finally:
            if overlay.interrupt is not None:
                raise overlay.interrupt
        end.apply(overlay.writes, own)
        ran.append(len(picked))
        kinds.add(returned.type)
        given = python_values(returned)
        if is_all:
            errors = end.errors
            replies = [reply if error is None else None for reply, error in zip(given, errors, strict=True)]
            continue
        for at, reply, error in zip(picked, given, end.errors, strict=True):
            if error is None:
                replies[at] = reply
            else:
                errors[at] = error
    if request.texts:
        errors = worded(errors, request.texts)
    table = pa.table({"reply": _replies(replies, kinds), "error": pa.array(errors, pa.string())})
    digest = zlib.crc32(encode_facts([list(overlay.writes.items()), replies, errors]))
    return EndedBatch(overlay.writes, table, digest, len(ran), len(errors) - errors.count(None), texts_of(errors))


def _codes(entities: dict[str | None, list[Entity]]) -> tuple[Any, int]:
    """Numbers of the entities that each row touches."""
    numbers: dict[Entity, int] = {}
    columns = [[numbers.setdefault(one, len(numbers)) for one in ones] for ones in entities.values()]
    return np.array(columns, np.int64).T, len(numbers)


def _reply_array(function: Function, returned: Any, rows: int) -> pa.Array:
    if returned is None:
        return pa.nulls(rows)
    array = array_of(returned, f"what {function.title} returned")
    if len(array) != rows:
        raise FunctionFault(
            f"function {function.operator}.{function.name} returned {len(array)} replies for {rows} requests"
        )
    return array


def _replies(replies: list[Any], kinds: set[pa.DataType]) -> pa.Array:
    given = {kind for kind in kinds if kind != pa.null()}
    if len(given) > 1:
        raise FunctionFault(f"the replies of a batch function are of several types: {sorted(map(str, given))}")
    return pa.array(replies, *given) if given else pa.nulls(len(replies))
