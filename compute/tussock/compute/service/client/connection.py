"""A client's connection to an application: many requests on their way at once, in one conversation after another.

Two threads beside the callers: gRPC's, which sends what waits, and one that takes the replies and connects again.
"""

import os
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import Future, InvalidStateError
from contextlib import contextmanager
from typing import Any

import grpc

from tussock.compute.applications.arguments import cause_of
from tussock.compute.applications.errors import ApplicationStopped, Full, OutcomeUnknown, ServiceUnavailable
from tussock.compute.applications.replies import WithdrawableFuture
from tussock.compute.service.client.channel import ApplicationChannel
from tussock.compute.service.client.replies import await_reply
from tussock.compute.service.client.window import PendingRequest, SendWindow
from tussock.compute.service.rpc import application_pb2 as pb
from tussock.compute.service.rpc.application_errors import error_of
from tussock.compute.service.rpc.values import reply_value
from tussock.statestore.base.logs import get_logger
from tussock.statestore.base.system import System
from tussock.statestore.errors import InvalidOption, MessageTooLarge, StoreClosed, TussockError, WaitTimeout

__all__ = ["ApplicationConnection"]

log = get_logger("tussock.compute.applications.client")

PAUSE_SECONDS_MIN, PAUSE_SECONDS_MAX = 0.05, 1.0
"""Between two attempts to connect."""
AGAIN_SECONDS, AGAIN_SECONDS_MAX = 0.05, 10.0
"""Before a refused request goes again, where the service does not say; and at most, whatever it says."""
_NOT_BEGUN = frozenset({"Full", "ServiceUnavailable"})
END_SECONDS_MAX = 1.0
"""For the thread of replies to see that its channel is closed."""
ENVELOPE_BYTES = 64
"""Around a request in a message."""


