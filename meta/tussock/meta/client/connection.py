"""The connection to a meta service: finds its leader, repeats what got lost, and keeps a session alive.

Every call is safe to repeat: commits are known by their writer and batch or by their SSTs, sessions and pins by ids
that the client draws. So a call that got no answer goes to the next replica, until its deadline. The session is opened
again, under the same id and with all that is held, at whichever leader does not know it.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

from google.protobuf.message import Message

from tussock.meta.client.tls_mistakes import TlsMistakes
from tussock.meta.client.transport import Dial, EventStream, Transport, check_size
from tussock.meta.rpc import meta_pb2 as pb
from tussock.meta.rpc.methods import METHODS, Method
from tussock.statestore.base.logs import get_logger
from tussock.statestore.base.system import System, Task
from tussock.statestore.errors import (
    MetaUnavailable,
    NotLeader,
    ObjectStoreUnavailable,
    RateLimited,
    SessionExpired,
    StoreClosed,
    TussockError,
)

__all__ = ["Attempts", "Holdings", "MetaConnection", "NoOwner", "SessionOwner"]

log = get_logger("tussock.meta.client")

ATTEMPT_SECONDS_MAX = 3.0
"""A replica that does not answer a call for this many seconds is taken for dead, and the next one asked."""
PAUSE_SECONDS = 0.05
"""Before asking again where no replica leads yet."""


@dataclass
class Attempts:
    """How the attempts at one call went."""

    unknown: bool = False
    """An attempt got no answer, so it may have taken effect."""
    sent: float = 0.0
    """By the monotonic clock: when the last one was."""


@dataclass
class Holdings:
    """What a session holds; told to a leader that does not know the session."""

    pins: Sequence[pb.PinInfo] = ()
    tasks: Sequence[pb.TaskProgress] = ()
    oldest_upload: str = ""
    slots: int = 0

    def beat(self) -> dict[str, Any]:
        """What each heartbeat says of it, by field of the request."""
        return {"tasks": self.tasks, "oldest_upload": self.oldest_upload, "slots": self.slots}


class SessionOwner(Protocol):
    """The owner of a session: says what the session holds, and hears what becomes of it. Called by any thread."""

    def holdings(self) -> Holdings:
        """What the session holds, whenever that is told to a leader."""

    def after_seq(self) -> int:
        """The sequence of the version that the owner has: the subscription begins after it."""

    def on_opened(self, opened: pb.OpenSessionResponse) -> None:
        """A leader has (re)opened the session; it says which pins and tasks are lost."""

    def on_lost_tasks(self, task_ids: Sequence[str]) -> None:
        """The leader has taken these tasks back."""

    def on_heartbeat(self, seq: int) -> None:
        """A heartbeat was answered, with the sequence of the leader's version."""

    def on_event(self, event: pb.Event) -> None:
        """An event of the subscription, in order, by one thread."""


class NoOwner:
    """Owns the session of one that only calls: it holds nothing, and does nothing with what it hears."""

    def holdings(self) -> Holdings:
        """Nothing."""
        return Holdings()

    def after_seq(self) -> int:
        """All versions."""
        return 0

    def on_opened(self, opened: pb.OpenSessionResponse) -> None:
        """Nothing is lost."""

    def on_lost_tasks(self, task_ids: Sequence[str]) -> None:
        """None is its own."""

    def on_heartbeat(self, seq: int) -> None:
        """It follows no versions."""

    def on_event(self, event: pb.Event) -> None:
        """It waits for none."""


@dataclass
class _Session:
    """What the leader said when it opened the session."""

    opened: pb.OpenSessionResponse = field(default_factory=pb.OpenSessionResponse)
    acknowledged: float = float("-inf")
    """By the monotonic clock: when the last heartbeat that was answered had been sent."""


