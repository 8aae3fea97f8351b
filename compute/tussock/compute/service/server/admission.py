"""How many requests wait for their replies, of all callers and of each, and the bytes of them and of their replies.

How large a reply is nobody knows before it is there. So the node keeps in mind how large those of a function were, and
counts each further request with a reply of that size, until its own takes that place and is out. One conversation may
have an eighth of the bytes for its replies: one that does not read what comes leaves room for the others.
"""

from collections import Counter
from collections.abc import Hashable

from tussock.compute.applications.errors import Full
from tussock.compute.service.server.settings import RequestLimits

__all__ = ["AGAIN_MS", "Outstanding", "ReplyShare", "RequestPlace", "full"]

AGAIN_MS = 50
SHARES = 8
SMALL_BYTES = 4096
"""Replies up to this size are not kept in mind: as many as may wait take 32 MiB."""
KNOWN_MAX = 4096


class ReplyShare:
    """What the replies of one conversation take, with those that are only expected."""

    def __init__(self) -> None:
        self.nbytes = 0


class RequestPlace:
    """A request that was counted in; `request_bytes` until it has its reply."""

    __slots__ = ("reply_bytes", "request_bytes", "share", "what", "who")

    def __init__(self, who: Hashable, share: ReplyShare, what: Hashable, request_bytes: int) -> None:
        self.who = who
        self.share = share
        self.what = what
        self.request_bytes = request_bytes
        self.reply_bytes = 0

    @property
    def nbytes(self) -> int:
        """Of the request and its reply, as far as they count."""
        return self.request_bytes + self.reply_bytes


class Outstanding:
    """Used by the event loop only."""

    def __init__(self, limits: RequestLimits) -> None:
        """Nothing waits."""
        self._limits = limits
        self._of_callers: Counter[Hashable] = Counter()
        self._known: dict[Hashable, int] = {}
        """Bytes of the large replies to what callers ask for."""
        self.requests = 0
        self.nbytes = 0

    @property
    def is_crowded(self) -> bool:
        """Whether more than half of the bytes are taken."""
        return self.nbytes > self._limits.outstanding_bytes // 2

    def enter(self, who: Hashable, share: ReplyShare, what: Hashable, size: int) -> RequestPlace:
        """Count a request in; `Full` if there are too many, and nothing is counted."""
        limits = self._limits
        if self.requests >= limits.outstanding:
            raise full(f"{self.requests:,} requests wait for their replies")
        if self._of_callers[who] >= limits.identity_outstanding:
            raise full(f"{self._of_callers[who]:,} requests of this caller wait for their replies")
        expected = self._known.get(what, 0)
        # Alone it fits in any case: what it was expected to need is no reason to refuse it for ever.
        if share.nbytes and share.nbytes + expected > limits.outstanding_bytes // SHARES:
            told = f"{share.nbytes:,} bytes of replies are on their way in this conversation, or expected,"
            raise full(told, "read those that have come, and ")
        if self.requests and self.nbytes + size + expected > limits.outstanding_bytes:
            told = f"{self.nbytes:,} bytes of requests and replies are on their way"
            raise full(told, "read the replies that have come, or raise limits.outstanding_bytes, and ")
        place = RequestPlace(who, share, what, size)
        self._of_callers[who] += 1
        self.requests += 1
        self.nbytes += size
        self._set_reply(place, expected)
        return place

    def answered(self, place: RequestPlace, nbytes: int, *, is_known: bool) -> bool:
        """A reply of that size waits to go out; returns whether such replies are larger than was known.

        `is_known`: what was asked for exists, so its name may be kept in mind.
        """
        self.nbytes -= place.request_bytes
        place.request_bytes = 0
        self._set_reply(place, nbytes)
        return is_known and self._note(place.what, nbytes)

    def expect(self, place: RequestPlace) -> None:
        """Count a request without a reply by what is known now."""
        self._set_reply(place, self._known.get(place.what, 0))

    def is_over(self, share: ReplyShare) -> bool:
        """Whether more is expected, in a conversation or in all, than may wait."""
        most = self._limits.outstanding_bytes
        return share.nbytes > most // SHARES or (share.nbytes > 0 and self.nbytes > most)

    def leave(self, place: RequestPlace) -> None:
        """Count it out: its reply is out, or nobody waits for it."""
        self.requests -= 1
        self.nbytes -= place.request_bytes
        self._set_reply(place, 0)
        self._of_callers[place.who] -= 1
        if self._of_callers[place.who] <= 0:
            del self._of_callers[place.who]

    def _set_reply(self, place: RequestPlace, nbytes: int) -> None:
        more = nbytes - place.reply_bytes
        place.reply_bytes = nbytes
        place.share.nbytes += more
        self.nbytes += more

    def _note(self, what: Hashable, nbytes: int) -> bool:
        before = self._known.get(what, 0)
        if nbytes <= before:
            # Forgotten slowly: one small reply says little of the next one.
            left = before - before // 16
            if left > SMALL_BYTES:
                self._known[what] = max(left, nbytes)
            else:
                self._known.pop(what, None)
            return False
        if nbytes <= SMALL_BYTES or (not before and len(self._known) >= KNOWN_MAX):
            return False
        # By powers of two, as all that wait are looked at whenever it grows.
        self._known[what] = min(1 << (nbytes - 1).bit_length(), self._limits.message_bytes)
        return True


def full(what: str, first: str = "") -> Full:
    """The refusal of a request for which there is no room; `first`: what to do before it is sent again."""
    return Full(f"{what} already; this one did not begin: {first}try again in {AGAIN_MS} ms", AGAIN_MS)
