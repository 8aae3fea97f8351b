"""The marks of standbys, by which the leader knows the replicas that follow it.

A replica that follows overwrites one small object, `leader/standby-<16 hex>`, every ten seconds, and only when it has
just read the log to its tail: its mark says that it keeps up. The leader lists `leader/` as often. Nothing is decided
by marks; they are shown. A mark's age is by the bucket's clock alone: the listing has the leader's lease, too, which is
overwritten each second. A mark that is a minute old is of a replica that has ended, and is deleted.
"""

import contextlib
from typing import NamedTuple

from tussock.meta.log.format import is_standby_path, standby_path
from tussock.meta.log.leases import LeaseRecord, decode_lease, encode_lease
from tussock.meta.log.objects import read_object
from tussock.statestore.base.logs import get_logger
from tussock.statestore.base.system import System
from tussock.statestore.contract.object_store import ObjectInfo, ObjectStore
from tussock.statestore.errors import CorruptLog, ObjectNotFound, ObjectStoreUnavailable

__all__ = ["Standby", "Standbys"]

log = get_logger("tussock.meta")

MARK_SECONDS = 10.0
GONE_SECONDS = 60.0
STANDBYS_MAX = 32
"""Of more marks than these the leader reads the newest."""


class Standby(NamedTuple):
    """A replica that follows, as its leader knows it."""

    address: str
    heard: float
    """When it was last known to keep up, by the leader's monotonic clock."""


class Standbys:
    """One replica's part: its own mark, or those of the others. `step` and `withdraw` belong to one thread."""

    def __init__(self, bucket: ObjectStore, system: System, *, address: str) -> None:
        """No request is made yet; `address` is where clients find this replica."""
        self._bucket = bucket
        self._system = system
        self._path = standby_path(system.random_bytes(8))
        self._address = address
        self._marks = 0
        self._is_marked = False
        self._due = float("-inf")
        self._was_leading = False
        self._addresses: dict[str, str] = {}
        self._known: tuple[Standby, ...] = ()

    @property
    def known(self) -> tuple[Standby, ...]:
        """The replicas that follow this one, by address; none unless it leads."""
        return self._known

    def step(self, *, leads: bool) -> None:
        """Do what is due in a replica that has just read the log to its tail; what fails is logged, and tried again."""
        now = self._system.monotonic()
        if leads == self._was_leading and now < self._due:
            return
        self._was_leading, self._due = leads, now + MARK_SECONDS
        try:
            if leads:
                self._look(now)
            else:
                self._known = ()
                self._mark()
        except ObjectStoreUnavailable as error:
            log.warning("the marks of standbys could not be looked after", error=str(error))

    def withdraw(self) -> None:
        """Take the own mark away: this replica follows no more."""
        if self._is_marked:
            with contextlib.suppress(ObjectStoreUnavailable):
                self._bucket.delete([self._path])
                self._is_marked = False

    def _mark(self) -> None:
        self._marks += 1
        # Before the answer: a mark whose answer was lost is there.
        self._is_marked = True
        holder = self._path.rpartition("-")[2]
        lease_ms = int(GONE_SECONDS * 1000)
        mark = LeaseRecord(term=0, holder=holder, address=self._address, lease_ms=lease_ms, renewals=self._marks)
        self._bucket.put(self._path, encode_lease(mark))

    def _look(self, now: float) -> None:
        self.withdraw()
        listed = list(self._bucket.list("leader/"))
        bucket_ms = max((info.modified_ms for info in listed), default=0)
        marks = sorted(
            (info for info in listed if is_standby_path(info.path) and info.path != self._path),
            key=lambda info: info.modified_ms,
            reverse=True,
        )
        gone = [info.path for info in marks if bucket_ms - info.modified_ms > GONE_SECONDS * 1000]
        read = [(self._read(info), info) for info in marks[:STANDBYS_MAX] if info.path not in gone]
        self._addresses = {info.path: address for address, info in read if address}
        self._known = tuple(
            sorted(Standby(address, now - (bucket_ms - info.modified_ms) / 1000) for address, info in read if address)
        )
        if gone:
            self._bucket.delete(gone)

    def _read(self, info: ObjectInfo) -> str:
        """The address in a mark, which never changes; empty if it went away meanwhile, or is damaged."""
        if (known := self._addresses.get(info.path)) is not None:
            return known
        try:
            return decode_lease(info.path, 0, read_object(self._bucket, info.path)).address
        except (ObjectNotFound, CorruptLog):
            return ""
