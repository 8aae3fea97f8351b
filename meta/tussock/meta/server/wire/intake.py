"""Requests on their way in: how much of them the service holds at once, of all callers.

gRPC reads a message whole before anybody here sees it, so it is told to take small ones only, and a large request comes
as several. Nothing is read for a caller who is not known. Of those who are, a limited number may send at once, and what
they have sent, until their calls are answered, has another limit. One caller gets half of either, and the rest is for
the others.
"""

import asyncio
from collections import Counter
from collections.abc import AsyncIterator, Hashable

from google.protobuf.message import DecodeError, Message

from tussock.meta.rpc.methods import PIECE_BYTES_MAX, Method
from tussock.meta.rpc.wire import RECORDS, Miscounted, records_in
from tussock.statestore.errors import InvalidOption, MessageTooLarge, RateLimited, WaitTimeout

__all__ = ["BODY_SECONDS_MAX", "READS_MAX", "Body", "Intake", "decode", "is_large"]

READS_MAX = 512
"""Calls that send their requests at the same time: each may hold a piece that has not come to its end."""
BODIES_BYTES_MIN = 32 << 20
"""Of all requests that are being read or answered; more where a single one may have more."""
BODY_SECONDS_MAX = 10.0
AGAIN_MS = 100
RECORDS_MAX = 100_000
"""Of tables, runs and SSTs in one request: that many SSTs are some terabytes."""
FEW = 1000
BYTES_EACH_MIN = 32
"""An SST has an id of 32 digits: a request with more records than `FEW` in fewer bytes names nothing."""


class Body:
    """One request: counted until it is let go."""

    def __init__(self, intake: "Intake", who: Hashable) -> None:
        self._intake = intake
        self._who = who
        self._pieces: list[bytes] = []
        self.size = 0

    def add(self, piece: bytes) -> None:
        """Keep one more piece."""
        self._intake.hold(self._who, len(piece))
        self.size += len(piece)
        self._pieces.append(piece)

    def whole(self) -> bytes:
        """All of it."""
        return self._pieces[0] if len(self._pieces) == 1 else b"".join(self._pieces)

    def release(self) -> None:
        """The call was answered."""
        self._intake.let_go(self._who, self.size)
        self._pieces.clear()
        self.size = 0


class Intake:
    """Counts what is being read. Used by the event loop only."""

    def __init__(self, message_bytes_max: int) -> None:
        """`message_bytes_max` is for the methods without another limit."""
        self._message_bytes_max = message_bytes_max
        self._bytes_max = max(BODIES_BYTES_MIN, 2 * message_bytes_max)
        self._held: Counter[Hashable] = Counter()
        self._reading: Counter[Hashable] = Counter()
        self._all_held = 0
        self._all_reading = 0

    async def read(self, method: Method, pieces: AsyncIterator[bytes], who: Hashable) -> Body:
        """The request, which its user releases.

        Raises:
            RateLimited: too much is on its way, from this caller or from all; says when to try again.
            MessageTooLarge: it has more bytes than the method takes; what comes after these is not read.
            WaitTimeout: it did not come to its end.
        """
        if self._all_reading >= READS_MAX or self._reading[who] >= READS_MAX // 2:
            raise _busy(f"{self._all_reading} requests")
        self._reading[who] += 1
        self._all_reading += 1
        body = Body(self, who)
        try:
            async with asyncio.timeout(BODY_SECONDS_MAX):
                await self._read(method, pieces, body)
        except BaseException as error:
            body.release()
            if isinstance(error, TimeoutError):
                raise WaitTimeout(
                    f"{method.name}: {body.size} bytes of the request came in {BODY_SECONDS_MAX:.0f} s, and not its end"
                ) from None
            raise
        finally:
            self._all_reading -= 1
            _take_out(self._reading, who, 1)
        return body

    async def _read(self, method: Method, pieces: AsyncIterator[bytes], body: Body) -> None:
        bytes_max = method.bytes_max or self._message_bytes_max
        async for piece in pieces:
            size = body.size + len(piece)
            if size > bytes_max:
                raise MessageTooLarge(
                    f"{method.name} was sent {size} bytes or more, and takes {bytes_max}; send less at once"
                    + ("" if method.bytes_max else ", or raise the service's limits.message_bytes"),
                    size,
                    bytes_max,
                )
            body.add(piece)

    def hold(self, who: Hashable, size: int) -> None:
        """Count bytes in; `RateLimited` if there are too many."""
        if self._all_held + size > self._bytes_max or self._held[who] + size > self._bytes_max // 2:
            raise _busy(f"requests of {self._all_held} bytes")
        self._held[who] += size
        self._all_held += size

    def let_go(self, who: Hashable, size: int) -> None:
        """Count bytes out."""
        self._all_held -= size
        _take_out(self._held, who, size)


def decode(method: Method, data: bytes) -> Message:
    """The request; `InvalidOption` if the bytes are none, `MessageTooLarge` if they have too many records."""
    if len(data) > FEW:
        _check_records(method, data)
    try:
        return method.request.FromString(data)
    except DecodeError:
        raise _undecodable(method, data) from None


def is_large(data: bytes) -> bool:
    """Whether decoding it would keep other calls waiting."""
    return len(data) > PIECE_BYTES_MAX


def _check_records(method: Method, data: bytes) -> None:
    most = min(FEW + len(data) // BYTES_EACH_MIN, RECORDS_MAX)
    try:
        records_in(data, RECORDS.get(method.name, {}), most)
    except Miscounted as error:
        if not error.args[1:]:
            raise _undecodable(method, data) from None
        raise MessageTooLarge(
            f"the request of {method.name} has more than {most} tables, runs and SSTs in its {len(data)} bytes; it may "
            f"have {RECORDS_MAX}, and one for {BYTES_EACH_MIN} bytes",
            len(data),
            most,
        ) from None


def _undecodable(method: Method, data: bytes) -> InvalidOption:
    return InvalidOption(
        f"the request of {method.name} is {len(data)} bytes that are no {method.request.DESCRIPTOR.full_name}"
    )


def _busy(what: str) -> RateLimited:
    return RateLimited(f"the service is reading {what} already; wait {AGAIN_MS} ms", AGAIN_MS)


def _take_out(counts: Counter[Hashable], who: Hashable, number: int) -> None:
    counts[who] -= number
    if counts[who] <= 0:
        del counts[who]
