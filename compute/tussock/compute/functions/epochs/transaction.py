"""A request on its way: from its number to its reply, over as many runs as it takes."""

from typing import NamedTuple

from tussock.compute.applications.replies import WithdrawableFuture
from tussock.compute.functions.program.context import GraphRun, Target
from tussock.compute.functions.program.draws import TransactionDraws
from tussock.compute.functions.program.values import size_of

__all__ = ["FedPart", "FunctionRequest", "FunctionTransaction"]


class FedPart(NamedTuple):
    """Which row of a feed a request is."""

    feed: str
    span: bytes
    """Of its batch."""
    number: int
    """Rows of the batch up to this one."""


class FunctionRequest:
    """What a caller has asked for, checked."""

    __slots__ = ("began", "fed", "reply", "request_id", "size", "target")
    is_alone = False
    """Whether it shares its epoch with no other request."""

    def __init__(
        self,
        target: Target,
        request_id: str | None,
        reply: "WithdrawableFuture | None",
        began: float,
        fed: FedPart | None = None,
    ) -> None:
        """`reply`: nobody waits for that of a replay, and of a feed."""
        self.target = target
        self.request_id = request_id
        self.reply = reply
        self.began = began
        self.fed = fed
        self.size = size_of(target.arguments)
        """Bytes of the arguments, about."""


class FunctionTransaction:
    """A request with its number."""

    __slots__ = ("draws", "is_lock_free", "request", "run", "runs", "tid")

    def __init__(self, tid: int, request: FunctionRequest) -> None:
        self.tid = tid
        self.request = request
        self.draws: TransactionDraws | None = None
        """`None`: it has drawn nothing."""
        self.run: GraphRun | None = None
        """The newest run."""
        self.runs = 0
        self.is_lock_free = True
