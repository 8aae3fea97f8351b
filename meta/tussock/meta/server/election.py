"""The leader's lease: which replica of the meta service leads, by one small object a term in the bucket.

It decides who does the work, never whether a change is valid: that is the log's business, which fences a leader that
was replaced (`terms.py`). So a lease that goes wrong, by whatever clocks and pauses, costs a moment of service.

Objects
    `leader/<term>`  created, create-only, by the replica that takes the term: the newest one plus one. Its holder alone
                     overwrites it: to renew, to resign and to hand over. The largest term counts.

Holding. The holder renews every third of the lease (a second, which is also the most that some stores allow on one
name). It leads until a lease, less a margin, has passed since it *sent* its last successful renewal, by its own
monotonic clock. A holder that let this pass never comes back in that term: it takes a new one, like anyone else.

Taking. A replica that does not lead looks at the newest lease a few times per lease. If it has not changed for a whole
lease since it was first *seen* like that, by the watcher's own monotonic clock, the holder has stopped: its last
renewal took effect before it was seen, and was sent before it took effect. If it says that the holder resigned, nobody
waits; if it names a successor besides, that one does not wait, and all others do, the former holder too, for a lease:
a successor that has died meanwhile costs no more than a leader that has. Then the watcher creates the next term's
object. Of several exactly one succeeds. No clock is compared with another machine's; the margin covers clocks that run
faster or slower by a sixth.

Leading. The winner appends `StartTerm` to the log, and leads from then on. That also holds off a replica which stood
still between its look and its create, and created a term that is long over and deleted: the log knows a newer one.
"""

import contextlib
import os
import socket
from collections.abc import Sequence
from enum import Enum
from typing import NamedTuple

from tussock.meta.log.format import lease_path, sequence_of
from tussock.meta.log.leases import LeaseRecord, decode_lease, encode_lease
from tussock.meta.log.log import VersionLog
from tussock.meta.log.objects import read_object
from tussock.meta.version.deltas.delta import Delta
from tussock.meta.version.deltas.terms import StartTerm
from tussock.meta.version.version import Version
from tussock.statestore.base.system import System
from tussock.statestore.contract.object_store import ObjectStore
from tussock.statestore.errors import CorruptLog, Fenced, InvalidOption, ObjectNotFound, ObjectStoreUnavailable

__all__ = ["Action", "HeldLease", "LeaderLease", "SeenLease", "judge"]

TERM_MAX = 2**63 - 1
"""No store ever comes here by terms that follow each other."""
RENEWALS_A_LEASE = 3
LOOKS_A_LEASE = 4
MARGIN = 1 / 6
"""Part of a lease by which its holder stops before others may take over."""
RETRY_SECONDS = 0.1
LEASES_KEPT = 2


class SeenLease(NamedTuple):
    """The newest lease object, as a replica has seen it."""

    term: int
    data: bytes
    lease: LeaseRecord | None
    """`None` if the object is damaged: it then runs out like that of a holder which died."""
    since: float
    """When it was first seen with these bytes, by this replica's monotonic clock: after the answer."""


class HeldLease(NamedTuple):
    """A lease of this replica."""

    lease: LeaseRecord
    sent: float
    """When its last successful write was sent, by the monotonic clock."""
    begun: bool = False
    """The log holds the term's `StartTerm`."""

    @property
    def deadline(self) -> float:
        """It leads until then, by the monotonic clock."""
        return self.sent + self.lease.lease_ms / 1000 * (1 - MARGIN)


class Action(Enum):
    """What a replica does next about the lease."""

    FOLLOW = "follow"
    """Nothing: somebody else leads, or may."""
    TAKE = "take"
    """Create the next term's object."""
    ADOPT = "adopt"
    """The newest object is this replica's own: its creation succeeded, although its answer was lost."""
    KEEP = "keep"
    """Go on leading."""
    RENEW = "renew"
    LOSE = "lose"
    """Stop: a newer term exists."""
    LAPSE = "lapse"
    """Stop: the own clock says that others may have taken over."""


