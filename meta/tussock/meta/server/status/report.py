"""Makes a replica's status out of what it is and does at this moment."""

import importlib.metadata
import threading
from collections import Counter
from collections.abc import Callable, Sequence

from tussock.meta.compaction.assignment import owner_of
from tussock.meta.log.format import decode_entry, entry_path
from tussock.meta.node.auth.clients.registry import ClientRegistry
from tussock.meta.server.handlers.compaction import worker_name
from tussock.meta.server.leadership import Leadership
from tussock.meta.server.node import MetaNode
from tussock.meta.server.sessions import Session
from tussock.meta.server.standbys import Standby
from tussock.meta.server.status.document import (
    LISTED_MAX,
    BackupStatus,
    CompactionStatus,
    PeerStatus,
    ReplicaStatus,
    ServiceStatus,
    SessionStatus,
    UpkeepStatus,
    shorten,
)
from tussock.meta.server.status.listed_pins import ListedPins
from tussock.meta.server.status.problems import with_problems
from tussock.meta.server.status.rates import Rates
from tussock.meta.server.status.version_parts import (
    LevelSums,
    loss_statuses,
    pin_statuses,
    short_id,
    table_statuses,
    version_status,
)
from tussock.meta.version.deltas.delta import Delta
from tussock.meta.version.version import Version
from tussock.statestore.base.system import System

__all__ = ["StatusReport"]

READY_POLLS = 10
"""A follower that has not read the log for this many of its polls is not ready."""


class StatusReport:
    """Watches a node, and tells how it is. Safe to share between threads."""

    def __init__(
        self,
        node: MetaNode,
        system: System,
        count: Callable[[Sequence[Delta]], None] = lambda _: None,
        clients: ClientRegistry | None = None,
    ) -> None:
        """`count` is told the deltas of each entry as well; `clients` are the declared ones."""
        self._node = node
        self._clients = clients
        self._system = system
        self._started_ms = system.now_ms()
        self._software = f"tussock {importlib.metadata.version('tussock')}"
        self._lock = threading.Lock()
        self._rates = Rates()
        self._count = count
        self._sums = LevelSums()
        self._pins = ListedPins(lambda: node.meta.live_pins(LISTED_MAX), system)
        node.meta.log.subscribe(self._learn)

    def status(self) -> ServiceStatus:
        """The status as it is shown: of what there is much, the first."""
        return shorten(self.whole())

    def whole(self) -> ServiceStatus:
        """The status now; in a leader, one listing of the pins is asked of the bucket, and waited for a moment."""
        node, leadership = self._node, self._node.leadership if self._node.is_leader else None
        version, now, now_ms = node.meta.version(), self._system.monotonic(), self._system.now_ms()
        synced_age = now - node.meta.synced_at
        replica = self._replica(leadership, now)
        with self._lock:
            rates = self._rates.status(now, now_ms)
            tables = table_statuses(version, node.options.picker, node.stalls(version), self._sums)
        status = ServiceStatus(
            now_ms=now_ms,
            software=self._software,
            store_url=node.options.store_url,
            replica=replica,
            replicas=_replicas(replica, node.standbys.known if leadership else (), now),
            version=version_status(version, int(synced_age * 1000)),
            tables=tables,
            rates=rates,
            sessions=self._sessions(leadership, version, now),
            compaction=leadership.scheduler.status(version) if leadership else CompactionStatus(),
            pins=pin_statuses(self._pins.live()) if leadership else (),
            checkpoints=leadership.checkpoints.status() if leadership else (),
            upkeep=leadership.upkeep.status() if leadership else UpkeepStatus(),
            backups=_backups(version),
            losses=loss_statuses(version),
        )
        return with_problems(status)

    def replica(self) -> ReplicaStatus:
        """The replica alone, for its probes: it asks nothing of the bucket, and waits for nothing."""
        return self._replica(self._node.leadership if self._node.is_leader else None, self._system.monotonic())

    def _replica(self, leadership: Leadership | None, now: float) -> ReplicaStatus:
        node, options = self._node, self._node.options
        is_behind = now - node.meta.synced_at >= READY_POLLS * max(options.log_poll_seconds, 0.5)
        return ReplicaStatus(
            address=options.address,
            role="leader" if leadership else "follower",
            term=leadership.term if leadership else node.meta.version().term,
            leader=options.address if leadership else node.leader_address,
            started_ms=self._started_ms,
            ready=not (node.outdated or node.damaged) and (leadership is not None or not is_behind),
            draining=node.is_draining,
            outdated=node.outdated,
            damaged=node.damaged,
            clients_problem=self._clients.problem if self._clients else "",
        )

    def _learn(self, entry: bytes | None, version: Version) -> None:
        if entry is not None:
            deltas = decode_entry(entry_path(version.seq), version.seq, entry).deltas
            with self._lock:
                self._rates.count(deltas, self._system.monotonic())
            self._count(deltas)

    def _sessions(self, leadership: Leadership | None, version: Version, now: float) -> tuple[SessionStatus, ...]:
        if leadership is None:
            return ()
        owned = Counter(task.owner for task in version.tasks.values())
        return tuple(
            self._session(session, owned[owner_of(worker_name(session))], now) for session in leadership.sessions.all()
        )

    def _session(self, session: Session, tasks: int, now: float) -> SessionStatus:
        lease = self._node.options.session_lease_seconds
        return SessionStatus(
            id=short_id(session.id),
            kind="compactor" if session.is_compactor else "client",
            name=session.name,
            software=session.software,
            slots=session.slots,
            tasks=tasks,
            pins=len(session.pins),
            heartbeat_age_ms=int(max(now - (session.deadline - lease), 0) * 1000),
            lease_ms=int(lease * 1000),
        )


def _replicas(replica: ReplicaStatus, standbys: Sequence[Standby], now: float) -> tuple[PeerStatus, ...]:
    """The replicas that this one knows of: itself, the leader, and those that follow it."""
    known = [PeerStatus(address=replica.address, role=replica.role)]
    if replica.leader and replica.leader != replica.address:
        known.append(PeerStatus(address=replica.leader, role="leader"))
    for standby in standbys:
        age_ms = int(max(now - standby.heard, 0) * 1000)
        known.append(PeerStatus(address=standby.address, role="follower", seen_age_ms=age_ms))
    return tuple(known)


def _backups(version: Version) -> tuple[BackupStatus, ...]:
    """The finished ones, and what clones hold, by name."""
    return tuple(
        BackupStatus(
            name=backup.name,
            created_ms=backup.created_ms,
            epoch=backup.epoch,
            ssts=backup.ssts,
            bytes=backup.bytes,
            comment=backup.comment or (f"held by the clone {backup.holder}" if backup.holder else ""),
        )
        for _, backup in sorted(version.backups.items())
        if not backup.expires_ms
    )
