"""Pins that a session holds at the meta service. The session's heartbeats keep them; no pin has its own timer."""

import contextlib
from collections.abc import Callable

from tussock.meta.client.connection import MetaConnection
from tussock.meta.client.versions import PushedVersion
from tussock.meta.rpc import meta_pb2 as pb
from tussock.meta.rpc.convert import pin_from_message, pin_to_message
from tussock.statestore.base.logs import get_logger
from tussock.statestore.base.system import System
from tussock.statestore.contract.backend import PinInfo
from tussock.statestore.contract.renumbered import renumbering_error
from tussock.statestore.errors import SnapshotExpired, StoreClosed, TussockError

__all__ = ["PlatformPin", "PlatformPins"]

log = get_logger("tussock.meta.client")


class PlatformPin:
    """A pin of this session; satisfies `PinHandle`."""

    def __init__(self, info: PinInfo, pins: "PlatformPins", seen: int) -> None:
        """`seen`: the last log entry that the leader knew when it took the pin."""
        self.info = info
        """The lease as it was first written; the leader renews it."""
        self.forgotten = False
        self.seen = seen
        self._pins = pins

    def check(self) -> None:
        """Raise `SnapshotExpired` unless reads at the pin's epoch are still exact."""
        self._pins.check(self)

    def release(self) -> None:
        """Let go; a second call is no error."""
        self._pins.release(self)

    def forget(self) -> None:
        """Nobody reads through it any more: the next heartbeat lets go, with a warning. Takes no lock."""
        self.forgotten = True


class PlatformPins:
    """All pins of one session."""

    def __init__(self, connection: MetaConnection, pushed: PushedVersion, system: System) -> None:
        self._connection = connection
        self._pushed = pushed
        self._system = system
        self._held: dict[str, PlatformPin] = {}
        self._lost: set[str] = set()

    def pin(self, epoch: int | None, caught_up: Callable[[int], object]) -> PlatformPin:
        """Pin an epoch, or the newest committed one; `caught_up(seq)` makes the version here as new as the pin."""
        request = pb.PinRequest(
            session_id=self._connection.session_id, epoch=epoch, token=self._system.random_bytes(8).hex()
        )
        answer = self._connection.call("Pin", request)
        assert isinstance(answer, pb.PinResponse)
        pin = PlatformPin(pin_from_message(answer.pin), self, answer.seq)
        self._held[pin.info.id] = pin
        caught_up(answer.seq)
        return pin

    def shown(self) -> list[pb.PinInfo]:
        """The pins held, for a leader that does not know the session."""
        return [pin_to_message(pin.info) for pin in list(self._held.values())]

    def lose(self, pin_ids: list[str]) -> None:
        """The leader could not keep these."""
        self._lost.update(pin_id for pin_id in pin_ids if pin_id in self._held)

    def check(self, pin: PlatformPin) -> None:
        """Raise unless the pin is held, its session alive, and compaction at or below its epoch."""
        epoch = pin.info.epoch
        if pin.info.id not in self._held:
            raise StoreClosed(f"the pin on epoch {epoch} was released; pin again")
        late = self._system.monotonic() - self._connection.lease_deadline
        if pin.info.id in self._lost or late >= 0:
            raise SnapshotExpired(
                f"the pin on epoch {epoch} was lost: the meta service had not heard of this client for longer than "
                f"its lease of {self._connection.opened.lease_ms / 1000:.0f} s; pin again",
                epoch,
            )
        version = self._pushed.version
        if version.renumbered and version.renumbered.ends_pin(epoch, pin.seen):
            raise renumbering_error(epoch, version.max_committed_epoch)

    def release(self, pin: PlatformPin) -> None:
        """Let go of a pin; if the leader cannot be told, it goes with the session."""
        if self._held.pop(pin.info.id, None) is None:
            return
        self._lost.discard(pin.info.id)
        with contextlib.suppress(TussockError):
            self._connection.call(
                "Unpin", pb.UnpinRequest(session_id=self._connection.session_id, pin_id=pin.info.id), timeout=5.0
            )

    def release_forgotten(self) -> None:
        """Let go of those that nobody reads through any more; called between heartbeats, and takes about a second."""
        until = self._system.monotonic() + 1
        for pin in list(self._held.values()):
            if self._system.monotonic() >= until:
                return
            if pin.forgotten:
                log.warning("a snapshot was dropped without close(), letting go of its pin", epoch=pin.info.epoch)
                pin.release()

    def forget_all(self) -> None:
        """The session ends, and all its pins with it."""
        self._held.clear()