def judge(
    newest: int,
    seen: SeenLease | None,
    held: HeldLease | None,
    tried: HeldLease | None,
    now: float,
    lease_seconds: float,
    address: str = "",
) -> Action:
    """What to do. Pure.

    Args:
        newest: the largest term that is known, in the bucket or from the log; 0 if there is none.
        seen: that lease, for a replica that holds none; `None` if there is none.
        held: what this replica holds.
        tried: a lease that this replica tried to take, with an unknown outcome.
        now: the monotonic clock, from before the bucket was asked: what it said may have been true until then only.
        lease_seconds: how long to wait for a lease that cannot be read.
        address: of this replica, which may be the successor that a holder has named.
    """
    if held is not None:
        if newest > held.lease.term:
            return Action.LOSE
        # At the deadline itself it is over: `is_held` says the same.
        if now >= held.deadline:
            return Action.LAPSE
        due = held.sent + held.lease.lease_ms / 1000 / RENEWALS_A_LEASE
        return Action.RENEW if now >= due else Action.KEEP
    if seen is None:
        return Action.TAKE
    if seen.lease is not None and seen.lease.resigned and seen.lease.successor not in ("", address):
        # It is another's turn, for as long as a holder that has died goes unnoticed.
        return Action.TAKE if now - seen.since >= _patience(seen, lease_seconds) else Action.FOLLOW
    if tried is not None and seen.lease is not None and seen.lease.holder == tried.lease.holder:
        # An own lease that this replica does not hold: nobody acts on it, so there is nobody to wait for.
        adoptable = seen.lease == tried.lease and now < tried.deadline
        return Action.ADOPT if adoptable else Action.TAKE
    if seen.lease is not None and seen.lease.resigned:
        return Action.TAKE
    return Action.TAKE if now - seen.since >= _patience(seen, lease_seconds) else Action.FOLLOW


