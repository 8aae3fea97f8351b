"""What exists only while a replica leads: sessions, pins held for them, compaction, checkpoints and their clock.

A leadership begins with an empty memory and a term; all that must last is in the bucket. Clients that find a new
leader open their sessions again and bring along what they hold. It ends when the lease is lost or handed over: then
nothing of it may act any more, and whatever still tries fails at the log, which knows the newer term.
"""

from google.protobuf.message import Message

from tussock.meta.node.auth.caller import Caller, Handlers
from tussock.meta.rpc import meta_pb2 as pb
from tussock.meta.rpc.methods import Role
from tussock.meta.server.context import Context
from tussock.meta.server.feed import Feed
from tussock.meta.server.handlers.checkpoints import Checkpoints
from tussock.meta.server.handlers.commits import COMMITS_MAX, Commits
from tussock.meta.server.handlers.compaction import Scheduler
from tussock.meta.server.handlers.pins import SESSION_PINS_MAX, Pinning
from tussock.meta.server.handlers.upkeep import Upkeep
from tussock.meta.server.mailbox import Mailbox
from tussock.meta.server.part import Part
from tussock.meta.server.sessions import Session, Sessions, check_holdings
from tussock.meta.server.status.version_parts import short_id
from tussock.meta.version.version import Version
from tussock.statestore.base.logs import get_logger
from tussock.statestore.errors import AccessDenied, InvalidOption

__all__ = ["Leadership"]

log = get_logger("tussock.meta")

SETTING_MS_MAX = 10**12
DISMISS_SECONDS = 0.2
"""Between two looks at which clients are let in no more. Their file is looked at once a second, and a tick comes within
a tenth: so the session of one that was taken out ends within two seconds."""
_WRITING = Role.WRITER | Role.COMPACTOR | Role.ADMIN


class Leadership:
    """One term of one leader."""

    def __init__(self, context: Context, feed: Feed, term: int) -> None:
        self.term = term
        self._context = context
        self._feed = feed
        self._lock = context.system.lock()
        """Held around the sessions; never across a request."""
        self.sessions = Sessions(context.system, context.options.session_lease_seconds)
        self.pinning = Pinning(context, self.sessions, self._lock, term)
        self.scheduler = Scheduler(context, self.sessions, self._lock)
        self.commits = Commits(context, self._lock, feed)
        self.checkpoints = Checkpoints(context, self.sessions, self._lock, self.commits)
        self.upkeep = Upkeep(context)
        self._dismisses_at = context.system.monotonic()
        self._parts: tuple[Part, ...] = (self.pinning, self.scheduler, self.commits, self.checkpoints, self.upkeep)
        context.meta.protect(self._in_flight)
        self.handlers: Handlers = {
            "OpenSession": self._open_session,
            "Heartbeat": self._heartbeat,
            "CloseSession": self._close_session,
        }
        for part in self._parts:
            self.handlers.update(part.handlers())

    def call(self, method: str, request: Message, caller: Caller) -> Message:
        """Answer one unary call.

        One that belongs to a session is refused without a live one of the caller's: `SessionExpired`, `AccessDenied`.
        """
        session_id = getattr(request, "session_id", None)  # an empty one is one, too: only no field is none
        if session_id is not None and method != "OpenSession":
            with self._lock:
                self.sessions.owned(session_id, caller.identity)
        return self.handlers[method](request, caller)

    def subscribe(self, request: pb.SubscribeRequest, caller: Caller) -> Mailbox:
        """A fresh mailbox for the session, which begins with all that it missed."""
        mailbox = Mailbox(self._feed.news, request.after_seq)
        with self._lock:
            session = self.sessions.owned(request.session_id, caller.identity)
            if session.mailbox is not None:
                session.mailbox.close("subscribed again")
            session.mailbox = mailbox
        for part in self._parts:
            part.greet_session(session)
        return mailbox

    def learn(self, entry: bytes | None, version: Version) -> None:
        """The log has moved on: tell all subscribers."""
        self._feed.learn(entry, version)
        with self._lock:
            mailboxes = [session.mailbox for session in self.sessions.all()]
        for mailbox in mailboxes:
            if mailbox is not None:
                mailbox.wake()

    def tick(self) -> None:
        """Do what is due."""
        with self._lock:
            lapsed = self.sessions.expired()
        for session in lapsed:
            log.warning("session lapsed", session=short_id(session.id), name=session.name)
            self._end(session, "the session lapsed: no heartbeat came in time")
        self._dismiss()
        for part in self._parts:
            part.tick()

    def _dismiss(self) -> None:
        """End the sessions of declared clients that are so no more: their streams end with them."""
        now = self._context.system.monotonic()
        if now < self._dismisses_at:
            return
        self._dismisses_at = now + DISMISS_SECONDS
        with self._lock:
            sessions = self.sessions.all()
        for session in sessions:
            if reason := self._context.dismissal(session.identity):
                log.warning(
                    "session ended",
                    session=short_id(session.id),
                    name=session.name,
                    caller=session.identity,
                    why=reason,
                )
                self._end(session, reason)

    def close(self, reason: str) -> None:
        """The term is over: tell subscribers to go elsewhere; pins stay in the bucket for the next leader."""
        with self._lock:
            for session in self.sessions.all():
                self.sessions.remove(session, reason)
        for part in self._parts:
            part.close()

    def _in_flight(self) -> list[str]:
        with self._lock:
            return [*self.sessions.oldest_uploads(), *self.checkpoints.uploads_in_flight()]

    def _open_session(self, request: pb.OpenSessionRequest, caller: Caller) -> pb.OpenSessionResponse:
        options = self._context.options
        _check_opening(request, caller)
        retention_ms = request.retention_ms if request.HasField("retention_ms") else None
        gc_grace_ms = request.gc_grace_ms if request.HasField("gc_grace_ms") else None
        asks_for_change = self._context.meta.asks_for_change(retention_ms, gc_grace_ms)
        if asks_for_change:
            _check_settling(caller, self._context.meta.version(), retention_ms, gc_grace_ms)
        with self._lock:
            session = self.sessions.open(request, caller.identity, caller.host)
        if asks_for_change:
            self._context.meta.configure(retention_ms, gc_grace_ms)
        lost_pins = self.pinning.adopt(session, request.pins)
        lost_tasks = self.scheduler.progress(session, request.tasks)
        log.info("session opened", session=short_id(session.id), name=session.name, compactor=session.is_compactor)
        has_keys = self._context.credentials is not None
        may_write = bool(caller.roles & _WRITING)
        is_handed_some = has_keys and (options.hands_out_to_readers or may_write)
        return pb.OpenSessionResponse(
            lease_ms=int(options.session_lease_seconds * 1000),
            heartbeat_ms=int(options.session_lease_seconds * 1000 / 4),
            store_url=options.store_url,
            store_options=options.store_options,
            hands_out_credentials=is_handed_some,
            withholds_credentials=has_keys and not is_handed_some,
            reads_only=is_handed_some and not may_write,
            term=self.term,
            lost_pins=lost_pins,
            lost_tasks=lost_tasks,
            message_bytes_max=options.message_bytes_max,
            commits_max=COMMITS_MAX,
        )

    def _heartbeat(self, request: pb.HeartbeatRequest, caller: Caller) -> pb.HeartbeatResponse:
        _without_uploads(request, caller)
        check_holdings(request)
        with self._lock:
            session = self.sessions.get(request.session_id)
            self.sessions.renew(session, request.oldest_upload, request.slots)
        lost = self.scheduler.progress(session, request.tasks)
        return pb.HeartbeatResponse(term=self.term, lost_tasks=lost, seq=self._context.meta.version().seq)

    def _close_session(self, request: pb.CloseSessionRequest, _: Caller) -> pb.CloseSessionResponse:
        with self._lock:
            session = self.sessions.get(request.session_id)
        self._end(session, "the client closed its session")
        return pb.CloseSessionResponse()

    def _end(self, session: Session, reason: str) -> None:
        with self._lock:
            self.sessions.remove(session, reason)
        for part in self._parts:
            part.end_session(session)


