"""One replica of the meta service, without a network: it follows the log, takes part in choosing a leader, and leads.

All replicas work on the same bucket, which holds everything that must last. A follower reads the log along and sends
callers to the leader; the leader answers. Which one leads is decided by a lease object in the bucket (`election.py`);
that only one can *change* anything is decided by the log, whose entries carry the leader's term.
"""

from collections.abc import Callable, Sequence

import msgspec
from google.protobuf.message import Message

from tussock.meta.meta_store import MetaStore
from tussock.meta.node.auth.caller import Caller
from tussock.meta.node.repeated_warnings import RepeatedWarnings
from tussock.meta.rpc import meta_pb2 as pb
from tussock.meta.rpc.base_messages import Encoded
from tussock.meta.rpc.methods import Role
from tussock.meta.server.context import Context
from tussock.meta.server.election import LeaderLease
from tussock.meta.server.feed import Feed
from tussock.meta.server.leadership import Leadership
from tussock.meta.server.mailbox import Mailbox
from tussock.meta.server.settings.node_options import NodeOptions
from tussock.meta.server.standbys import Standbys
from tussock.meta.version.version import Version
from tussock.statestore.base.logs import get_logger
from tussock.statestore.base.system import System, Task
from tussock.statestore.buckets.request_counter import RequestCounts
from tussock.statestore.errors import CorruptLog, Fenced, InvalidOption, NewerFormat, NotLeader, TussockError
from tussock.statestore.shown import show_value

__all__ = ["MetaNode"]

log = get_logger("tussock.meta")


