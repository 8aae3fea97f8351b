"""Sessions: what clients and compactors hold, for as long as they send heartbeats.

A session lives in the leader's memory. Its client draws the id and opens the session again, under that id and with
all that it holds, wherever the leader is; so a change of leader loses none. Deadlines are by the leader's monotonic
clock.
"""

import re
from dataclasses import dataclass, field

from tussock.meta.retention.pins import Pin
from tussock.meta.rpc import meta_pb2 as pb
from tussock.meta.server.mailbox import Mailbox
from tussock.statestore.base.system import System
from tussock.statestore.errors import AccessDenied, DuplicateName, InvalidOption, LimitReached, SessionExpired

__all__ = ["Session", "Sessions", "check_holdings"]

SESSION_ID_DIGITS = 32
NAME_CHARACTERS_MAX = 255
SLOTS_MAX = 1024
SESSIONS_MAX = 2000
IDENTITY_SHARE = 3
"""One identity may have this many times the sessions that are free, so that some stay for later ones.

Alone it may have 1,500, beside another that has these 375, and four together leave 7. The rule is that of dynamic
thresholds for a shared buffer: Choudhury and Hahne, IEEE/ACM Transactions on Networking 6(2), 1998.
"""
RETURN_RESERVE = 64
"""While clients come back after a change of leader, each identity may have three quarters of all sessions again, in
whatever order they come; but not of these last ones."""
SST_ID = re.compile(r"[0-9a-f]{32}")
TASK_ID_CHARACTERS_MAX = 64


def check_holdings(request: pb.OpenSessionRequest | pb.HeartbeatRequest) -> None:
    """Raise `InvalidOption` for what no client that works says of what its session holds."""
    if request.oldest_upload and not SST_ID.fullmatch(request.oldest_upload):
        raise InvalidOption(f"oldest_upload {request.oldest_upload[:64]!r} is no id of an SST")
    if request.slots > SLOTS_MAX:
        raise InvalidOption(f"a compactor with {request.slots} slots: {SLOTS_MAX} are allowed")
    if len(request.tasks) > SLOTS_MAX:
        raise InvalidOption(f"a session with {len(request.tasks)} tasks: {SLOTS_MAX} are allowed")
    for task in request.tasks:
        if len(task.task_id) > TASK_ID_CHARACTERS_MAX:
            raise InvalidOption(f"{task.task_id[:64]!r}... is no id of a task")


@dataclass
class Session:
    """One client or compactor."""

    id: str
    is_compactor: bool
    name: str
    """For people; among live compactors it is unique."""
    identity: str
    """The identity that authenticated for it."""
    deadline: float
    host: str = ""
    """That it was opened from."""
    software: str = ""
    slots: int = 0
    """Tasks that a compactor runs at once."""
    progress: dict[str, int] = field(default_factory=dict)
    """Of a compactor: rows read, per task that it says it runs."""
    oldest_upload: str = ""
    """No SST that it may yet commit has a smaller id; empty for none."""
    pins: dict[str, Pin] = field(default_factory=dict)
    mailbox: Mailbox | None = None
    """Of its newest subscription."""

    def send(self, event: pb.Event) -> None:
        """Push an event, if the session is subscribed; what it missed it finds again when it subscribes."""
        if self.mailbox is not None:
            self.mailbox.put(event.SerializeToString())


class Sessions:
    """The live sessions of one leader; its user holds a lock around every call."""

    def __init__(self, system: System, lease_seconds: float) -> None:
        self._system = system
        self._lease_seconds = lease_seconds
        self._all_back_at = system.monotonic() + lease_seconds
        """Until then clients of the leader before this one open their sessions again."""
        self._live: dict[str, Session] = {}

    def open(self, request: pb.OpenSessionRequest, identity: str, host: str = "") -> Session:
        """Open a session, or take up one that is open; `DuplicateName` if another live compactor has the name."""
        if len(request.session_id) != SESSION_ID_DIGITS or set(request.session_id) - set("0123456789abcdef"):
            raise InvalidOption(f"session id {request.session_id[:64]!r} is not {SESSION_ID_DIGITS} hex digits")
        for what, text in (("name", request.name), ("software", request.software)):
            if len(text) > NAME_CHARACTERS_MAX:
                raise InvalidOption(
                    f"{what} of a session has {len(text)} characters, and {NAME_CHARACTERS_MAX} are allowed"
                )
        check_holdings(request)
        is_compactor = request.kind == pb.COMPACTOR
        for other in self.all():
            if is_compactor and other.is_compactor and other.name == request.name and other.id != request.session_id:
                raise DuplicateName(
                    f"a compactor named {request.name!r} is connected already; give each its own --name", request.name
                )
        session = self._live.get(request.session_id)
        if session is None:
            self._check_room(identity)
            session = Session(
                id=request.session_id,
                is_compactor=is_compactor,
                name=request.name,
                identity=identity,
                deadline=0.0,
                software=request.software,
            )
            self._live[session.id] = session
        else:
            self.owned(session.id, identity)
        session.host = host
        self.renew(session, request.oldest_upload, request.slots)
        return session

    def _check_room(self, identity: str) -> None:
        own = sum(1 for other in self._live.values() if other.identity == identity)
        free = SESSIONS_MAX - len(self._live)
        most = IDENTITY_SHARE * free
        if free > RETURN_RESERVE and self._system.monotonic() < self._all_back_at:
            # What an identity may have depends on the order of opening: so here each may have what it can have had.
            most = max(most, IDENTITY_SHARE * SESSIONS_MAX // (IDENTITY_SHARE + 1))
        if own >= most:
            raise LimitReached(
                f"{len(self._live)} sessions are open, {own} of them of {identity!r}; a service has up to "
                f"{SESSIONS_MAX}, and of one identity up to {IDENTITY_SHARE} times as many as are free: close stores "
                "that nobody uses, or let clients share them",
                SESSIONS_MAX,
                own,
            )

    def get(self, session_id: str) -> Session:
        """The live session of that id; `SessionExpired` if there is none."""
        session = self._live.get(session_id)
        if session is None:
            raise SessionExpired(
                f"session {session_id[:64]!r} is not known to this leader: it lapsed, or another one leads since; "
                "open it again",
                session_id[:64],
            )
        return session

    def owned(self, session_id: str, identity: str) -> Session:
        """The live session of that id, if it is this caller's; `AccessDenied` if it is another's."""
        session = self.get(session_id)
        if session.identity != identity:
            raise AccessDenied(f"session {session_id[:8]}... is not one of {identity!r}; open your own", identity)
        return session

    def renew(self, session: Session, oldest_upload: str, slots: int) -> None:
        """A heartbeat has come."""
        session.deadline = self._system.monotonic() + self._lease_seconds
        session.oldest_upload = oldest_upload
        session.slots = slots

    def remove(self, session: Session, reason: str) -> None:
        """The session is over."""
        self._live.pop(session.id, None)
        if session.mailbox is not None:
            session.mailbox.close(reason)

    def all(self) -> list[Session]:
        """The live sessions, oldest first."""
        return list(self._live.values())

    def compactors(self) -> list[Session]:
        """The live sessions of compactors, oldest first."""
        return [session for session in self.all() if session.is_compactor]

    def expired(self) -> list[Session]:
        """Those whose lease is over."""
        now = self._system.monotonic()
        return [session for session in self.all() if session.deadline <= now]

    def oldest_uploads(self) -> list[str]:
        """Per session that has uploads in flight, an id that none of them is below."""
        return [session.oldest_upload for session in self.all() if session.oldest_upload]
