"""Pushed transactions that wait for room in the queue of their stream, in the order in which they came.

The node's loop must not wait, so a thread does, one for each stream that has ever been full. What waits is kept
as it came: as objects it may take a hundred times as much.
"""

import threading
from collections import deque
from concurrent.futures import Future
from typing import TYPE_CHECKING, Any

from tussock.compute.applications.errors import ApplicationStopped, Full
from tussock.compute.applications.program import Outcome
from tussock.compute.applications.replies import give
from tussock.compute.changelog.push_ids import check_push_id
from tussock.compute.changelog.remote.wire import read_records
from tussock.compute.service.rpc import application_pb2 as pb

if TYPE_CHECKING:
    from tussock.compute.changelog.flow_host import FlowHost

__all__ = ["PushLine"]

LOOK_SECONDS = 0.25
"""For how long the first one waits before it is looked whether it was withdrawn."""


class PushLine:
    """Of one stream. In any thread."""

    def __init__(self, flow: "FlowHost", stream: str) -> None:
        self._flow = flow
        self._stream = flow.streams[stream]
        self._changed = threading.Condition()
        self._waiting: deque[tuple[pb.Push, Future[Any]]] = deque()
        self._looked_for = 0
        """Those that are to wait, unless they were taken before."""
        self._thread: threading.Thread | None = None
        self._is_over = False

    def push(self, push: pb.Push) -> "Future[Any]":
        """A future of the transaction's number; with `no_wait`, of `None` where the queue is full.

        `cancel` withdraws it for as long as it waits here. Raises what `Stream.push` does.
        """
        if push.request_id:
            check_push_id(push.request_id, f"stream {self._stream.name!r}")
        with self._changed:
            if not self._waiting and not self._looked_for and self._flow.has_place(self._stream.name):
                try:
                    return self._given(push, wait=False)
                except Full:
                    pass  # somebody in this process was faster
            number: Future[Any] = Future()
            if not push.request_id:
                self._join(push, number)
                return number
            self._looked_for += 1
        try:
            # It may be there already, as the connection broke before the reply; then it has to wait for nothing.
            found = self._flow.ask_for_push(self._stream.name, push.request_id)
        except BaseException:
            with self._changed:
                self._looked_for -= 1
            raise
        found.add_done_callback(lambda done: self._looked(push, number, done))
        return number

    def _looked(self, push: pb.Push, number: "Future[Any]", done: "Future[Any]") -> None:
        """It is known whether it was taken before."""
        try:
            with self._changed:
                self._looked_for -= 1
                known = done.result().value
                if known is None:
                    self._join(push, number)
                    return
        except Exception as error:  # noqa: BLE001 - it is the caller's
            give(number, Outcome(error=error))
            return
        give(number, Outcome(value=known))

    def _join(self, push: pb.Push, number: "Future[Any]") -> None:
        """Let it wait, if it is to."""
        if push.no_wait:
            give(number, Outcome(value=None))
            return
        with self._changed:
            if self._is_over:
                raise ApplicationStopped(f"stream {self._stream.name!r}: its flow is ending")
            self._waiting.append((push, number))
            if self._thread is None:
                name = f"tussock pushes {self._stream.name}"
                self._thread = threading.Thread(target=self._work, name=name, daemon=True)
                self._thread.start()
            self._changed.notify_all()

    def stop(self) -> None:
        """Refuse what waits, and what comes."""
        with self._changed:
            self._is_over = True
            self._changed.notify_all()

    def _work(self) -> None:
        while True:
            with self._changed:
                self._changed.wait_for(lambda: self._waiting or self._is_over)
                if self._is_over:
                    self._refuse_all()
                    return
                push, number = self._waiting[0]
            if number.cancelled() or self._has_given(push, number):
                with self._changed:
                    self._waiting.popleft()

    def _has_given(self, push: pb.Push, number: "Future[Any]") -> bool:
        """Whether it needs to wait no more."""
        try:
            if not self._flow.wait_place(self._stream.name, LOOK_SECONDS):
                return False
            if not number.set_running_or_notify_cancel():
                return True
            found = self._given(push, wait=True)
        except Exception as error:  # noqa: BLE001 - it is the caller's
            give(number, Outcome(error=error))
            return True
        found.add_done_callback(lambda done: _copy(done, number))
        return True

    def _given(self, push: pb.Push, *, wait: bool) -> "Future[Any]":
        prepared = self._flow.prepared(self._stream, read_records(push), push.request_id or None)
        return self._flow.give(prepared, wait=wait, timeout=None)

    def _refuse_all(self) -> None:
        for _, number in self._waiting:
            give(number, Outcome(error=ApplicationStopped(f"stream {self._stream.name!r}: its flow has ended")))
        self._waiting.clear()


def _copy(done: "Future[Any]", number: "Future[Any]") -> None:
    try:
        give(number, Outcome(value=done.result()))
    except Exception as error:  # noqa: BLE001 - it is the caller's
        give(number, Outcome(error=error))