class ApplicationConnection:
    """Safe to share between threads."""

    def __init__(
        self,
        channel: ApplicationChannel,
        system: System,
        *,
        deadline: float,
        outstanding: int,
        refusal: type[TussockError] = InvalidOption,
    ) -> None:
        """`deadline`: seconds for which a request that has not begun is tried; `outstanding`: how many at once.

        `refusal`: the error of those who would wait in a callback of a reply.
        """
        self._channel = channel
        self._refusal = refusal
        self._system = system
        self._deadline = deadline
        self._outstanding = outstanding
        self._changed = threading.Condition()
        self._window = SendWindow()
        self._numbers = 0
        self._hello: pb.Hello | None = None
        self._stream: Any = None
        """The conversation, while it has begun with a `Hello`."""
        self._again_at: float | None = None
        self._is_closing = False
        self._is_closed = False
        """Nobody waits for anything any more."""
        self._thread: threading.Thread | None = None
        self._failure: TussockError | None = None
        """What the newest conversation has ended with."""
        self._process = os.getpid()
        self._givers: set[int] = set()
        """Threads that give replies now, so callbacks run in them."""

    def ask(self, request: pb.Request, *, is_repeatable: bool) -> "Future[Any]":
        """Send a request; the future has its reply, or raises its error. Waits while as many as may be are under way.

        `is_repeatable`: it may be sent once more if the connection breaks. Raises `ApplicationStopped` if closed,
        `StoreClosed` in a process that was forked off, and `MessageTooLarge`.
        """
        self._check_process()
        size = request.ByteSize()
        with self._changed:
            self._check_open()
            if self._hello is not None and size + ENVELOPE_BYTES > self._hello.message_bytes_max:
                raise _too_large(size, self._hello.message_bytes_max)
            # The thread of replies, in a callback of a future, would wait for itself.
            while len(self._window) >= self._outstanding and threading.current_thread() is not self._thread:
                self._changed.wait()
                self._check_open()
            if self._thread is None:
                self._thread = threading.Thread(target=self._work, name="tussock application", daemon=True)
                self._thread.start()
            self._numbers += 1
            request.number = self._numbers
            future = self.future()
            self._window.add(
                PendingRequest(self._numbers, request, size, is_repeatable, future, self._system.monotonic())
            )
            self._changed.notify_all()
        return future

    def reply(self, asked: "Future[Any]", timeout: float | None, what: str, *, again: str = "") -> Any:
        """What was asked for, as `await_reply` waits for it."""
        return await_reply(asked, timeout, what, self._obstacle, again=again)

    def future(self) -> "Future[Any]":
        """One that somebody else ends, for which nobody can wait where nobody can wait for a reply."""
        return _ClientFuture(self._check_process, self.check_wait)

    def check_wait(self) -> None:
        """Raise the refusal in a callback of a reply, where a wait for another one would never end."""
        if threading.get_ident() in self._givers:
            raise self._refusal(
                f"the client of the application at {self._channel.address} is asked by a callback of a reply, and "
                "would wait for the thread that runs this callback: give what you wait for another callback, or ask in "
                "another thread"
            )

    def hello(self, timeout: float | None = None) -> pb.Hello:
        """What the service has told of itself; connects first, within `timeout` seconds. Raises what hinders it."""
        if self._hello is None:
            self.check_wait()
            asked = self.ask(pb.Request(stats=pb.Stats()), is_repeatable=True)
            self.reply(asked, timeout, "the look for the schema")
        assert self._hello is not None
        return self._hello

    def close(self, timeout: float | None = None) -> None:
        """Wait `timeout` seconds for the replies that are under way, and end; `None`: the deadline. Again: nothing.

        What has no reply by then ends with `OutcomeUnknown`, or with `ServiceUnavailable` if it was not sent. In a
        process that was forked off it does nothing: the threads, and what they wait for, are the parent's.
        """
        if os.getpid() != self._process:
            return
        with self._changed:
            self._is_closing = True
            self._changed.notify_all()
        # The thread of replies, in a callback of a future, would wait for itself.
        thread = self._thread if threading.current_thread() is not self._thread else None
        try:
            if thread is not None:
                thread.join(self._deadline if timeout is None else timeout)
        finally:
            # Also when somebody interrupts the wait.
            self._give_all_up()
            self._channel.close()
        if thread is not None:
            thread.join(END_SECONDS_MAX)

    def _give_all_up(self) -> None:
        with self._changed:
            self._is_closed = True
            unknown, unsent = self._window.abandon()
            self._changed.notify_all()
        told = f"the client of the application at {self._channel.address} was closed"
        with self._giving():
            for pending in unknown:
                _give(pending, OutcomeUnknown(f"{told}; a request had been sent, and may have run or still run"))
            for pending in unsent:
                _give(pending, ServiceUnavailable(f"{told} before a request began, which does not run"))

    @contextmanager
    def _giving(self) -> Iterator[None]:
        thread = threading.get_ident()
        is_nested = thread in self._givers
        self._givers.add(thread)
        try:
            yield
        finally:
            # Another thread may get that number.
            if not is_nested:
                self._givers.discard(thread)

    # --- The thread of replies ---------------------------------------------------------------------------------------

    def _work(self) -> None:
        with self._giving():
            self._converse_until_closed()

    def _converse_until_closed(self) -> None:
        pause = PAUSE_SECONDS_MIN
        while True:
            with self._changed:
                self._changed.wait_for(lambda: len(self._window) or self._is_closing)
                if not len(self._window):
                    return
            error = self._converse()
            with self._changed:
                was_connected, self._stream = self._stream is not None, None
                self._failure = error
                unknown = self._window.broken()
                lost, late = self._given_up(error)
                self._changed.notify_all()
            for pending in unknown:
                told = "closed the conversation" if error is None else str(error)
                _give(pending, OutcomeUnknown(f"{told}; a request had been sent, and may have run or still run"))
            for pending in lost:
                _give(pending, error or ServiceUnavailable("the application takes no requests"))
            for pending in late:
                why = "" if error is None else f": {error}"
                _give(pending, WaitTimeout(f"the request was not sent within its time, and does not run{why}"))
            pause = PAUSE_SECONDS_MIN if was_connected else min(2 * pause, PAUSE_SECONDS_MAX)
            with self._changed:
                if len(self._window):
                    self._changed.wait_for(lambda: self._is_closed, pause)

    def _given_up(self, error: TussockError | None) -> tuple[list[PendingRequest], list[PendingRequest]]:
        """Those that have no chance, or no time left, of what waits; and those that were to begin by now."""
        waiting = [one for one in self._window.take_all() if not one.future.done()]
        if error is not None and not isinstance(error, ServiceUnavailable | Full | ApplicationStopped):
            return waiting, []
        lost: list[PendingRequest] = []
        late: list[PendingRequest] = []
        for one in waiting:
            # What was sent once may have begun.
            begins = 0 if one.may_have_begun else one.request.deadline_ms
            waited = self._system.monotonic() - one.asked_at
            if begins and waited >= begins / 1000:
                late.append(one)
            elif waited >= self._deadline:
                lost.append(one)
            else:
                self._window.add(one)
        return lost, late

    def _converse(self) -> TussockError | None:
        """One conversation to its end; returns why it ended."""
        ended = threading.Event()
        try:
            stream = self._channel.converse(self._messages(ended))
            for replies in stream:
                self._take(replies, stream)
        except grpc.RpcError as error:
            return self._channel.error_of(error)
        except ValueError as error:
            # gRPC says so of a channel that was closed.
            return ServiceUnavailable(f"the application at {self._channel.address}: {error}")
        finally:
            ended.set()
            with self._changed:
                self._changed.notify_all()
        return None

    def _take(self, replies: pb.Replies, stream: Any) -> None:
        answered: list[tuple[PendingRequest, pb.Reply]] = []
        with self._changed:
            for reply in replies.replies:
                if reply.WhichOneof("result") == "hello":
                    self._hello, self._stream = reply.hello, stream
                    self._outstanding = min(self._outstanding, max(reply.hello.outstanding_max, 1))
                    continue
                pending = self._window.answered(reply.number)
                if pending is None:
                    continue
                if reply.error.kind in _NOT_BEGUN and not self._is_overdue(pending):
                    self._window.refused(pending)
                    self._again_at = self._system.monotonic() + _wait_seconds_of(reply.error)
                else:
                    answered.append((pending, reply))
            if replies.taken_before:
                self._window.closes(replies.taken_before)
            self._changed.notify_all()
        for pending, reply in answered:
            if reply.WhichOneof("result") == "error":
                _give(pending, error_of(reply.error))
            else:
                _give(pending, reply_value(reply))

    def _is_overdue(self, pending: PendingRequest) -> bool:
        return self._system.monotonic() - pending.asked_at >= self._deadline

    # --- gRPC's thread -----------------------------------------------------------------------------------------------

    def _messages(self, ended: threading.Event) -> Iterator[bytes]:
        """What waits, in groups, until the conversation ends, or all is answered after `close`."""
        while True:
            with self._changed:
                while (group := self._next_group(ended)) is None:
                    if ended.is_set() or (self._is_closing and not len(self._window)):
                        return
                    self._changed.wait(self._wait_seconds())
                data = group.SerializeToString()
            yield data

    def _next_group(self, ended: threading.Event) -> pb.Requests | None:
        if ended.is_set() or self._stream is None:
            return None
        if self._window.is_due_again and self._again_at is not None and self._system.monotonic() >= self._again_at:
            self._window.send_again()
            self._again_at = None
        group = self._window.group() if self._window.may_send else None
        if group is None:
            self._changed.notify_all()
        return group

    def _wait_seconds(self) -> float | None:
        return None if self._again_at is None else max(self._again_at - self._system.monotonic(), 0.001)

    def _obstacle(self) -> str:
        """Why the newest attempt to connect failed; empty if it did not."""
        return "" if self._failure is None or self._stream is not None else str(self._failure)

    def _check_process(self) -> None:
        """Before any lock: one that a thread of the parent held when the process was forked is never let go."""
        if os.getpid() != self._process:
            raise StoreClosed(
                f"the client of the application at {self._channel.address} was made before this process was forked "
                "off, and its threads are not here; make another one"
            )

    def _check_open(self) -> None:
        if self._is_closing:
            raise ApplicationStopped(f"the client of the application at {self._channel.address} is closed")


