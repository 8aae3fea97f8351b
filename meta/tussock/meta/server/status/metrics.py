"""Metrics that are made when somebody asks, out of the replica's status and its counts of requests to the bucket.

What only a leader knows (sessions, pins, checkpoints) is 0 in a follower, so a sum over replicas is right. Labels are
bounded: of the tables only the largest have their own lines, the others share one.
"""

from collections.abc import Callable, Iterable, Mapping
from typing import NamedTuple

from prometheus_client import Metric
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, InfoMetricFamily
from prometheus_client.registry import Collector

from tussock.meta.server.status.document import ServiceStatus, TableStatus

__all__ = ["OTHER_TABLES", "StatusCollector"]

TABLES_MAX = 200
OTHER_TABLES = "(other)"
"""The label of all tables beyond the largest."""

Counts = Mapping[str, Mapping[str, tuple[int, int]]]


class StatusCollector(Collector):
    """Makes the metrics of a status."""

    def __init__(self, status: Callable[[], ServiceStatus], requests: Callable[[], Counts]) -> None:
        self._status = status
        self._requests = requests

    def describe(self) -> Iterable[Metric]:
        """Nothing: a registry would otherwise ask for a status as soon as it learns of this."""
        return ()

    def collect(self) -> Iterable[Metric]:
        """The metrics at this moment."""
        status = self._status()
        yield from _replica(status)
        yield from _version(status)
        yield from _tables(status.tables)
        yield from _compaction(status)
        yield from _holders(status)
        yield from _upkeep(status)
        yield from _bucket(self._requests())


def _gauge(name: str, help_text: str, value: float) -> Metric:
    return GaugeMetricFamily(f"tussock_meta_{name}", help_text, value=value)


def _gauge_family(name: str, help_text: str, label: str, values: Mapping[str, float]) -> Metric:
    family = GaugeMetricFamily(f"tussock_meta_{name}", help_text, labels=[label])
    for key, value in values.items():
        family.add_metric([key], value)
    return family


def _replica(status: ServiceStatus) -> Iterable[Metric]:
    replica = status.replica
    software = {"version": status.software.rpartition(" ")[2], "address": replica.address}
    yield InfoMetricFamily("tussock_meta", "The replica.", value=software)
    yield _gauge("leader", "1 while this replica leads.", replica.role == "leader")
    yield _gauge("ready", "1 while this replica leads or keeps up with the log.", replica.ready)
    yield _gauge("term", "Newest term that this replica knows.", replica.term)
    kinds = {"error": 0.0, "warning": 0.0}
    for problem in status.problems:
        kinds[problem.severity] += 1
    yield _gauge_family("problems", "Problems that the console shows.", "severity", kinds)


def _version(status: ServiceStatus) -> Iterable[Metric]:
    version = status.version
    yield _gauge("version_seq", "Sequence of the newest log entry that was applied.", version.seq)
    yield _gauge(
        "version_age_seconds", "Time since the log was last known to have no newer entry.", version.synced_age_ms / 1000
    )
    yield _gauge(
        "committed_timestamp_seconds", "When the newest epoch was committed; 0 for none.", version.committed_ms / 1000
    )
    yield _gauge(
        "safe_epoch_timestamp_seconds",
        "Time in the epoch below which compaction may have dropped versions; 0 for none.",
        (version.safe_epoch >> 16) / 1000,
    )
    yield _gauge("dropped_ssts", "SSTs that left the tree and wait for vacuum.", version.dropped_ssts)
    yield _gauge("writers", "Writers in the ledger.", version.writers)
    kept = sum(loss.kept for loss in status.losses)
    yield _gauge("quarantined_ssts", "Damaged SSTs that were put aside and are kept.", kept)
    yield _gauge(
        "lost_rows", "Rows of damaged SSTs that were accepted as lost.", sum(one.rows for one in status.losses)
    )


class _Line(NamedTuple):
    """The figures of one table, or of all that share a line."""

    ssts: int = 0
    rows: int = 0
    deletes: int = 0
    bytes: int = 0
    l0_runs: int = 0
    stalled: int = 0


