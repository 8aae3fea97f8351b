"""What the thread that runs a program is asked for, and what it answers."""

from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future
from typing import Any, NamedTuple

from tussock.compute.applications.program import Outcome
from tussock.compute.functions.batches.columns_request import ColumnsRequest
from tussock.compute.functions.entities.replies import KeptReply
from tussock.compute.functions.epochs.transaction import FunctionRequest, FunctionTransaction
from tussock.compute.functions.errors import TransactionAborted

__all__ = ["Act", "Answer", "Look", "NextColumns", "NextEpoch", "sorted_out"]


class NextEpoch(NamedTuple):
    """A request of the runner: run an epoch of what waits."""

    take: Callable[[], Sequence[Any] | None]
    """Called when its turn has come; `None`: a pause has begun, and no epoch does."""
    put_back: Callable[[Sequence[Any]], None]
    """Called with the last of these, where they are to wait for a later epoch."""
    ended: Callable[[bool], None]
    """Called when it has run, with whether transactions wait for the next one."""


class NextColumns(NamedTuple):
    """A request of the runner: run a batch function."""

    request: ColumnsRequest


class Look(NamedTuple):
    """A request of the runner: look at something between two epochs."""

    look: Callable[[], Any]


class Act(NamedTuple):
    """A request of the runner: do something between two epochs, with the number of its record."""

    act: Callable[[int], Outcome]


class Answer(NamedTuple):
    """What a caller gets."""

    reply: "Future[Any] | None"
    value: Any
    aborted: TransactionAborted | None


def sorted_out(
    requests: Sequence[FunctionRequest], known: Mapping[str, KeptReply], deferred: Sequence[FunctionTransaction]
) -> tuple[list[FunctionRequest], list[Answer]]:
    """Those to run, and the replies to those that were answered before."""
    # One may be among those that an epoch left to the next one, this one, or come twice in it: of a feed, and of
    # a caller, who asks again after a crash.
    firsts = {one.request.request_id: one.request for one in deferred}
    fresh, answers = [], []
    for one in requests:
        request_id = one.request_id
        if request_id is not None and request_id in known:
            answers.append(Answer(one.reply, known[request_id].value, known[request_id].aborted))
        elif request_id is None or (first := firsts.setdefault(request_id, one)) is one:
            fresh.append(one)
        else:
            first.reply = first.reply or one.reply
    return fresh, answers
