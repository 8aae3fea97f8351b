"""One conversation: requests come in groups, begin in their order, and are answered as they end.

What ends in a moment is answered together. If there is no room for a request, it and all behind it are refused, until
the client says that it sends them again: so none overtakes another.
"""

import asyncio
import contextlib
from collections import deque
from collections.abc import Hashable
from functools import partial

from google.protobuf.message import DecodeError

from tussock.compute.applications.errors import Full
from tussock.compute.service.rpc import application_pb2 as pb
from tussock.compute.service.rpc.application_errors import message_of
from tussock.compute.service.server.admission import AGAIN_MS, ReplyShare, RequestPlace, full
from tussock.compute.service.server.application_node import ApplicationNode, Asked
from tussock.meta.node.auth.caller import Caller
from tussock.meta.rpc.wire import Miscounted, records_in
from tussock.statestore.errors import InvalidOption, TussockError

__all__ = ["Conversation"]

LARGE_BYTES = 64 << 10
"""From here on requests are counted before they are decoded, and begun in a thread: others go on meanwhile."""
STALLED_SECONDS = 10.0
"""A client that reads nothing for as many seconds has to make room for others."""
REPLY_BYTES_MAX = 1 << 20
"""Of replies that go together."""


class Conversation:
    """Used by the event loop only."""

    def __init__(self, node: ApplicationNode, caller: Caller, who: Hashable) -> None:
        self._node = node
        self._caller = caller
        self._who = who
        self._loop = asyncio.get_running_loop()
        self._share = ReplyShare()
        self._asked: dict[int, Asked] = {}
        self._ended: deque[int] = deque()
        """Requests that have come to their end; filled by any thread."""
        self._is_woken = False
        self._answered: deque[tuple[RequestPlace, pb.Reply]] = deque()
        """Replies that wait to go out."""
        self._writing_since = 0.0
        self._writing: list[RequestPlace] = []
        """Of those that go out now."""
        self._is_beginning = False
        """A request begins in another thread."""
        self._refused: list[pb.Reply] = []
        self._is_refusing = False
        self._last = 0
        self.ready = asyncio.Event()
        """There are replies, or nothing more will come."""
        self.stalled: asyncio.Future[None] = self._loop.create_future()
        """Done when the client has read nothing for long, and others lack the room."""

    @property
    def taken_before(self) -> int:
        """One more than the number of the newest request that was looked at."""
        return self._last + 1

    @property
    def is_idle(self) -> bool:
        """Whether every request has its reply."""
        return not self._asked and not self._answered and not self._refused

    async def take(self, data: bytes) -> None:
        """Begin what is asked for; `InvalidOption` if the bytes are none of the protocol, or numbers go back."""
        group = self._decode(data)
        if group.again and group.requests:
            self._is_refusing = False
            self._last = group.requests[0].number - 1
        for request in group.requests:
            if request.number <= self._last or request.number in self._asked:
                raise InvalidOption(f"request {request.number} comes after request {self._last}; numbers ascend")
            self._last = request.number
            await self._begin(request, len(data) if len(group.requests) == 1 else request.ByteSize())

    def replies(self) -> pb.Replies | None:
        """Replies that are there, up to some bytes; `None` if there are none. Call `written` once they are out."""
        self.ready.clear()
        group, nbytes = pb.Replies(replies=self._refused), 0
        self._refused = []
        while self._answered and nbytes < REPLY_BYTES_MAX:
            place, reply = self._answered.popleft()
            nbytes += place.reply_bytes
            self._writing.append(place)
            group.replies.append(reply)
        self._writing_since = self._loop.time()
        if self._answered:
            self.ready.set()
        return group if group.replies else None

    def written(self) -> None:
        """What `replies` returned is out."""
        for place in self._writing:
            self._node.outstanding.leave(place)
        self._writing = []

    def expect(self) -> None:
        """Replies turned out larger than was known: withdraw the newest requests that do not fit any more.

        They are refused, as they would have been. What has begun stays.
        """
        for one in self._asked.values():
            self._node.outstanding.expect(one.place)
        self._withdraw()

    def _withdraw(self) -> None:
        node = self._node
        # One that begins in another thread is behind all of these, and would overtake them.
        while self._asked and not self._is_beginning and node.outstanding.is_over(self._share):
            number, asked = next(reversed(self._asked.items()))
            if not asked.future.cancel():
                return
            del self._asked[number]
            node.leave(asked.kind, asked.place, asked.began, "RESOURCE_EXHAUSTED")
            self._is_refusing = True
            self._refuse(number, full("replies are larger than was known, and too many are expected"))

    def end_stalled(self) -> None:
        """End the conversation if its client has left what was written unread for that time."""
        if self._writing and self._loop.time() - self._writing_since > STALLED_SECONDS and not self.stalled.done():
            self.stalled.set_result(None)

    def abandon(self) -> None:
        """Nobody waits any more: what has not begun is withdrawn, and the rest counted out when it ends."""
        self.written()
        while self._answered:
            self._node.outstanding.leave(self._answered.popleft()[0])
        asked, self._asked = self._asked, {}
        for one in asked.values():
            one.future.cancel()
            leave = partial(self._node.leave, one.kind, one.place, one.began, "CANCELLED")
            one.future.add_done_callback(lambda _, leave=leave: self._call_soon(leave))  # type: ignore[misc]

    async def _begin(self, request: pb.Request, size: int) -> None:
        node = self._node
        kind, number = "", request.number
        try:
            if self._is_refusing or len(self._asked) >= node.limits.conversation_outstanding:
                raise Full(f"request {number} comes behind one that was refused, or is one too many", AGAIN_MS)
            kind, place, began = node.enter(request, size, self._caller, self._who, self._share)
            try:
                if size > LARGE_BYTES:
                    self._is_beginning = True
                    future = await self._loop.run_in_executor(None, node.begin, kind, request, place)
                else:
                    future = node.begin(kind, request, place)
            except BaseException as error:
                node.leave(kind, place, began, "INVALID_ARGUMENT")
                if not isinstance(error, TussockError | asyncio.CancelledError):
                    raise InvalidOption(f"the {kind} cannot be taken: {type(error).__name__}: {error}") from error
                raise
            finally:
                self._is_beginning = False
        except TussockError as error:
            self._is_refusing = self._is_refusing or isinstance(error, Full)
            if not isinstance(error, Full):
                node.note_failure(kind, error)
            self._refuse(number, error)
            return
        self._asked[number] = Asked(number, kind, place, began, future)
        future.add_done_callback(partial(self._on_end, number))
        if request.deadline_ms:
            self._loop.call_later(request.deadline_ms / 1000, future.cancel)

    def _on_end(self, number: int, _: object) -> None:
        """In any thread."""
        self._ended.append(number)
        # Waking the loop costs more than a reply: once is enough for all that end until it looks.
        if not self._is_woken:
            self._is_woken = True
            self._call_soon(self._look)

    def _look(self) -> None:
        """Make the replies of what has ended, up to some bytes; the others go on in between."""
        self._is_woken = False
        nbytes = 0
        is_larger = False
        while self._ended and nbytes < REPLY_BYTES_MAX:
            asked = self._asked.pop(self._ended.popleft(), None)
            if asked is not None:
                reply, is_news = self._node.reply(asked)
                nbytes += asked.place.reply_bytes
                is_larger = is_larger or is_news
                self._answered.append((asked.place, reply))
        if self._ended and not self._is_woken:
            self._is_woken = True
            self._loop.call_soon(self._look)
        self.ready.set()
        if is_larger:
            for one in list(self._node.open):
                one.expect()
        else:
            # What ran when that was learnt may wait again: an epoch that ended early has put it back.
            self._withdraw()

    def _refuse(self, number: int, error: TussockError) -> None:
        self._refused.append(pb.Reply(number=number, error=message_of(error)))
        self.ready.set()

    def _call_soon(self, what: "partial[None] | object") -> None:
        with contextlib.suppress(RuntimeError):  # the loop is closed: the node has ended
            self._loop.call_soon_threadsafe(what)  # type: ignore[arg-type]

    def _decode(self, data: bytes) -> pb.Requests:
        try:
            if len(data) > LARGE_BYTES:
                # An empty request has two bytes on the wire, and hundreds as an object.
                records_in(data, {}, 2 * self._node.limits.conversation_outstanding)
            return pb.Requests.FromString(data)
        except (Miscounted, DecodeError):
            raise InvalidOption(f"{len(data):,} bytes are no group of requests, or one of too many") from None
