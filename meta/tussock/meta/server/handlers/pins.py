"""Pins of sessions.

Their objects are in the bucket, as those of embedded processes are, so compaction anywhere minds them and a change of
leader loses none: the client shows its pins to the new leader, which takes them over.

The leader renews the objects for as long as the session lives. A pin's object outlasts the leader's last renewal by
most of its lease (60 s), a takeover takes a few seconds.

The client draws a token for each pin, so that it can repeat a call. The id in the bucket is made of the token, its
session and the leader's term: a leader that was replaced while it took a pin gives up that object, and it must be no
other leader's.

Anybody may list pins, so their ids prove nothing. The object of a session's pin holds a hash of the session's id, which
its client alone knows, and of who authenticated for it; a pin is only taken over for the session that this fits.
"""

import hashlib
import re
from collections.abc import Iterable

from tussock.meta.node.auth.caller import Caller, Handlers
from tussock.meta.rpc import meta_pb2 as pb
from tussock.meta.rpc.convert import pin_from_message, pin_to_message
from tussock.meta.server.context import Context
from tussock.meta.server.part import Part
from tussock.meta.server.sessions import Session, Sessions
from tussock.meta.server.status.version_parts import short_id
from tussock.statestore.base.logs import get_logger
from tussock.statestore.base.system import Lock
from tussock.statestore.errors import AccessDenied, InvalidOption, LimitReached, SnapshotExpired

__all__ = ["Pinning"]

log = get_logger("tussock.meta")

TOKEN = re.compile(r"[0-9a-f]{16}")
SESSION_PINS_MAX = 1000
PINS_MAX = 10_000
"""Of all sessions: the leader writes each of them anew every third of a lease, and answers `ListPins` with all."""


class Pinning(Part):
    """Takes, adopts and releases pins for sessions."""

    def __init__(self, context: Context, sessions: Sessions, lock: Lock, term: int) -> None:
        self._context = context
        self._sessions = sessions
        self._lock = lock
        self._term = term
        self._taking: dict[tuple[str, str], tuple[Lock, int]] = {}
        """Per session and token of a pin that is being taken: a lock, and how many calls hold it or wait for it."""

    def handlers(self) -> Handlers:
        """The RPCs answered here."""
        return {"Pin": self._pin, "Unpin": self._unpin, "ListPins": self._list}

    def adopt(self, session: Session, shown: Iterable[pb.PinInfo]) -> list[str]:
        """Take over pins from an earlier leader; returns the ids of those that are lost."""
        lost: list[str] = []
        for message in shown:
            if message.id in session.pins:
                continue
            try:
                self._check_room(session)
                pin = self._context.meta.pins.adopt(pin_from_message(message), _holder(session))
            except (SnapshotExpired, AccessDenied, LimitReached) as error:
                if not isinstance(error, SnapshotExpired) and not lost:
                    log.warning("a pin was not taken over", session=short_id(session.id), reason=str(error))
                lost.append(message.id)
                continue
            with self._lock:
                alive = session in self._sessions.all()
                if alive:
                    session.pins[pin.info.id] = pin
            if not alive:
                # The session, or this leadership, ended meanwhile; the next leader may hold the pin already.
                pin.abandon()
        return lost

    def end_session(self, session: Session) -> None:
        """The session is over."""
        with self._lock:
            pins = list(session.pins.values())
            session.pins.clear()
        for pin in pins:
            pin.release()

    def close(self) -> None:
        """The term is over: stop renewing, and leave the objects to the next leader."""
        self._context.meta.pins.abandon_all()

    def _pin(self, request: pb.PinRequest, _: Caller) -> pb.PinResponse:
        if TOKEN.fullmatch(request.token) is None:
            raise InvalidOption(f"token {request.token[:64]!r} of a pin is not 16 hex digits")
        # One after the other: a repetition that overtook the first try and was refused would delete the object, which
        # has the same name, of a pin that its client then believes to hold.
        key = (request.session_id, request.token)
        with self._lock:
            turn, calls = self._taking.get(key, (self._context.system.lock(), 0))
            self._taking[key] = turn, calls + 1
        try:
            with turn:
                return self._take(request)
        finally:
            with self._lock:
                turn, calls = self._taking.pop(key)
                if calls > 1:
                    self._taking[key] = turn, calls - 1

    def _take(self, request: pb.PinRequest) -> pb.PinResponse:
        token = hashlib.sha256(f"{self._term}/{request.session_id}/{request.token}".encode()).hexdigest()[:16]
        with self._lock:
            session = self._sessions.get(request.session_id)
            known = next((pin for pin in session.pins.values() if pin.info.id.endswith(token)), None)
        if known is not None:
            return pb.PinResponse(pin=pin_to_message(known.info), seq=self._context.meta.version().seq)
        self._check_room(session)
        epoch = request.epoch if request.HasField("epoch") else None
        pin = self._context.meta.pins.pin(epoch, owner=session.name, token=token, holder=_holder(session))
        with self._lock:
            alive = session in self._sessions.all()
            if alive:
                session.pins[pin.info.id] = pin
        if not alive:
            # The session ended while its pin was being written: nobody would ever let go of it.
            pin.release()
            self._sessions.get(request.session_id)
        return pb.PinResponse(pin=pin_to_message(pin.info), seq=self._context.meta.version().seq)

    def _check_room(self, session: Session) -> None:
        """Raise `LimitReached` if there are as many pins as the leader renews."""
        with self._lock:
            held = sum(len(one.pins) for one in self._sessions.all())
        if len(session.pins) >= SESSION_PINS_MAX:
            raise LimitReached(
                f"the session {session.name!r} holds {len(session.pins)} pins, and may hold {SESSION_PINS_MAX}: close "
                "snapshots that are read no more",
                SESSION_PINS_MAX,
            )
        if held >= PINS_MAX:
            raise LimitReached(f"all sessions hold {held} pins, and may hold {PINS_MAX}; close snapshots", PINS_MAX)

    def _unpin(self, request: pb.UnpinRequest, _: Caller) -> pb.UnpinResponse:
        with self._lock:
            pin = self._sessions.get(request.session_id).pins.pop(request.pin_id, None)
        if pin is not None:
            pin.release()
        return pb.UnpinResponse()

    def _list(self, _: pb.ListPinsRequest, __: Caller) -> pb.ListPinsResponse:
        return pb.ListPinsResponse(pins=[pin_to_message(pin) for pin in self._context.meta.live_pins()])


def _holder(session: Session) -> str:
    """What stands in the objects of a session's pins."""
    return hashlib.sha256(f"holder of pins/{session.identity}/{session.id}".encode()).hexdigest()