def _tables(tables: Iterable[TableStatus]) -> Iterable[Metric]:
    largest = sorted(tables, key=lambda table: (-table.bytes, table.name))
    lines: dict[str, _Line] = {}
    for rank, table in enumerate(largest):
        name = table.name if rank < TABLES_MAX else OTHER_TABLES
        figures = (table.ssts, table.rows, table.deletes, table.bytes, table.l0_runs, int(bool(table.stall)))
        lines[name] = _Line(*map(sum, zip(lines.get(name, _Line()), figures, strict=True)))
    yield _gauge("tables", "Tables.", len(largest))
    for field, help_text in (
        ("ssts", "SSTs of a table."),
        ("rows", "Row versions of a table, deletes included."),
        ("deletes", "Deletes among a table's row versions."),
        ("bytes", "Bytes of a table's SSTs."),
        ("l0_runs", "Sorted runs in a table's L0."),
        ("stalled", "1 while writers of a table have to wait for compaction."),
    ):
        values = {name: float(getattr(line, field)) for name, line in lines.items()}
        yield _gauge_family(f"table_{field}", help_text, "table", values)


def _compaction(status: ServiceStatus) -> Iterable[Metric]:
    compaction = status.compaction
    kinds: dict[str, float] = {}
    for task in compaction.tasks:
        kinds[task.kind] = kinds.get(task.kind, 0) + 1
    yield _gauge_family("compaction_tasks", "Compaction tasks that are claimed.", "kind", kinds)
    yield _gauge(
        "compaction_tasks_bytes", "Input of the claimed compaction tasks.", sum(one.bytes for one in compaction.tasks)
    )
    yield _gauge(
        "compaction_backlog_tasks",
        "Compaction tasks that would begin now if slots were free; 0 in followers.",
        compaction.backlog_tasks,
    )
    yield _gauge(
        "compaction_backlog_bytes", "Input of all compactions that wait; 0 in followers.", compaction.backlog_bytes
    )
    yield _gauge("compaction_slots", "Tasks that all connected compactors can run at once.", compaction.slots)
    yield _gauge("compaction_paused", "1 while no compaction is handed out.", compaction.paused)


def _holders(status: ServiceStatus) -> Iterable[Metric]:
    kinds = {"client": 0.0, "compactor": 0.0}
    for session in status.sessions:
        kinds[session.kind] += 1
    yield _gauge_family("sessions", "Open sessions.", "kind", kinds)
    yield _gauge("pins", "Pins.", len(status.pins))
    oldest = min((pin.created_ms for pin in status.pins), default=0)
    yield _gauge("oldest_pin_timestamp_seconds", "When the oldest pin was made; 0 for none.", oldest / 1000)
    states: dict[str, float] = {}
    for job in status.checkpoints:
        states[job.state] = states.get(job.state, 0) + 1
    yield _gauge_family("checkpoint_jobs", "Jobs whose participants commit together.", "state", states)
    ages = [job.barrier_age_ms for job in status.checkpoints]
    yield _gauge("checkpoint_barrier_age_seconds", "Age of the oldest barrier under way.", max(ages, default=0) / 1000)


def _upkeep(status: ServiceStatus) -> Iterable[Metric]:
    vacuum = status.upkeep.vacuum
    yield _gauge(
        "vacuum_timestamp_seconds",
        "When the last vacuum on schedule ended; 0 for none.",
        vacuum.finished_ms / 1000 if vacuum else 0,
    )
    yield _gauge("vacuum_failed", "1 if the last vacuum on schedule failed.", bool(vacuum and vacuum.error))
    yield _gauge("vacuum_deleted_objects", "Objects that the last vacuum deleted.", vacuum.deleted if vacuum else 0)
    yield _gauge("vacuum_freed_bytes", "Bytes that the last vacuum freed.", vacuum.bytes_freed if vacuum else 0)
    yield _gauge("backups", "Backups of the store.", len(status.backups))


def _bucket(counts: Counts) -> Iterable[Metric]:
    labels = ["caller", "operation"]
    requests = CounterMetricFamily("tussock_meta_bucket_requests", "Requests to the bucket.", labels=labels)
    moved = CounterMetricFamily("tussock_meta_bucket_bytes", "Bytes sent to or received from it.", labels=labels)
    for caller, operations in sorted(counts.items()):
        for operation, (count, size) in sorted(operations.items()):
            requests.add_metric([caller, operation], count)
            moved.add_metric([caller, operation], size)
    yield requests
    yield moved