def _without_uploads(request: pb.OpenSessionRequest | pb.HeartbeatRequest, caller: Caller) -> None:
    """Forget what a caller who may commit nothing says of uploads, or it could keep vacuum from its work.

    Its client says so in good faith once a commit of its has been refused.
    """
    if not caller.roles & _WRITING:
        request.oldest_upload = ""


def _check_opening(request: pb.OpenSessionRequest, caller: Caller) -> None:
    """What opening a session can do beside opening it asks for another role."""
    if request.kind == pb.COMPACTOR and not caller.roles & (Role.COMPACTOR | Role.ADMIN):
        raise AccessDenied(f"{caller.identity!r} may not open the session of a compactor", caller.identity)
    _without_uploads(request, caller)
    if len(request.pins) > SESSION_PINS_MAX:
        raise InvalidOption(f"a session that shows {len(request.pins)} pins: it may hold {SESSION_PINS_MAX}")
    for name in ("retention_ms", "gc_grace_ms"):
        if request.HasField(name) and getattr(request, name) > SETTING_MS_MAX:
            raise InvalidOption(f"{name} is {getattr(request, name)}; expected up to {SETTING_MS_MAX}, 31 years")


def _check_settling(caller: Caller, version: Version, retention_ms: int | None, gc_grace_ms: int | None) -> None:
    """A writer must not end the history that others read."""
    if caller.roles & Role.ADMIN:
        return
    asked = (("retention", retention_ms, version.retention_ms), ("gc_grace", gc_grace_ms, version.gc_grace_ms))
    changes = [(name, new / 1000, old / 1000) for name, new, old in asked if new not in (None, old)]
    raise AccessDenied(
        f"{caller.identity!r} may not change the store's "
        + " and ".join(f"{name} from {old:g} to {new:g} seconds" for name, new, old in changes)
        + ", which needs the role admin: ask for what holds or for nothing, or set "
        + " and ".join(f"versions.{name}_seconds" for name, _, _ in changes)
        + " of the meta service",
        caller.identity,
    )
