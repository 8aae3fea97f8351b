"""What is wrong, found in a status: the console, the command and alerts say the same.

Each rule is a few lines over the facts of the status, and its text names the object and what to do. Pure.
"""

from collections.abc import Callable, Iterator

from msgspec.structs import replace

from tussock.meta.server.status.document import Problem, ServiceStatus

__all__ = ["STALE_MS", "with_problems"]

STALE_MS = 5_000
"""A replica that has not seen the log's tail for this many seconds is behind: a leader changes within that time."""
SILENT_MIN_MS = 3_000
"""Heartbeats that are late by less are the network's."""
BARRIER_INTERVALS_MAX = 5
"""A barrier under way for this many of its intervals is slow."""


def with_problems(status: ServiceStatus) -> ServiceStatus:
    """The status with its problems in it, errors first."""
    found = [problem for rule in _RULES for problem in rule(status)]
    return replace(status, problems=tuple(sorted(found, key=lambda problem: problem.severity)))


def _error(kind: str, text: str) -> Problem:
    return Problem(severity="error", kind=kind, text=text)


def _warning(kind: str, text: str) -> Problem:
    return Problem(severity="warning", kind=kind, text=text)


def _leaderless(status: ServiceStatus) -> Iterator[Problem]:
    if not status.replica.leader:
        yield _error(
            "no-leader",
            f"No replica leads the store (last term: {status.replica.term}): nothing can be committed, and clients "
            "wait. If this lasts, look at the replicas' logs and at the bucket.",
        )


def _behind(status: ServiceStatus) -> Iterator[Problem]:
    age_ms = status.version.synced_age_ms
    if age_ms > STALE_MS:
        yield _error(
            "behind",
            f"Replica {status.replica.address} has not read the log to its tail for {_seconds(age_ms)}: what is shown "
            "here is as old. Look at its log and at the bucket.",
        )


def _outdated(status: ServiceStatus) -> Iterator[Problem]:
    if status.replica.outdated:
        yield _error(
            "outdated",
            f"Replica {status.replica.address} is of an older release than who writes the log, and neither follows nor "
            f"leads: {status.replica.outdated}. Upgrade it.",
        )


def _damaged(status: ServiceStatus) -> Iterator[Problem]:
    if status.replica.damaged:
        yield _error(
            "log-damaged",
            f"The log cannot be read on, and so nothing can be committed: {status.replica.damaged}. If something else "
            "wrote the object, remove it; if it is an entry, put an intact copy back. `tussock check` tells which, and "
            "what else is damaged.",
        )


def _clients_file(status: ServiceStatus) -> Iterator[Problem]:
    if status.replica.clients_problem:
        yield _error(
            "clients-file",
            f"Replica {status.replica.address} cannot use its clients file as it is now, so the clients that it "
            f"declared before are let in, and no others: {status.replica.clients_problem}. Mend the file; it is read "
            "again by itself.",
        )


def _draining(status: ServiceStatus) -> Iterator[Problem]:
    if status.replica.draining:
        yield _warning("draining", f"Replica {status.replica.address} is shutting down.")


def _stalled(status: ServiceStatus) -> Iterator[Problem]:
    for table in status.tables:
        if table.stall:
            yield _error("stalled", f"Writers of table {table.name} wait: {table.stall}")


def _no_compactor(status: ServiceStatus) -> Iterator[Problem]:
    leads = status.replica.role == "leader"
    if leads and status.tables and not status.compaction.compactors and not status.compaction.tasks:
        yield _warning(
            "no-compactor",
            "No compactor is connected: reads get slower with every commit, and writers will have to wait. Start one "
            "with `tussock compactor`.",
        )


def _paused(status: ServiceStatus) -> Iterator[Problem]:
    if status.compaction.paused:
        why = status.compaction.reason or "no reason was given"
        yield _warning("paused", f"Compaction is paused: {why}.")


def _silent(status: ServiceStatus) -> Iterator[Problem]:
    for session in status.sessions:
        if session.heartbeat_age_ms > max(session.lease_ms // 2, SILENT_MIN_MS):
            left = max(session.lease_ms - session.heartbeat_age_ms, 0)
            yield _warning(
                "silent",
                f"{session.kind.capitalize()} {session.name} was last heard {_seconds(session.heartbeat_age_ms)} ago: "
                f"its pins and tasks are taken back in {_seconds(left)}.",
            )


def _waiting_jobs(status: ServiceStatus) -> Iterator[Problem]:
    for job in status.checkpoints:
        connected = sum(worker.connected for worker in job.participants)
        if connected < job.expected:
            because = f" ({job.reason})" if job.reason else ""
            yield _warning(
                "job-waits", f"Job {job.job} has {connected} of {job.expected} participants connected{because}."
            )
        if job.interval_ms and job.barrier_age_ms > BARRIER_INTERVALS_MAX * job.interval_ms:
            missing = ", ".join(worker.name for worker in job.participants if not worker.collected) or "the commit"
            yield _warning(
                "barrier-slow",
                f"Barrier {job.barrier} of job {job.job} is under way for {_seconds(job.barrier_age_ms)}, its interval "
                f"is {_seconds(job.interval_ms)}; waiting for {missing}.",
            )


def _vacuum_failed(status: ServiceStatus) -> Iterator[Problem]:
    vacuum = status.upkeep.vacuum
    if vacuum is not None and vacuum.error:
        yield _warning("vacuum-failed", f"The last vacuum failed: {vacuum.error}")


def _seconds(ms: int) -> str:
    return f"{ms / 1000:.1f} s"


_RULES: tuple[Callable[[ServiceStatus], Iterator[Problem]], ...] = (
    _leaderless,
    _behind,
    _stalled,
    _outdated,
    _damaged,
    _clients_file,
    _draining,
    _paused,
    _no_compactor,
    _silent,
    _waiting_jobs,
    _vacuum_failed,
)
