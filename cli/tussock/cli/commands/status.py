"""`tussock status`: how a platform or an application is, in a terminal; the same status as on its page.

It needs the extra `platform`, so what asks the service is imported when it is asked for.
"""

import os
import sys
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

import msgspec
import typer

from tussock.cli.commands.application import client_of
from tussock.cli.options import AnyApplication, Json, OrMeta, TlsCa, TlsCert, TlsKey, TlsServerName
from tussock.cli.output import bytes_text, emit_lines, epoch_text, grid, iso_ms, note, number, plural, show
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
            show(*_application_parts(found))
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
    if status.losses:
        columns = ("accepted loss", "table", "rows", "epochs", "objects", "when", "by")
        yield grid(*columns, right=("rows",), whole=("accepted loss",), rows=_loss_rows(status))
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
    stored = sum(table.bytes + table.history_bytes for table in status.tables)
    yield "size", f"{bytes_text(stored)} in {plural(len(status.tables), 'table')}"
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
    if table.history_runs:
        sums = (number(table.history_runs), number(table.history_ssts), number(table.history_rows))
        yield ("" if table.levels else table.name, "history", *sums, bytes_text(table.history_bytes), "", "")
    elif not table.levels:
        yield (table.name, "empty", "", "0", "0", "0 B", "", stall)


def _task_rows(status: "ServiceStatus") -> Iterator[tuple[str, ...]]:
    for task in status.compaction.tasks:
        share = f"{100 * task.rows_read / task.rows:.0f} %" if task.rows else ""
        merges = plural(task.runs, "run") + ("" if task.kind == "history" else f" to L{task.target_level}")
        age = _span(status.now_ms - task.claimed_ms)
        yield task.table, task.kind, merges, bytes_text(task.bytes), share, task.owner, age


def _session_rows(status: "ServiceStatus") -> Iterator[tuple[str, ...]]:
    for session in status.sessions:
        slots = number(session.slots) if session.slots else ""
        heard = f"{_span(session.heartbeat_age_ms)} ago"
        yield session.name or session.id, session.kind, number(session.tasks), slots, number(session.pins), heard


def _loss_rows(status: "ServiceStatus") -> Iterator[tuple[str, ...]]:
    for loss in status.losses:
        epochs = f"{loss.min_epoch} to {loss.max_epoch}{', of history' if loss.history else ''}"
        kept = "kept" if loss.kept else "discarded"
        yield loss.sst, loss.table, number(loss.rows), epochs, kept, iso_ms(loss.at_ms), loss.by


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


def _error_of(failure: dict[str, Any]) -> str:
    """The class of an error; of what a function raised that, and where."""
    raised, at = failure.get("raised"), failure.get("at")
    if not raised:
        return str(failure["error"])
    return f"{raised} at {at}" if at else str(raised)


def _application_parts(status: dict[str, Any]) -> Iterator[Any]:
    """What `tussock status` shows of an application."""
    if status["failure"]:
        yield f"error: {status['failure']}"
    # A node of an earlier release does not tell.
    for one in status.get("trouble", ()):
        yield f"warning: {one['what']}, since {iso_ms(one['since_ms'])}: {one['error']}"
    counts = (status.get(name, 0) for name in ("records", "log_writes", "commits"))
    records, writes, commits = counts
    facts = [
        ("application", status["application"]),
        ("state", status["state"]),
        ("store", status["store"]),
        ("release", status["version"]),
        ("requests", f"{number(status['waiting'])} wait, {number(status['outstanding'])} without a reply"),
        ("clients", plural(status["conversations"], "connection")),
        ("this run", f"{plural(records, 'record')}, {plural(writes, 'log write')}, {plural(commits, 'commit')}"),
    ]
    if status["layer"] == "functions":
        yield from _function_parts(status, facts)
    elif status["layer"] == "changelog":
        yield from _flow_parts(status, facts)
    else:
        yield from _procedure_parts(status, facts)
    if failures := status["failures"]:
        failed = [(iso_ms(one["ms"]), one["kind"], _error_of(one), one["text"]) for one in failures]
        yield grid("failed", "request", "error", "", rows=failed)