class _ClientFuture(WithdrawableFuture):
    """Nobody can wait for it in a process that was forked off, nor in a callback of a reply."""

    def __init__(self, check_process: Callable[[], None], check_wait: Callable[[], None]) -> None:
        super().__init__()
        self._check_process = check_process
        self._check_wait = check_wait

    def result(self, timeout: float | None = None) -> Any:
        """As of any future."""
        self._check()
        return super().result(timeout)

    def exception(self, timeout: float | None = None) -> BaseException | None:
        """As of any future."""
        self._check()
        return super().exception(timeout)

    def _check(self) -> None:
        self._check_process()
        if not self.done():
            self._check_wait()


def _give(pending: PendingRequest, found: Any) -> None:
    """The reply, or the error, to a caller who may have gone."""
    try:
        if isinstance(found, TussockError):
            pending.future.set_exception(found)
        else:
            pending.future.set_result(found)
    except InvalidStateError:
        pass  # it was cancelled before it was sent
    except BaseException as error:
        # Others wait for this thread, too.
        log.error("a callback of a reply raised", error=cause_of(error), exc_info=error)


def _wait_seconds_of(error: pb.Error) -> float:
    """What a refusal says of the time to wait."""
    facts = error_of(error).args[1:2]
    is_told = bool(facts) and isinstance(facts[0], int | float)
    return min(max(facts[0] / 1000, 0.0), AGAIN_SECONDS_MAX) if is_told else AGAIN_SECONDS


def _too_large(size: int, most: int) -> MessageTooLarge:
    return MessageTooLarge(
        f"a request has {size:,} bytes, and the application takes {most:,}; give smaller batches, or raise its "
        "limits.message_bytes",
        size,
        most,
    )