class LeaderLease:
    """One replica's part in choosing a leader. What changes something belongs to one thread, the rest to any."""

    def __init__(
        self, bucket: ObjectStore, system: System, log: VersionLog, *, address: str, lease_seconds: float = 3.0
    ) -> None:
        """No request is made yet.

        Args:
            bucket: where the leases are, beside the log.
            system: clocks and entropy.
            log: gets a `StartTerm` when this replica wins, and its entries that term.
            address: where clients find this replica.
            lease_seconds: how long a leader that died goes unnoticed. Under three seconds, renewals come more often
                than some stores allow writes to one object.
        """
        if lease_seconds <= 0:
            raise InvalidOption(f"a leader's lease of {lease_seconds} s must be positive")
        self._bucket = bucket
        self._system = system
        self._log = log
        self._address = address
        self._lease_seconds = lease_seconds
        self._holder = f"{socket.gethostname()}:{os.getpid()}:{system.random_bytes(8).hex()}"
        self._standing = True
        self._seen: SeenLease | None = None
        self._held: HeldLease | None = None
        self._tried: HeldLease | None = None

    @property
    def term(self) -> int:
        """The newest term known here: the own one while this replica leads."""
        held, seen = self._held, self._seen
        return max(held.lease.term if held else 0, seen.term if seen else 0, self._log.version.term)

    @property
    def leader_address(self) -> str:
        """Where the leader is, as far as this replica knows; empty if there seems to be none."""
        if self.is_held():
            return self._address
        seen = self._seen
        if seen is None or seen.lease is None or seen.lease.resigned or seen.lease.holder == self._holder:
            return ""
        lapsed = self._system.monotonic() - seen.since >= _patience(seen, self._lease_seconds)
        return "" if lapsed else seen.lease.address

    @property
    def pause_seconds(self) -> float:
        """When the next `step` is due, from now."""
        now = self._system.monotonic()
        held, seen = self._held, self._seen
        pause = self._lease_seconds / LOOKS_A_LEASE
        soon = min(RETRY_SECONDS, pause)
        if held is not None:
            renewal = held.sent + held.lease.lease_ms / 1000 / RENEWALS_A_LEASE - now
            # What is overdue has just failed, perhaps at once.
            return renewal if held.begun and renewal > 0 else soon
        if seen is None or (seen.lease is not None and (seen.lease.resigned or seen.lease.holder == self._holder)):
            return soon
        # Not past the end of the lease: each moment more is one without a leader.
        left = seen.since + _patience(seen, self._lease_seconds) - now
        return min(pause, left) if left > 0 else soon

    def is_held(self) -> bool:
        """Whether this replica leads at this moment; no request."""
        held = self._held
        return (
            held is not None
            and held.begun
            and self._system.monotonic() < held.deadline
            and self._log.version.term == held.lease.term
        )

    def step(self) -> bool:
        """Look at the bucket once, do what is to be done, and answer whether this replica leads now.

        Raises `ObjectStoreUnavailable` or `CorruptLog`; whether it leads is then what `is_held` says, and the next step
        goes on from there.
        """
        asked = self._system.monotonic()
        terms = self._terms()
        newest = max(terms, default=0)
        if self._held is None and not self._look(newest):
            return False
        # A term that the log knows has begun, even if its lease was deleted by hand or never copied to this place.
        newest = max(newest, self._log.version.term)
        match judge(newest, self._seen, self._held, self._tried, asked, self._lease_seconds, self._address):
            case Action.TAKE if self._standing:
                self._take(newest + 1)
            case Action.ADOPT if self._standing:
                self._held, self._tried = self._tried, None
            case Action.RENEW:
                self._renew()
            case Action.LOSE:
                self._tried, self._held = _expire(self._held), None
            case Action.LAPSE:
                self._give_up()
            case _:
                pass
        if self._held is not None and not self._held.begun:
            self._begin(terms)
        return self.is_held()

    def resign(self) -> None:
        """Lead no more and never again; another replica takes over as soon as it looks."""
        self._standing = False
        self._give_up()

    def hand_over(self, successor: str) -> None:
        """Lead no more, for the replica at that address; this one takes part again when that one has had its time."""
        self._give_up(successor)

    def _terms(self) -> list[int]:
        """The terms that have leases. A number larger than any term's is no lease's, though an object has it."""
        listed = (sequence_of(info.path) for info in self._bucket.list("leader/"))
        return [term for term in listed if term is not None and term <= TERM_MAX]

    def _look(self, newest: int) -> bool:
        """Read the newest lease; `False` if it went away meanwhile, which the next look clears up."""
        if newest == 0:
            self._seen = None
            return True
        path = lease_path(newest)
        try:
            data = read_object(self._bucket, path)
        except ObjectNotFound:
            return False
        except CorruptLog:
            data = b""  # larger than any lease: as good as empty
        if self._seen is None or (self._seen.term, self._seen.data) != (newest, data):
            try:
                lease = decode_lease(path, newest, data)
            except CorruptLog:
                lease = None
            self._seen = SeenLease(newest, data, lease, self._system.monotonic())
        return True

    def _take(self, term: int) -> None:
        lease = LeaseRecord(
            term=term, holder=self._holder, address=self._address, lease_ms=int(self._lease_seconds * 1000)
        )
        if self._tried is None or self._tried.lease.term != term:
            # Of several tries for one term the first counts: it may be the one that succeeded.
            self._tried = HeldLease(lease, self._system.monotonic())
        if self._bucket.create(lease_path(term), encode_lease(lease)):
            self._held, self._tried = self._tried, None

    def _renew(self) -> None:
        held = self._held
        assert held is not None
        sent = self._system.monotonic()
        lease = _next_lease(held.lease, resigned=False)
        self._bucket.put(lease_path(lease.term), encode_lease(lease))
        self._held = HeldLease(lease, sent, held.begun)

    def _begin(self, terms: Sequence[int]) -> None:
        """Append the term's `StartTerm`, after which older leaders can append nothing."""
        held = self._held
        assert held is not None
        term = held.lease.term

        def decide(version: Version) -> tuple[list[Delta], None]:
            if (version.term, version.leader) == (term, self._holder):
                return [], None
            return [StartTerm(term=term, leader=self._holder, address=self._address)], None

        try:
            self._log.term = max(term, self._log.term)
            self._log.append(decide, key=("start_term", term))
        except Fenced:
            # This replica stood still before its create, and others have led since.
            self._give_up()
            return
        self._held = held._replace(begun=True)
        # Garbage of terms long over; the one before stays, for a replica that is just reading it.
        with contextlib.suppress(ObjectStoreUnavailable):
            self._bucket.delete([lease_path(old) for old in terms if old <= term - LEASES_KEPT])

    def _give_up(self, successor: str = "") -> None:
        """Give the lease up and say so, so that no replica has to wait for its end; or only the successor has not."""
        held, self._held = self._held, None
        self._tried = _expire(held)
        if held is not None:
            lease = _next_lease(held.lease, resigned=True, successor=successor)
            with contextlib.suppress(ObjectStoreUnavailable):
                self._bucket.put(lease_path(lease.term), encode_lease(lease))


def _patience(seen: SeenLease, lease_seconds: float) -> float:
    """How long the object may stay as it is before its holder has stopped: its own word, where it can be read."""
    return lease_seconds if seen.lease is None else seen.lease.lease_ms / 1000


def _expire(held: HeldLease | None) -> HeldLease | None:
    """The lease so that it is not adopted again, but known as this replica's own."""
    return None if held is None else held._replace(sent=float("-inf"))


def _next_lease(lease: LeaseRecord, *, resigned: bool, successor: str = "") -> LeaseRecord:
    return LeaseRecord(
        term=lease.term,
        holder=lease.holder,
        address=lease.address,
        lease_ms=lease.lease_ms,
        renewals=lease.renewals + 1,
        resigned=resigned,
        successor=successor,
    )
