"""What the workloads of this folder have in common: requests, their replies, and the tables that they leave.

A workload is a program of functions with its generator and its checker. The checker knows the requests, the replies and
the tables, but nothing of epochs or of the order in which requests ran.
"""

import json
from collections import deque
from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple, Protocol

from tussock.compute import functions as fn
from tussock.statestore import StateStore

__all__ = ["Key", "Reply", "Request", "Tables", "Workload", "load", "play", "tables_of"]

Key = str | int
Tables = dict[str, dict[Any, dict[str, Any]]]
"""By operator and key, the state of each entity."""
WAIT_SECONDS = 120


class Request(NamedTuple):
    """What `Runtime.send` is given."""

    operator: str
    key: Key
    function: str
    arguments: tuple[Any, ...] = ()


class Reply(NamedTuple):
    """What the function returned, or the text of the error that ended the transaction."""

    value: Any
    error: str | None


class Workload(Protocol):
    """A program with its requests and its checker."""

    operators: list[fn.Operator]

    def rows(self) -> dict[str, list[dict[str, Any]]]:
        """By operator the entities that there are before the first request."""

    def requests(self, count: int, seed: int) -> list[Request]:
        """`count` requests, the same for the same seed."""

    def check(self, requests: Sequence[Request], replies: Sequence[Reply], tables: Tables) -> list[str]:
        """What is wrong, in words; of all requests since the beginning."""


def load(runtime: fn.Runtime, workload: Workload) -> None:
    """Store the entities that a workload begins with."""
    for operator, rows in workload.rows().items():
        runtime.load(operator, rows)


def play(
    runtime: fn.Runtime, requests: Iterable[Request], *, outstanding: int = 1000, ids: str | None = None
) -> list[Reply]:
    """Send all requests, at most `outstanding` under way at any time; their replies, in order.

    `ids`: how the ids of the requests begin, a number follows; without it they have none.
    """
    replies: list[Reply] = []
    futures: deque[Any] = deque()
    for number, request in enumerate(requests):
        if len(futures) >= outstanding:
            replies.append(_reply(futures.popleft()))
        request_id = None if ids is None else f"{ids}{number}"
        futures.append(
            runtime.send(request.operator, request.key, request.function, *request.arguments, request_id=request_id)
        )
    return replies + [_reply(future) for future in futures]


def _reply(future: Any) -> Reply:
    try:
        return Reply(future.result(WAIT_SECONDS), None)
    except fn.TransactionAborted as error:
        return Reply(None, str(error))


def tables_of(store: StateStore, workload: Workload, epoch: int | None = None) -> Tables:
    """The committed entities of all operators, as of an epoch or the newest one."""
    return {operator.name: _entities(store, operator, epoch) for operator in workload.operators}


def _entities(store: StateStore, operator: fn.Operator, epoch: int | None) -> dict[Any, dict[str, Any]]:
    rows = [row for batch in store.table(operator.name).read(epoch=epoch) for row in batch.to_pylist()]
    states = {row.pop("key"): row for row in rows}
    return states if operator.schema else {key: json.loads(row["state"]) for key, row in states.items()}
