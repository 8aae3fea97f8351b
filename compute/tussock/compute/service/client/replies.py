"""How long somebody waits for a reply, and what is known of a request when that time is over.

The service withdraws what has not begun when that time is over, and not before; the caller waits a moment longer for
its word. A request that was not sent yet is taken back. Of all others nobody knows.
"""

import math
from collections.abc import Callable
from concurrent.futures import Future
from typing import Any

from tussock.compute.applications.arguments import check_seconds
from tussock.statestore.errors import WaitTimeout

__all__ = ["await_reply", "begin_ms"]

ANSWER_SECONDS = 0.25
"""For the service's word to arrive, beyond the caller's time."""


def begin_ms(timeout: float | None) -> int:
    """`Request.deadline_ms` for a request that is to begin within `timeout` seconds; 0 for one without a limit.

    `InvalidOption` for what are no seconds.
    """
    check_seconds(timeout, "timeout of a request", none=True)
    if timeout is None:
        return 0
    return max(math.ceil(1000 * timeout), 1)


def await_reply(
    reply: "Future[Any]", timeout: float | None, what: str, obstacle: Callable[[], str], *, again: str = ""
) -> Any:
    """The reply to `what`, or its error. `TimeoutError` soon after `timeout` seconds, with what to do `again` then.

    `WaitTimeout`, which is one, if it is sure that the request did not begin; `obstacle()` may say why.
    """
    try:
        return reply.result(timeout)
    except TimeoutError:
        if reply.done():
            # It came this moment, or the request itself has ended so.
            return reply.result()
        if reply.cancel():
            why = f": {obstacle()}" if obstacle() else ""
            raise WaitTimeout(f"{what} was not sent within {timeout:g} s, and does not run{why}") from None
    try:
        return reply.result(ANSWER_SECONDS)
    except TimeoutError:
        if reply.done():
            return reply.result()
        raise TimeoutError(f"no reply to {what} within {timeout:g} s; the outcome is not known{again}") from None
