"""Pins: leases on epochs, as separate objects, so that reading never writes to the log.

A pin is an object `pins/<epoch, 20 digits>-<16 hex digits>`; the epoch in its name makes a listing answer the smallest
pin first. Its holder writes it, *then* reads the log to its tail, and lets go again if the safe epoch has passed the
pinned one (`watermark.py` has the proof that this is enough). While a process holds pins, one daemon thread renews
them with a put every third of the lease; a store without pins has no thread and makes no request.

Clocks: the holder measures its lease on its own monotonic clock and stops reading when it lapsed; a process that judges
a pin by the wall clock gives it one more lease, so clocks may differ by that much. If they differ by more, the holder
still notices: the version says which watermark compaction has used, and reads compare (`readable.check_exact`).
"""

import contextlib
import hmac
from collections.abc import Callable

from msgspec.structs import replace

from tussock.meta.log.format import decode_holder, decode_pin, encode_pin, pin_path
from tussock.meta.log.log import VersionLog
from tussock.meta.log.objects import read_object
from tussock.meta.retention.kept_epochs import check_adopted, check_kept, check_not_dropped
from tussock.meta.retention.pin_objects import PIN_ID, smallest_live_pin
from tussock.meta.version.version import Version
from tussock.statestore.base.logs import get_logger
from tussock.statestore.base.system import Lock, System, Task
from tussock.statestore.contract.backend import PinInfo
from tussock.statestore.contract.object_store import ObjectStore
from tussock.statestore.contract.renumbered import renumbering_error
from tussock.statestore.errors import (
    AccessDenied,
    CorruptLog,
    InvalidOption,
    ObjectNotFound,
    ObjectStoreUnavailable,
    SnapshotExpired,
    StoreClosed,
)

__all__ = ["PIN_LEASE_SECONDS", "RENEWED_AT_ONCE", "Pin", "PinKeeper"]

log = get_logger("tussock.meta")

PIN_LEASE_SECONDS = 60.0
PIN_ATTEMPTS_MAX = 5
RENEWED_ALONE = 8
"""As many are renewed one after the other, without further threads."""
RENEWED_AT_ONCE = 32
"""Requests. 1,000 pins at 100 ms each are renewed in 3.3 s; eight at once took 13 s, and 2,000 pins 26 s, which is more
than the 20 s until they are due again (`benchmarks/pins_bench.py`)."""


class Pin:
    """A pin that this process holds; satisfies `PinHandle`."""

    def __init__(self, keeper: "PinKeeper", info: PinInfo, holder: str, deadline: float, writing: Lock) -> None:
        """`writing` is held around each write or delete of it, so that no renewal brings back what was released."""
        self._keeper = keeper
        self.holder = holder
        """Stands in its object: a session that knows what this is the hash of may adopt it. Empty: none may."""
        self.writing = writing
        self.info = info
        """The lease as last written."""
        self.deadline = deadline
        """By the monotonic clock; the lease counts from before its last write was sent."""
        self.forgotten = False
        self.seen: int | None = None
        """The last log entry when the pin was found to hold."""

    def check(self) -> None:
        """Raise `SnapshotExpired` if the lease was lost."""
        self._keeper.check(self)

    def release(self) -> None:
        """Let go; a second call is no error."""
        self._keeper.release(self)

    def forget(self) -> None:
        """Nobody reads through it any more: the next renewal lets go, with a warning. Takes no lock."""
        self.forgotten = True

    def abandon(self) -> None:
        """Let go, and leave the object to another process, which may hold it under the same id."""
        self._keeper.abandon(self)


