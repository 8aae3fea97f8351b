"""`tussock status`: how a platform or an application is, in a terminal; the same status as on its page.

It needs the extra `platform`, so what asks the service is imported when it is asked for.
"""

import os
import sys
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

import msgspec
import typer

from tussock.cli.commands.application import application_parts, client_of
from tussock.cli.options import AnyApplication, Json, OrMeta, TlsCa, TlsCert, TlsKey, TlsServerName
from tussock.cli.output import bytes_text, emit_lines, epoch_text, grid, note, number, plural, show
from tussock.statestore.base.identity import Access, access_from
from tussock.statestore.base.system import RealSystem
from tussock.statestore.errors import AccessDenied, MetaUnavailable, TussockError, Unauthenticated

if TYPE_CHECKING:
    from tussock.meta.server.status.document import ServiceStatus, TableStatus

__all__ = ["status"]

ANSWER_SECONDS_MAX = 5.0
RATE_SECONDS = 10


def status(
    address: AnyApplication = None,
    meta: OrMeta = None,
    as_json: Json = False,
    tls_ca: TlsCa = None,
    tls_cert: TlsCert = None,
    tls_key: TlsKey = None,
    tls_server_name: TlsServerName = None,
) -> None:
    """Show how an application is; or, with --meta, a platform: what is wrong, tables, compaction, nodes, checkpoints.

    Of a platform the leader is asked, or a replica that follows if there is none. A token comes in TUSSOCK_TOKEN or in
    the file that TUSSOCK_TOKEN_FILE names. With --json one document, as docs/console.md lists it, or docs/service.md
    for an application. Exit code 1 if nobody answers.
    """
    if address is not None:
        with client_of(address, tls_ca, tls_cert, tls_key, tls_server_name, ANSWER_SECONDS_MAX) as client:
            found = client.status()
        if as_json:
            emit_lines([found])
        else:
            show(*application_parts(found))
        return
    if meta is None:
        raise typer.BadParameter("give the HOST:PORT of an application; or --meta for a platform")
    from tussock.meta.client.addresses import addresses_in

    access = access_from(os.environ, tls_ca=tls_ca, tls_cert=tls_cert, tls_key=tls_key, tls_server_name=tls_server_name)
    document, silent = _ask(addresses_in(meta), access)
    if as_json:
        sys.stdout.write(document.decode() + "\n")
    else:
        from tussock.meta.server.status.document import ServiceStatus

        show(*_parts(msgspec.json.decode(document, type=ServiceStatus)))
    for error in silent:
        note(f"no answer from {error}")


def _ask(addresses: Sequence[str], access: Access) -> tuple[bytes, list[str]]:
    """The leader's status as JSON, else a follower's; and what went wrong with those that did not answer."""
    from tussock.meta.client.access import dial_with
    from tussock.meta.rpc import meta_pb2 as pb
    from tussock.meta.rpc.methods import METHODS

    dial = dial_with(access, RealSystem())
    answered, silent, refused = b"", [], None
    waiting, asked = list(addresses), set(addresses)
    while waiting:
        address = waiting.pop(0)
        transport = dial(address)
        try:
            answer = transport.call(METHODS["GetStatus"], pb.GetStatusRequest(), ANSWER_SECONDS_MAX)
        except TussockError as error:
            silent.append(f"{address}: {error}")
            if isinstance(error, Unauthenticated | AccessDenied):
                refused = error
            continue
        finally:
            transport.close()
        assert isinstance(answer, pb.GetStatusResponse)
        answered = answered or answer.status
        replica = msgspec.json.decode(answer.status)["replica"]
        if replica["role"] == "leader":
            return answer.status, silent
        if replica["leader"] and replica["leader"] not in asked:
            asked.add(replica["leader"])
            waiting.insert(0, replica["leader"])
    if not answered and refused is not None:
        raise refused
    if not answered:
        raise MetaUnavailable(f"no replica of the meta service answered: {'; '.join(silent)}")
    return answered, silent


