"""How a reply comes to its caller, and what callers hear of a thread that has ended."""

from concurrent.futures import Future
from typing import Any

from tussock.compute.applications.arguments import cause_of
from tussock.compute.applications.errors import ApplicationStopped
from tussock.compute.applications.program import Outcome
from tussock.statestore.base.logs import get_logger

__all__ = ["failure_of", "give"]

log = get_logger("tussock.compute.applications.replies")


def give(reply: "Future[Any]", outcome: Outcome) -> None:
    """The reply to a caller; nobody, if the request was withdrawn before it ran, or has a reply already."""
    if reply.done():
        return
    if not reply.running() and not reply.set_running_or_notify_cancel():
        return
    try:
        if outcome.error is not None:
            reply.set_exception(outcome.error)
        else:
            reply.set_result(outcome.value)
    except BaseException as error:
        # A callback of the future: `Future` itself contains what is an `Exception`. Others wait for this thread, too.
        log.error("a callback of a reply raised", error=cause_of(error), exc_info=error)


def failure_of(error: BaseException) -> Exception:
    """What an application fails with, and its callers hear, if its thread ends with this."""
    if isinstance(error, Exception):
        return error
    stopped = ApplicationStopped(f"a thread of the application was ended by {cause_of(error)}; start it again")
    stopped.__cause__ = error
    return stopped