class PinKeeper:
    """The pins of one process on one store."""

    def __init__(
        self,
        bucket: ObjectStore,
        system: System,
        log: VersionLog,
        *,
        owner: str,
        retention_ms: int | None,
        lease_seconds: float = PIN_LEASE_SECONDS,
        renew_seconds: float | None = None,
    ) -> None:
        """Renewal is every third of the lease unless given; `InvalidOption` if the lease is under two renewals."""
        self._renew_seconds = lease_seconds / 3 if renew_seconds is None else renew_seconds
        if lease_seconds <= 0 or lease_seconds < 2 * self._renew_seconds:
            raise InvalidOption(
                f"a pin's lease of {lease_seconds} s must be positive and at least twice its renewal interval of "
                f"{self._renew_seconds} s, or one slow request loses the snapshot"
            )
        self._bucket = bucket
        self._system = system
        self._log = log
        self._owner = owner
        self._retention_ms = retention_ms
        self._lease_seconds = lease_seconds
        self._held: dict[str, Pin] = {}
        self._changed = system.condition()
        self._thread: Task | None = None

    @property
    def lease_ms(self) -> int:
        """Length of a lease; also what judges add for differing clocks."""
        return int(self._lease_seconds * 1000)

    def pin(self, epoch: int | None, *, owner: str | None = None, token: str | None = None, holder: str = "") -> Pin:
        """Pin `epoch`, or the newest committed one.

        `owner` is for people, this process unless given. `token`, 16 hex digits, ends the pin's id: a caller that
        repeats a call whose answer was lost gives the same again. `holder` is what `adopt` asks for.

        Raises:
            SnapshotExpired: the epoch is older than the store still keeps; the message names the oldest readable one.
            InvalidOption: the epoch is not committed yet, so a snapshot at it would change.
        """
        for _ in range(PIN_ATTEMPTS_MAX):
            version = self._log.version
            if epoch is None or epoch > version.max_committed_epoch:
                version = self._log.refresh()
            wanted = version.max_committed_epoch if epoch is None else epoch
            if wanted > version.max_committed_epoch:
                raise InvalidOption(
                    f"epoch {wanted} cannot be pinned: the newest committed epoch is {version.max_committed_epoch}; "
                    "commit it or wait for it first"
                )
            # What was the newest a moment ago is no question of retention: it will do if nothing of it was dropped.
            check = _check_newest if epoch is None else self._check_kept
            try:
                fresh = self._fresh(wanted, owner or self._owner, token)
                return self._write(fresh, check, self.release, holder=holder, newest=epoch is None)
            except SnapshotExpired:
                # It can have been dropped only if a newer one was committed: take that one.
                if epoch is not None or self._log.version.max_committed_epoch == wanted:
                    raise
        raise SnapshotExpired(f"the newest committed epoch expired {PIN_ATTEMPTS_MAX} times while it was being pinned")

    def adopt(self, info: PinInfo, holder: str) -> Pin:
        """Hold a pin that another process took, under its id, for its holder there.

        Nothing of `info` is believed but its id, and what can only make it hold less: `unkept`, and `seq` where the
        object has none.

        Raises:
            SnapshotExpired: its object is gone or damaged, or its epoch is no longer kept.
            AccessDenied: the object does not say that it is this holder's.

        Retention is not asked: it was when the pin was taken. If the pin's object is there and has not run out, every
        compaction so far has minded it, and those to come will; then its epoch is exact unless one has passed it in
        spite of that. If nobody has kept the object alive, the epoch has to be above the safe epoch, as the proof in
        `watermark.py` demands of a pin that is new.
        """
        stored = self._prove(info.id, holder)
        was_kept = stored.expires_ms >= self._system.now_ms()  # clocks taken as they are
        renewed = replace(
            stored,
            seq=stored.seq or info.seq,
            unkept=tuple({*stored.unkept, *info.unkept}),
            expires_ms=self._system.now_ms() + self.lease_ms,
        )

        def check(version: Version, info: PinInfo) -> tuple[int, ...]:
            return check_adopted(version, info, was_kept=was_kept)

        # Refused, the object is left to expire: another process may be adopting it too, and succeed.
        return self._write(renewed, check, self.abandon, holder=holder)

    def abandon(self, pin: Pin) -> None:
        """Hold the pin no more and leave its object in the bucket, to expire or to be adopted by another process."""
        with self._changed:
            self._held.pop(pin.info.id, None)
            self._changed.notify_all()

    def abandon_all(self) -> None:
        """Abandon all pins."""
        for pin in list(self._held.values()):
            self.abandon(pin)

    def check(self, pin: Pin) -> None:
        """Raise `SnapshotExpired` if the lease was lost."""
        if pin.deadline == float("-inf"):
            raise StoreClosed(f"the pin on epoch {pin.info.epoch} was released; pin again")
        late = self._system.monotonic() - pin.deadline
        if late >= 0:
            raise SnapshotExpired(
                f"the pin on epoch {pin.info.epoch} was not renewed for {late + self._lease_seconds:.0f} s, its lease "
                f"is {self._lease_seconds:.0f} s: this process or the bucket stood still; pin again"
            )
        version = self._log.version
        if version.renumbered and pin.seen is not None and version.renumbered.ends_pin(pin.info.epoch, pin.seen):
            raise renumbering_error(pin.info.epoch, version.max_committed_epoch)

    def release(self, pin: Pin) -> None:
        """Let go of a pin; if its object cannot be deleted, it expires."""
        with self._changed:
            self._held.pop(pin.info.id, None)
            self._changed.notify_all()
        with pin.writing:
            if pin.deadline > float("-inf"):
                pin.deadline = float("-inf")
                self._remove(pin.info.id)

    def release_all(self) -> None:
        """Let go of all pins."""
        for pin in list(self._held.values()):
            self.release(pin)

    def renew(self) -> None:
        """Write each pin once more, with a new expiry; those that lapsed or were forgotten are given up."""
        held = list(self._held.values())
        if len(held) <= RENEWED_ALONE:
            for pin in held:
                self._renew(pin)
            return
        # One after the other, the renewal of many would outlast the lease of the last.
        with self._system.pool("tussock-pins", RENEWED_AT_ONCE) as pool:
            try:
                begun = [pool.submit(self._renew, pin) for pin in held]
            except RuntimeError:
                return  # The interpreter ends, with pins that nobody released: they expire.
            for done in begun:
                done.result()

    def _renew(self, pin: Pin) -> None:
        if pin.forgotten:
            log.warning("a snapshot was dropped without close(), letting go of its pin", epoch=pin.info.epoch)
            self.release(pin)
            return
        with pin.writing:
            if pin.info.id not in self._held:
                return
            started = self._system.monotonic()
            if started >= pin.deadline:
                # Others may have acted on its expiry, so it is over. Its object stays: another may have adopted it.
                self._held.pop(pin.info.id, None)
                return
            renewed = replace(pin.info, expires_ms=self._system.now_ms() + self.lease_ms)
            # A failed renewal is tried again at the next one; the lease covers two.
            with contextlib.suppress(ObjectStoreUnavailable):
                self._bucket.put(pin_path(renewed.id), encode_pin(renewed, pin.holder))
                pin.info = replace(pin.info, expires_ms=renewed.expires_ms)
                pin.deadline = started + self._lease_seconds

    def _fresh(self, epoch: int, owner: str, token: str | None) -> PinInfo:
        now_ms = self._system.now_ms()
        return PinInfo(
            id=f"{epoch:020d}-{token or self._system.random_bytes(8).hex()}",
            epoch=epoch,
            owner=owner,
            created_ms=now_ms,
            expires_ms=now_ms + self.lease_ms,
        )

    def _prove(self, pin_id: str, holder: str) -> PinInfo:
        """The pin as its object says it, if that also says that it is this holder's."""
        if PIN_ID.fullmatch(pin_id) is None:
            raise AccessDenied(f"{pin_id[:64]!r} is no id of a pin; pin again")
        try:
            data = read_object(self._bucket, path := pin_path(pin_id))
            stored, holding = decode_pin(path, data), decode_holder(path, data)
        except (ObjectNotFound, CorruptLog) as error:
            raise SnapshotExpired(f"the pin {pin_id} cannot be taken over: {error}; pin again") from error
        if not holding or not hmac.compare_digest(holding.encode(), holder.encode()):
            raise AccessDenied(
                f"the pin {pin_id} of {stored.owner!r} cannot be taken over: it is another session's, an embedded "
                "process's, or was taken by an older release; pin again",
                pin_id,
            )
        return stored

    def _write(
        self,
        info: PinInfo,
        check: Callable[[Version, PinInfo], tuple[int, ...]],
        give_up: Callable[[Pin], None],
        *,
        holder: str,
        newest: bool = False,
    ) -> Pin:
        """Write the pin, then read the log and `check` which tables keep its epoch no more; if it raises, `give_up`.

        One on the newest epoch (`newest`) sees the tables that were there at that reading.
        """
        pin = Pin(self, info, holder, self._system.monotonic() + self._lease_seconds, self._system.lock())
        try:
            self._bucket.put(pin_path(info.id), encode_pin(info, holder))
            # Renewed from here on: behind many appends of this process, reading the log may outlast the lease.
            with self._changed:
                self._held[pin.info.id] = pin
                if self._thread is None or not self._thread.is_alive():
                    self._thread = self._system.spawn("tussock-pins", self._renew_until_idle)
            version = self._log.refresh()
            unkept = check(version, info)
            pin.seen = version.seq
            with pin.writing:
                pin.info = replace(pin.info, unkept=unkept, seq=version.seq if newest else pin.info.seq)
        except BaseException:
            give_up(pin)
            raise
        return pin

    def _check_kept(self, version: Version, info: PinInfo) -> tuple[int, ...]:
        """Of a pin that is in the bucket already."""
        now_ms = self._system.now_ms()
        retention_ms = version.retention_ms if self._retention_ms is None else self._retention_ms
        return check_kept(
            version,
            info.epoch,
            now_ms,
            retention_ms,
            lambda: smallest_live_pin(self._bucket, now_ms, self.lease_ms, but=info.id),
        )

    def _remove(self, pin_id: str) -> None:
        with contextlib.suppress(ObjectStoreUnavailable):
            self._bucket.delete([pin_path(pin_id)])

    def _renew_until_idle(self) -> None:
        while True:
            with self._changed:
                # A release alone does not end the wait: each would renew all other pins before their time.
                self._changed.wait_for(lambda: not self._held, self._renew_seconds)
                if not self._held:
                    self._thread = None
                    return
            self.renew()


def _check_newest(version: Version, info: PinInfo) -> tuple[int, ...]:
    return check_not_dropped(version, info.epoch)
