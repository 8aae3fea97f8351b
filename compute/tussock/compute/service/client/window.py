"""What a client has asked for and not been answered: in what order it goes, and what may go twice.

| a request | when the connection breaks |
|---|---|
| that was not sent, or that the service says it has not begun | goes again |
| that may be repeated (a batch with an id, a look) | goes again |
| any other that was sent | `OutcomeUnknown` |

A request that is refused with `Full` has not begun, nor has any that was sent after it: they go again in their order.
"""

from collections import deque
from collections.abc import Iterable
from concurrent.futures import Future
from typing import Any, NamedTuple

from tussock.compute.service.rpc import application_pb2 as pb

__all__ = ["PendingRequest", "SendWindow"]

GROUP_BYTES_MAX = 1 << 20
GROUP_REQUESTS_MAX = 512


class PendingRequest(NamedTuple):
    """A request without a reply."""

    number: int
    request: pb.Request
    size: int
    is_repeatable: bool
    future: "Future[Any]"
    asked_at: float
    may_have_begun: bool = False
    """It was sent on a connection that broke, and waits to go once more."""


class SendWindow:
    """A state machine; its user holds a lock."""

    def __init__(self) -> None:
        self._outbox: deque[PendingRequest] = deque()
        self._sent: dict[int, PendingRequest] = {}
        """In the order in which they were sent."""
        self._refused: list[PendingRequest] = []
        self._again = False
        self._is_open = True

    def __len__(self) -> int:
        return len(self._outbox) + len(self._sent) + len(self._refused)

    @property
    def may_send(self) -> bool:
        """Whether something waits that may go now."""
        return self._is_open and bool(self._outbox) and not self._refused

    @property
    def is_due_again(self) -> bool:
        """Whether all that was sent after a refused request has come back."""
        return bool(self._refused) and not (self._sent and next(reversed(self._sent)) > self._refused[0].number)

    def add(self, pending: PendingRequest) -> None:
        """One more, behind all others."""
        self._outbox.append(pending)

    def group(self) -> pb.Requests | None:
        """The next requests to send; `None` if all of them were given up meanwhile."""
        group, nbytes = pb.Requests(again=self._again), 0
        while self._outbox and len(group.requests) < GROUP_REQUESTS_MAX:
            pending = self._outbox[0]
            if group.requests and nbytes + pending.size > GROUP_BYTES_MAX:
                break
            self._outbox.popleft()
            if pending.future.running() or pending.future.set_running_or_notify_cancel():
                group.requests.append(pending.request)
                nbytes += pending.size
                self._sent[pending.number] = pending
        if not group.requests:
            return None
        self._again = False
        return group

    def answered(self, number: int) -> PendingRequest | None:
        """The request that has its reply; `None` for a number that nobody waits for."""
        return self._sent.pop(number, None)

    def refused(self, pending: PendingRequest) -> None:
        """It did not begin: it waits, with all that come back after it."""
        self._refused.append(pending)
        self._refused.sort(key=lambda one: one.number)

    def send_again(self) -> None:
        """What was refused is the next to go."""
        self._outbox.extendleft(reversed(self._refused))
        self._refused = []
        self._again = True

    def closes(self, taken_before: int) -> None:
        """The service takes nothing more on this connection; from `taken_before` on nothing has begun."""
        self._is_open = False
        back = [number for number in self._sent if number >= taken_before]
        self._back([self._sent.pop(number) for number in back])

    def broken(self) -> list[PendingRequest]:
        """The connection is gone: returns those whose outcome nobody knows; the others go again on the next one."""
        sent, self._sent = list(self._sent.values()), {}
        self._back([one._replace(may_have_begun=True) for one in sent if one.is_repeatable])
        self._is_open, self._again = True, False
        return [one for one in sent if not one.is_repeatable]

    def abandon(self) -> tuple[list[PendingRequest], list[PendingRequest]]:
        """Forget everything; returns those that may have begun, and those that have not."""
        sent, self._sent = list(self._sent.values()), {}
        waiting = self.take_all()
        begun = [*sent, *(one for one in waiting if one.may_have_begun)]
        return begun, [one for one in waiting if not one.may_have_begun]

    def take_all(self) -> list[PendingRequest]:
        """All that were not sent, to be given up."""
        left = [*self._refused, *self._outbox]
        self._refused = []
        self._outbox.clear()
        return left

    def oldest_refused_at(self) -> float:
        """When the oldest of the refused ones was asked for."""
        return min(one.asked_at for one in self._refused)

    def _back(self, these: Iterable[PendingRequest]) -> None:
        back = sorted([*these, *self._refused], key=lambda one: one.number)
        self._refused = []
        self._outbox.extendleft(reversed(back))