def _parts(status: "ServiceStatus") -> Iterator[Any]:
    for problem in status.problems:
        yield f"{problem.severity}: {problem.text}"
    yield grid("status", "", rows=_facts(status))
    if status.tables:
        columns: tuple[str, ...] = ("table", "level", "runs", "SSTs", "row versions", "size", "full", "")
        yield grid(*columns, right=columns[2:7], rows=[row for table in status.tables for row in _table_rows(table)])
    if status.compaction.tasks:
        columns = ("compaction task", "kind", "merges", "input", "rows read", "compactor", "for")
        yield grid(*columns, right=("input", "rows read"), rows=_task_rows(status))
    if status.sessions:
        columns = ("node", "role", "tasks", "slots", "pins", "heard")
        yield grid(*columns, right=("tasks", "slots", "pins"), rows=_session_rows(status))
    if status.checkpoints:
        columns = ("job", "state", "participants", "barrier", "under way", "checkpoint")
        yield grid(*columns, right=("barrier",), rows=_job_rows(status))


def _facts(status: "ServiceStatus") -> Iterator[tuple[str, str]]:
    replica, version, compaction = status.replica, status.version, status.compaction
    yield "store", status.store_url
    yield "leader", f"{replica.leader or 'none'}, term {replica.term}"
    if replica.role != "leader":
        yield "asked", f"{replica.address}, which follows, {_span(version.synced_age_ms)} behind at most"
    else:
        followers = [one for one in status.replicas if one.role == "follower"]
        yield "followers", ", ".join(f"{one.address} ({_span(one.seen_age_ms)} ago)" for one in followers) or "none"
    yield "log sequence", number(version.seq)
    committed = f"{epoch_text(version.max_committed_epoch)}, {_span(status.now_ms - version.committed_ms)} ago"
    yield "committed epoch", committed if version.max_committed_epoch else "none yet"
    epochs, commits, size = (
        sum(series[-RATE_SECONDS:]) / RATE_SECONDS
        for series in (status.rates.epochs, status.rates.commits, status.rates.bytes)
    )
    yield "rates", f"{epochs:,.1f} epochs/s in {commits:,.1f} commits/s, {bytes_text(int(size))}/s"
    yield "size", f"{bytes_text(sum(table.bytes for table in status.tables))} in {plural(len(status.tables), 'table')}"
    slots = f"{len(compaction.tasks)} tasks, {plural(compaction.slots, 'slot')}"
    yield "compaction", f"paused ({compaction.reason}), {slots}" if compaction.paused else slots
    yield "pins", number(len(status.pins))
    yield "backups", number(len(status.backups))


def _table_rows(table: "TableStatus") -> Iterator[tuple[str, ...]]:
    stall = f"stalled: {table.stall}" if table.stall else ""
    for at, level in enumerate(table.levels):
        full = f"{100 * level.bytes / level.bytes_max:.0f} %" if level.bytes_max else ""
        if level.level == 0:
            full = f"{100 * level.runs / table.l0_stall_runs:.0f} %"
        counts = (number(level.runs), number(level.ssts), number(level.rows), bytes_text(level.bytes), full)
        yield (table.name if at == 0 else "", f"L{level.level}", *counts, stall if at == 0 else "")
    if not table.levels:
        yield (table.name, "empty", "", "0", "0", "0 B", "", stall)


def _task_rows(status: "ServiceStatus") -> Iterator[tuple[str, ...]]:
    for task in status.compaction.tasks:
        share = f"{100 * task.rows_read / task.rows:.0f} %" if task.rows else ""
        merges = f"{plural(task.runs, 'run')} to L{task.target_level}"
        age = _span(status.now_ms - task.claimed_ms)
        yield task.table, task.kind, merges, bytes_text(task.bytes), share, task.owner, age


def _session_rows(status: "ServiceStatus") -> Iterator[tuple[str, ...]]:
    for session in status.sessions:
        slots = number(session.slots) if session.slots else ""
        heard = f"{_span(session.heartbeat_age_ms)} ago"
        yield session.name or session.id, session.kind, number(session.tasks), slots, number(session.pins), heard


def _job_rows(status: "ServiceStatus") -> Iterator[tuple[str, ...]]:
    for job in status.checkpoints:
        connected = sum(worker.connected for worker in job.participants)
        under_way = _span(job.barrier_age_ms) if job.barrier_age_ms else ""
        committed = epoch_text(job.committed_epoch) if job.committed_epoch else "none yet"
        yield job.job, job.state, f"{connected} of {job.expected}", number(job.barrier), under_way, committed


def _span(ms: int) -> str:
    """Milliseconds for people: `0.4 s`, `3 min`, `5 h`."""
    seconds = max(ms, 0) / 1000
    if seconds < 100:
        return f"{seconds:.1f} s"
    return f"{seconds / 60:.0f} min" if seconds < 6000 else f"{seconds / 3600:.0f} h"