class MetaNode:
    """A replica. Calls may come from any thread."""

    def __init__(
        self,
        requests: RequestCounts,
        system: System,
        options: NodeOptions,
        credentials: Callable[[Role, Sequence[str]], pb.GetCredentialsResponse] | None = None,
        dismissal: Callable[[str], str] = lambda _: "",
    ) -> None:
        """Reads the version log.

        `requests` counts what each part asks of the bucket, which stays the caller's, and opens those of stores that
        this one was cloned from.
        """
        self.options = options
        self.requests = requests
        self._system = system
        self.meta = MetaStore(
            requests.for_purpose("meta"),
            system,
            retention_seconds=options.retention_seconds,
            gc_grace_seconds=options.gc_grace_seconds,
            pin_lease_seconds=options.pin_lease_seconds,
            config=options.picker,
            linger_seconds=options.linger_seconds,
            open_source=requests.opener("meta"),
        )
        self.meta.log.clock.max_ahead_ms = options.max_clock_ahead_seconds * 1000
        self._lease = LeaderLease(
            requests.for_purpose("lease"),
            system,
            self.meta.log,
            address=options.address,
            lease_seconds=options.leader_lease_seconds,
        )
        self.standbys = Standbys(requests.for_purpose("lease"), system, address=options.address)
        """The replicas that follow, while this one leads; and the mark of this one, while it follows."""
        self._feed = Feed(self.meta.version())
        self._changed = system.condition()
        self._nudged = False
        self._stopping = False
        self._successor = ""
        """The address of the replica that is to lead in this one's place, until that is done."""
        self._tasks: dict[str, Task] = {}
        self.status: Callable[[], object] = dict
        """Tells how this replica is, as JSON can say it; set by its observer (`report.py`)."""
        self._telling = system.lock()
        self._told_at, self._told = float("-inf"), b""
        """When the last status was begun, by the monotonic clock, and its bytes."""
        self.outdated = ""
        """What a newer release wrote into the log, which this one cannot read; empty while there is nothing."""
        self.damaged = ""
        """What of the log cannot be read since it is damaged or foreign; empty while all of it can."""
        self.leadership: Leadership | None = None
        """While this replica leads."""
        self._context = Context(
            meta=self.meta,
            bucket=requests.for_purpose("verify"),
            system=system,
            options=options,
            nudge=self._nudge,
            credentials=credentials,
            dismissal=dismissal,
        )
        self.meta.log.subscribe(self._learn)

    def start(self) -> None:
        """Begin to follow the log and to stand for leader."""
        for name, work in (
            ("lease", self._keep_lease),
            ("tail", self._follow_log),
            ("tick", self._keep_ticking),
            ("upkeep", self._keep_up),
        ):
            self._tasks[name] = self._system.spawn(f"tussock-{name}", work)

    def call(self, method: str, request: Message, caller: Caller) -> Message | Encoded:
        """Answer one unary call. The adapter has checked the caller's role.

        Raises `NotLeader` with the leader's address in a replica that follows, or whatever the call itself raises.
        """
        if method == "GetVersion":
            assert isinstance(request, pb.GetVersionRequest)
            return self._get_version(request)
        if method == "GetStatus":
            return pb.GetStatusResponse(status=self._status_bytes())
        if method == "HandOver":
            assert isinstance(request, pb.HandOverRequest)
            return self._begin_to_hand_over(request.address)
        leadership = self._leading()
        try:
            return leadership.call(method, request, caller)
        except Fenced:
            # By its own log the replica may have learnt just now that another one leads.
            if self.meta.version().term > leadership.term:
                self._lose("another replica leads")
                raise self._not_leader() from None
            raise

    def answer_bytes(self, request: Message) -> int:
        """About how many bytes the answer to a call will have, where those may be many; else 0."""
        return self._feed.bytes_after(request.after_seq) if isinstance(request, pb.GetVersionRequest) else 0

    def subscribe(self, request: pb.SubscribeRequest, caller: Caller) -> Mailbox:
        """The events of a session, from now on and what it missed; see `Leadership.subscribe`."""
        return self._leading().subscribe(request, caller)

    @property
    def is_leader(self) -> bool:
        """Whether this replica leads and its lease holds."""
        return self.leadership is not None and self._lease.is_held()

    @property
    def leader_address(self) -> str:
        """Where the leader is, as far as this replica knows; empty if there is none."""
        return self._lease.leader_address

    @property
    def is_draining(self) -> bool:
        """Whether it is on its way out."""
        return self._stopping

    def defect(self) -> str:
        """What only a restart of the process can cure; empty if there is nothing of that kind."""
        ended = sorted(name for name, task in self._tasks.copy().items() if not task.is_alive())
        if self._stopping or not ended:
            return ""
        return f"threads of the replica have ended: {', '.join(ended)}; the log tells why"

    def stalls(self, version: Version) -> dict[int, str]:
        """Per table id whose writers are held back, why."""
        found = {table: self.meta.write_stall(table) for table in version.tables}
        return {table: stall.reason for table, stall in found.items() if stall is not None}

    def drain(self) -> None:
        """Hand leadership over: let subscribers go elsewhere and give the lease back; calls are refused from now on."""
        self._stop()
        self._lose("the replica is shutting down")
        self._lease.resign()
        self.standbys.withdraw()

    def close(self) -> None:
        """Stop all work; without `drain` before it, others take over when the lease runs out."""
        self._stop()
        self._lose("the replica stopped")

    def _leading(self) -> Leadership:
        leadership = self.leadership
        if leadership is None or not self._lease.is_held():
            raise self._not_leader()
        return leadership

    def _not_leader(self) -> NotLeader:
        address = "" if self.is_leader else self._lease.leader_address
        return NotLeader(
            f"the replica at {self.options.address} does not lead; "
            f"{f'the leader is at {address}' if address else 'no leader is known at the moment, try again shortly'}",
            address,
        )

    def _status_bytes(self) -> bytes:
        """The status; one made while others were waiting for theirs does for them, too."""
        asked = self._system.monotonic()
        with self._telling:
            if self._told_at <= asked:
                self._told_at = self._system.monotonic()
                self._told = msgspec.json.encode(self.status())
            return self._told

    def _get_version(self, request: pb.GetVersionRequest) -> Encoded:
        # The log's tail is read, not the memory: an embedded process may have committed, and a replica that was
        # deposed without noticing may not answer from what it knew.
        self._leading()
        self.meta.refresh()
        return self._feed.answer(request.after_seq)

    def _begin_to_hand_over(self, successor: str) -> pb.HandOverResponse:
        """Let another replica lead, or nothing if this one is meant; `InvalidOption` if no such one follows.

        Only a replica that follows can take over at once; with another one there would be no leader for a lease.
        """
        term = self._leading().term
        if successor != self.options.address:
            following = [standby.address for standby in self.standbys.known]
            if successor not in following:
                known = f"those that do: {', '.join(following)}" if following else "none does"
                raise InvalidOption(
                    f"leadership was not handed to {show_value(successor)}, since no replica of that address has "
                    f"followed the log within the last minute; {known}. One that has just started is known within "
                    "20 seconds"
                )
            with self._changed:
                self._successor = successor
                self._changed.notify_all()
        return pb.HandOverResponse(term=term)

    def _hand_over(self) -> None:
        successor, self._successor = self._successor, ""
        if self.is_leader:
            self._lose(f"leadership is handed to {successor}")
            self._lease.hand_over(successor)

    def _learn(self, entry: bytes | None, version: Version) -> None:
        leadership = self.leadership
        if leadership is None:
            self._feed.learn(entry, version)
        else:
            leadership.learn(entry, version)

    def _keep_lease(self) -> None:
        warnings = RepeatedWarnings(log, self._system)
        while not self._stopping:
            if self._successor:
                self._hand_over()
            try:
                won = self._lease.step()
            except TussockError as error:
                warnings.warn("the lease could not be looked after", error)
                won = self._lease.is_held()
            if won and self.leadership is None:
                self._win(self._lease.term)
            elif not won and self.leadership is not None:
                self._lose("the lease was lost")
            with self._changed:
                self._changed.wait_for(lambda: self._stopping or self._successor != "", self._lease.pause_seconds)

    def _win(self, term: int) -> None:
        log.info("leading", term=term, address=self.options.address)
        self.leadership = Leadership(self._context, self._feed, term)
        self._nudge()

    def _lose(self, reason: str) -> None:
        leadership, self.leadership = self.leadership, None
        if leadership is not None:
            log.warning("no longer leading", term=leadership.term, reason=reason)
            leadership.close(reason)

    def _follow_log(self) -> None:
        warnings = RepeatedWarnings(log, self._system)
        while not self._stopping:
            try:
                self.meta.refresh()
                self.damaged = ""
                if self.leader_address:
                    self.standbys.step(leads=self.is_leader)
            except NewerFormat as error:
                self._fall_behind(error)
            except TussockError as error:
                if isinstance(error, CorruptLog):
                    self.damaged = str(error)
                warnings.warn("the log could not be read", error)
            self._pause(self.options.log_poll_seconds)

    def _fall_behind(self, error: NewerFormat) -> None:
        """A newer release works on the store: this replica can follow no more, and must not stand for leader."""
        if not self.outdated:
            log.error("this replica is of an older release than who writes the log; upgrade it", error=str(error))
        self.outdated = str(error)
        self._lose("the log is written by a newer release")
        try:
            self._lease.resign()
        except TussockError as lost:
            log.warning("leadership could not be given back", error=str(lost))

    def _keep_ticking(self) -> None:
        warnings = RepeatedWarnings(log, self._system)
        while not self._stopping:
            leadership = self.leadership
            if leadership is not None and self._lease.is_held():
                try:
                    leadership.tick()
                except TussockError as error:
                    warnings.warn("a round of the leader failed, the next one tries again", error)
            with self._changed:
                self._changed.wait_for(lambda: self._nudged or self._stopping, self.options.tick_seconds)
                self._nudged = False

    def _keep_up(self) -> None:
        while not self._stopping:
            leadership = self.leadership
            if leadership is not None and self._lease.is_held():
                leadership.upkeep.run()
            self._pause(1.0)

    def _pause(self, seconds: float) -> None:
        with self._changed:
            self._changed.wait_for(lambda: self._stopping, seconds)

    def _nudge(self) -> None:
        with self._changed:
            self._nudged = True
            self._changed.notify_all()

    def _stop(self) -> None:
        with self._changed:
            self._stopping = True
            self._changed.notify_all()
        for task in self._tasks.values():
            task.join(5.0)
        self._tasks.clear()