def _procedure_parts(status: dict[str, Any], facts: list[tuple[str, str]]) -> Iterator[Any]:
    yield grid("status", "", rows=[*facts, ("calls", ", ".join(status.get("calls", ())) or "none")])
    if procedures := status.get("procedures"):
        rows = [
            (
                one["name"],
                number(one["last_batch"]) if one["border"] else "",
                ", ".join(one["consumes"]) or "clients or a feed",
                ", ".join(one["emits"]),
            )
            for one in procedures
        ]
        yield grid("procedure", "last batch", "consumes", "emits", right=("last batch",), rows=rows)
    if windows := status.get("windows"):
        shown = [
            (
                one["name"],
                one["stream"],
                f"{number(one['size'])} {one['of']}",
                *map(number, (one["visible"], one["staged"])),
            )
            for one in windows
        ]
        yield grid("window", "of", "size", "visible", "staged", right=("visible", "staged"), rows=shown)


def _flow_parts(status: dict[str, Any], facts: list[tuple[str, str]]) -> Iterator[Any]:
    at = status.get("paused_at")
    stands = "runs" if at is None else f"{at['stream'] or 'nothing is on its way'} {at['location']}"
    yield grid("status", "", rows=[*facts, ("stands", stands)])
    if streams := status.get("streams"):
        rows = [
            (
                one["name"],
                ", ".join(one["inputs"]) or "pushes or a feed",
                f"{one['location']}, held" if one["held"] else one["location"],
                f"{number(one['queued'])} of {number(one['queue'])}",
                *(number(round(one[name])) for name in ("rows_in_per_second", "rows_out_per_second")),
                *map(number, (one["published"], one["bad"], one["subscribers"])),
            )
            for one in streams
        ]
        figures = ("queued", "in/s", "out/s", "published", "bad", "subscribers")
        yield grid("stream", "reads", "location", *figures, right=figures, rows=rows)


def _function_parts(status: dict[str, Any], facts: list[tuple[str, str]]) -> Iterator[Any]:
    lock_free, locked, aborted, deferred = (
        number(status.get(name, 0)) for name in ("lock_free", "locked", "aborted", "deferred")
    )
    ended = f"{lock_free} without locks, {locked} with locks, {aborted} aborted; {deferred} wait for the next epoch"
    epochs = f"{number(status.get('epochs', 0))} of this run, {status.get('conflicts', '')}"
    if status.get("workers"):
        facts = [
            *facts,
            ("workers", f"{number(status['workers_joined'])} have joined, {number(status['workers'])} wanted"),
        ]
    yield grid("status", "", rows=[*facts, ("epochs", epochs), ("transactions", ended)])
    if operators := status.get("operators"):
        rows = [
            (one["name"], one["key"], number(one["partitions"]), ", ".join(one["columns"]), ", ".join(one["functions"]))
            for one in operators
        ]
        yield grid("operator", "keys", "partitions", "columns", "functions", right=("partitions",), rows=rows)
    if hot := status.get("hot"):
        lost = [(operator, _shown_key(key), number(count)) for operator, key, count in hot]
        yield grid("hot", "key", "lost", right=("lost",), rows=lost)
    if transactions := status.get("transactions"):
        newest = [
            (
                str(one["tid"]),
                one["phase"],
                f"{one['operator']}.{one['function']}",
                _shown_key(one["key"]),
                number(one["calls"]),
                one["error"],
            )
            for one in transactions
        ]
        yield grid("transaction", "phase", "function", "key", "calls", "error", right=("calls",), rows=newest)


def _shown_key(key: Any) -> str:
    """A key of an operator, bytes as `call` takes them."""
    return f"hex:{key.hex()}" if isinstance(key, bytes) else str(key)
