"""A reply to come, how it comes to its caller, and what callers hear of a thread that has ended."""

import threading
from concurrent.futures import Future, InvalidStateError
from typing import Any

from tussock.compute.applications.arguments import cause_of
from tussock.compute.applications.errors import ApplicationStopped
from tussock.compute.applications.program import Outcome
from tussock.compute.applications.request_queue import Nesting
from tussock.statestore.base.logs import get_logger
from tussock.statestore.errors import WaitTimeout

__all__ = ["ReplyFuture", "WithdrawableFuture", "failure_of", "give", "result_within"]

log = get_logger("tussock.compute.applications.replies")


class WithdrawableFuture(Future[Any]):
    """Of a request. When it is withdrawn, all who wait hear so at once, `concurrent.futures.wait` too.

    Python's own tells these when the turn of the request has come, and never where it is refused before. And one that
    has begun waits again after `put_back`, which Python's own cannot.
    """

    def __init__(self) -> None:
        super().__init__()
        self._telling = threading.Lock()
        self._is_withdrawn = False
        self._is_told = False
        self._has_begun = False

    def cancel(self) -> bool:
        """Withdraw the request, if it has not begun."""
        with self._telling:
            if self._has_begun:
                return False
            self._is_withdrawn = True
        if not super().cancel():
            return False
        with self._telling:
            if not self._is_told:
                self._is_told = True
                super().set_running_or_notify_cancel()
        return True

    def running(self) -> bool:
        """Whether it has begun, and not ended."""
        return self._has_begun and not self.done()

    def set_running_or_notify_cancel(self) -> bool:
        """Begin the request; `False` if it was withdrawn, or has its reply already, such as a refusal."""
        with self._telling:
            if self._is_withdrawn or self.done():
                return False
            self._has_begun = True
            return True

    def put_back(self) -> None:
        """It has not begun after all, and waits."""
        with self._telling:
            self._has_begun = False


class ReplyFuture(WithdrawableFuture):
    """Of an application. In a thread that gives replies, or runs requests, nobody can wait for it, and hears so.

    What waits beside it, such as `concurrent.futures.wait`, cannot know.
    """

    def __init__(self, nesting: Nesting) -> None:
        super().__init__()
        self._nesting = nesting

    def result(self, timeout: float | None = None) -> Any:
        """As of any future; raises as `Nesting.check` where nobody can wait."""
        self._check()
        return super().result(timeout)

    def exception(self, timeout: float | None = None) -> BaseException | None:
        """As of any future; raises as `Nesting.check` where nobody can wait."""
        self._check()
        return super().exception(timeout)

    def _check(self) -> None:
        if not self.done():
            self._nesting.check(waits=True)


def give(reply: "Future[Any]", outcome: Outcome) -> None:
    """The reply to a caller; nobody, if the request was withdrawn before it ran, or has a reply already."""
    try:
        if outcome.error is not None:
            reply.set_exception(outcome.error)
        else:
            reply.set_result(outcome.value)
    except InvalidStateError:
        return
    except BaseException as error:
        # A callback of the future: `Future` itself contains what is an `Exception`. Others wait for this thread, too.
        log.error("a callback of a reply raised", error=cause_of(error), exc_info=error)


def result_within(asked: "Future[Any]", timeout: float | None, what: str) -> Any:
    """What a request comes to, or raises; after these seconds it is withdrawn, and `WaitTimeout` names `what`."""
    try:
        return asked.result(timeout)
    except TimeoutError as error:
        if not asked.cancel() and asked.done():
            return asked.result()
        raise WaitTimeout(
            f"{what} has not answered within {timeout:g} s: its bucket may be away, or a function take long"
        ) from error


def failure_of(error: BaseException) -> Exception:
    """What an application fails with, and its callers hear, if its thread ends with this."""
    if isinstance(error, Exception):
        return error
    stopped = ApplicationStopped(f"a thread of the application was ended by {cause_of(error)}; start it again")
    stopped.__cause__ = error
    return stopped