class MetaConnection:
    """One session at a meta service of one or several replicas. Safe to share between threads."""

    def __init__(
        self,
        addresses: Sequence[str],
        system: System,
        dial: Dial,
        *,
        name: str,
        kind: pb.SessionKind = pb.CLIENT,
        deadline_seconds: float = 30.0,
        first_request: Callable[[pb.OpenSessionRequest], None] = lambda _: None,
    ) -> None:
        """Nothing is sent yet.

        Args:
            addresses: `host:port` of the replicas, some of them at least.
            system: clocks, entropy, threads.
            dial: makes a transport to an address.
            name: of this session, for people; of a compactor, unique.
            kind: `CLIENT` or `COMPACTOR`.
            deadline_seconds: after these a call gives up.
            first_request: may add to the request that opens the session for the first time; when it is opened again
                at another leader, what was asked for then may have been changed by somebody else since.
        """
        self.session_id = system.random_bytes(16).hex()
        self.name = name
        self._kind = kind
        self._system = system
        self._dial = dial
        self._deadline_seconds = deadline_seconds
        self._first_request = first_request
        self._addresses = list(addresses)
        self._transports: dict[str, Transport] = {}
        self._leader = self._addresses[0]
        self._session = _Session()
        self._mistakes = TlsMistakes()
        self._opening = system.lock()
        self._changed = system.condition()
        self._closed = False
        self._stream: EventStream | None = None
        self._tasks: list[Task] = []
        self._owner: SessionOwner = NoOwner()

    def start(self, owner: SessionOwner, *, subscribe: bool = True) -> pb.OpenSessionResponse:
        """Open the session, then keep it alive by heartbeats and subscribe; raises what opening it raises."""
        self._owner = owner
        opened = self._open()
        self._tasks.append(self._system.spawn("tussock-heartbeat", self._beat))
        if subscribe:
            self.subscribe()
        return opened

    def subscribe(self) -> None:
        """Subscribe to what follows the owner's version, once."""
        self._tasks.append(self._system.spawn("tussock-subscription", self._listen))

    @property
    def opened(self) -> pb.OpenSessionResponse:
        """What the leader said when it last opened the session."""
        return self._session.opened

    @property
    def acknowledged(self) -> float:
        """By the monotonic clock: when the last heartbeat that was answered had been sent."""
        return self._session.acknowledged

    @property
    def lease_deadline(self) -> float:
        """By the monotonic clock: until then the leader keeps what the session holds, whatever happens here."""
        return self._session.acknowledged + self._session.opened.lease_ms / 1000

    @property
    def is_alive(self) -> bool:
        """Whether the threads that keep the session run; also before they have begun."""
        return all(task.is_alive() for task in self._tasks)

    def call(
        self, name: str, request: Message, *, timeout: float | None = None, attempts: Attempts | None = None
    ) -> Message:
        """Call the leader; repeats until there is an answer or `timeout` seconds (else the deadline) are over.

        Raises what the leader answered with, or `MetaUnavailable` naming the replicas and what each said: sooner if TLS
        is used so that none of them can ever answer.
        """
        check_size(name, request, METHODS[name].bytes_max or self._session.opened.message_bytes_max)
        deadline = self._system.monotonic() + (self._deadline_seconds if timeout is None else timeout)
        said: dict[str, str] = {}
        while True:
            if self._closed:
                raise StoreClosed(f"{name}: the connection to the meta service was closed")
            address = self._leader
            now = self._system.monotonic()
            left = deadline - now
            if attempts is not None:
                attempts.sent = now
            try:
                if left <= 0:
                    # What it said while there was time tells more.
                    raise MetaUnavailable(said.get(address, f"{name}: the time was up"))
                return self._ask(address, METHODS[name], request, min(left, ATTEMPT_SECONDS_MAX))
            except NotLeader as error:
                said[address] = str(error)
                pause = self._follow(address, error)
            except MetaUnavailable as error:
                said[address] = str(error)
                if attempts is not None:
                    attempts.unknown = True
                pause = self._follow(address, error)
            except ObjectStoreUnavailable as error:
                # The leader's bucket is away, or it could not tell whether its append happened: it answers the same
                # call right when it is repeated.
                said[address] = str(error)
                if attempts is not None:
                    attempts.unknown = True
                if left <= 4 * PAUSE_SECONDS:
                    raise
                pause = 4 * PAUSE_SECONDS
            except SessionExpired as error:
                said[address] = str(error)
                if name in ("OpenSession", "CloseSession"):
                    raise
                self._open(deadline - self._system.monotonic())
                pause = 0.0
            except RateLimited as error:
                said[address] = str(error)
                pause = int(error.args[1]) / 1000 if len(error.args) > 1 else PAUSE_SECONDS
            if deadline - self._system.monotonic() <= pause or self._is_hopeless():
                raise MetaUnavailable(
                    f"{name}: no leader of the meta service answered in time; "
                    + "; ".join(f"{where}: {what}" for where, what in said.items()),
                    *said,
                )
            if pause:
                self._system.sleep(pause)

    def call_once(self, name: str, request: Message) -> Message:
        """Call the leader once, within half of the deadline; raises what it answers with, and moves on as `call`."""
        address = self._leader
        try:
            return self._ask(address, METHODS[name], request, min(self._deadline_seconds / 2, ATTEMPT_SECONDS_MAX))
        except (NotLeader, MetaUnavailable) as error:
            self._follow(address, error)
            raise

    def reconnect(self) -> None:
        """Subscribe anew: what the stream has brought does not fit the version at hand."""
        stream = self._stream
        if stream is not None:
            stream.cancel()

    def close(self) -> None:
        """End the session; what it holds is let go at once if the leader can be told."""
        if self._closed:
            return
        try:
            # One that only calls has none.
            if self._session.opened.lease_ms:
                self.call("CloseSession", pb.CloseSessionRequest(session_id=self.session_id), timeout=2.0)
        except TussockError as error:
            log.info("the session could not be closed and will lapse", session=self.session_id[:8], error=str(error))
        with self._changed:
            self._closed = True
            self._changed.notify_all()
        self.reconnect()
        for task in self._tasks:
            task.join(5.0)
        for transport in self._transports.values():
            transport.close()

    def _transport(self, address: str) -> Transport:
        with self._changed:
            if address not in self._transports:
                self._transports[address] = self._dial(address)
            return self._transports[address]

    def _ask(self, address: str, method: Method, request: Message, timeout: float) -> Message:
        """One attempt at one replica, which is noted for what it says of TLS."""
        transport, failure = self._transport(address), None
        try:
            return transport.call(method, request, timeout)
        except TussockError as error:
            failure = error
            raise
        finally:
            with self._changed:
                self._mistakes = self._mistakes.after(address, self._system.monotonic(), failure)

    def _is_hopeless(self) -> bool:
        """Whether no replica will ever answer. A compactor is a service, which waits for those who mend it."""
        with self._changed:
            return self._kind != pb.COMPACTOR and self._mistakes.are_hopeless({*self._addresses, *self._transports})

    def _follow(self, asked: str, error: NotLeader | MetaUnavailable) -> float:
        """Go to the leader that a replica named, or on to the next replica; returns the seconds to wait before."""
        leader = str(error.args[1]) if isinstance(error, NotLeader) and len(error.args) > 1 else ""
        with self._changed:
            if self._leader != asked:
                return 0.0  # another thread has moved on already
            if leader and leader != asked:
                self._leader = leader
                return 0.0
            known = [*self._addresses, *(other for other in self._transports if other not in self._addresses)]
            self._leader = known[(known.index(asked) + 1) % len(known)] if asked in known else known[0]
            return PAUSE_SECONDS

    def _open(self, timeout: float | None = None) -> pb.OpenSessionResponse:
        """Open the session at the leader, with all that it holds; one thread does, others wait and find it done."""
        before = self._session
        with self._opening:
            if self._session is not before:
                return self._session.opened
            held = self._owner.holdings()
            request = pb.OpenSessionRequest(
                session_id=self.session_id,
                kind=self._kind,
                name=self.name,
                software="tussock",
                pins=held.pins,
                **held.beat(),
            )
            if not self._session.opened.lease_ms:
                self._first_request(request)
            # The lease counts from the attempt that was answered: the first may have found no service yet.
            attempts = Attempts()
            opened = self.call("OpenSession", request, timeout=timeout, attempts=attempts)
            assert isinstance(opened, pb.OpenSessionResponse)
            self._session = _Session(opened, attempts.sent)
            self._owner.on_opened(opened)
        self.reconnect()
        return opened

    def _beat(self) -> None:
        while not self._closed:
            with self._changed:
                self._changed.wait_for(lambda: self._closed, self._session.opened.heartbeat_ms / 1000)
            if self._closed:
                return
            request = pb.HeartbeatRequest(session_id=self.session_id, **self._owner.holdings().beat())
            session, attempts = self._session, Attempts()
            try:
                answer = self.call("Heartbeat", request, attempts=attempts)
            except TussockError as error:
                if not self._closed:
                    log.warning("no heartbeat reached the meta service", session=self.session_id[:8], error=str(error))
                continue
            assert isinstance(answer, pb.HeartbeatResponse)
            if self._session is session:
                session.acknowledged = max(session.acknowledged, attempts.sent)
            if answer.lost_tasks:
                self._owner.on_lost_tasks(answer.lost_tasks)
            self._owner.on_heartbeat(answer.seq)

    def _listen(self) -> None:
        while not self._closed:
            address = self._leader
            pause = PAUSE_SECONDS
            try:
                request = pb.SubscribeRequest(session_id=self.session_id, after_seq=self._owner.after_seq())
                stream = self._transport(address).subscribe(request)
                self._stream = stream
                if self._closed or self._leader != address:
                    stream.cancel()
                for event in stream:
                    if event.HasField("closing"):
                        log.info("subscription ends", reason=event.closing.reason)
                    else:
                        self._owner.on_event(event)
            except NotLeader as error:
                pause = self._follow(address, error)
            except SessionExpired:
                try:
                    self._open()
                except TussockError as error:
                    log.warning("the session could not be opened again", session=self.session_id[:8], error=str(error))
            except MetaUnavailable as error:
                pause = self._follow(address, error) or PAUSE_SECONDS
            except TussockError as error:
                log.warning("the subscription failed, trying again", session=self.session_id[:8], error=str(error))
            if not self._closed:
                self._system.sleep(pause)
