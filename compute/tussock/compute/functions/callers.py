"""Those who wait for replies: each gets its own, or hears why there will be none."""

from collections.abc import Sequence
from concurrent.futures import Future
from typing import Any

from tussock.compute.applications.program import Outcome
from tussock.compute.applications.replies import ReplyFuture, give
from tussock.compute.applications.request_queue import AskedWithin
from tussock.compute.functions.errors import FunctionFault
from tussock.compute.functions.feeds.fed_epochs import Waiting
from tussock.compute.functions.program.values import are_free, pack, unpack

__all__ = ["ASKED_WITHIN", "Callers", "SharedReply"]


ASKED_WITHIN = AskedWithin(
    FunctionFault,
    "program",
    "a function that it runs, which would wait for itself: call others by ctx.call() or ctx.call_async()",
    "send(), query_async() or send_many_async()",
)


class SharedReply(ReplyFuture):
    """Of a request with an id: all who ask with it have this one, and each gets a copy of what it holds."""

    def result(self, timeout: float | None = None) -> Any:
        """A copy of the reply, which nobody else changes; raises as any future does."""
        value = super().result(timeout)
        return value if are_free((value,)) else unpack(pack(value))


class Callers:
    """Of one run; used by any thread."""

    def __init__(self) -> None:
        self._same_ids: dict[str, Future[Any]] = {}
        """Of requests that have no reply yet."""
        self._outstanding: set[Future[Any]] = set()

    def first_with(self, request_id: str, reply: "Future[Any]") -> "Future[Any]":
        """The future of the request with that id which has no reply yet; this one, if there is none."""
        first = self._same_ids.setdefault(request_id, reply)
        if first is reply:
            reply.add_done_callback(lambda _: self._same_ids.pop(request_id, None))
        return first

    def expect(self, reply: "Future[Any] | None") -> None:
        """Somebody waits for a reply; nobody, if there is no future."""
        if reply is not None:
            self._outstanding.add(reply)

    def forget(self, reply: "Future[Any] | None", request_id: str | None = None) -> None:
        """The request does not wait any more."""
        if reply is not None:
            self._outstanding.discard(reply)
        if request_id is not None:
            self._same_ids.pop(request_id, None)

    def begun(self, taken: Sequence[Waiting]) -> list[Waiting]:
        """Those whose callers have not withdrawn them; from now on they cannot."""
        begun = []
        for one in taken:
            reply = one.reply
            if reply is None or reply.set_running_or_notify_cancel():
                begun.append(one)
            else:
                self._outstanding.discard(reply)
        return begun

    def give(self, epoch: "Future[Any]") -> None:
        """An epoch is durable, or has failed."""
        if (error := epoch.exception()) is not None:
            self.refuse(error)
            return
        for reply, value, aborted in epoch.result():
            if reply is not None:
                self._outstanding.discard(reply)
                give(reply, Outcome(value=value, error=aborted))

    def refuse(self, error: BaseException) -> None:
        """Nobody will answer those that wait."""
        assert isinstance(error, Exception)
        while self._outstanding:
            give(self._outstanding.pop(), Outcome(error=error))
