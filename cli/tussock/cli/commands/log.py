"""`tussock log`: what changed the store, entry by entry; each delta in a line."""

from collections.abc import Iterator
from typing import Annotated, Any, assert_never

import msgspec
import pyarrow as pa
import typer

from tussock.cli.options import Json, Store
from tussock.cli.output import bytes_text, emit_lines, epoch_text, grid, iso_ms, note, plural, seconds_text, show
from tussock.cli.places import bucket_at
from tussock.meta.log.format import LogEntry, decode_entry, sequence_of
from tussock.meta.log.log import VersionLog
from tussock.meta.log.objects import read_object
from tussock.meta.version.deltas.backups import (
    BackupChange,
    BeginBackup,
    BeginStore,
    DetachSource,
    DropBackup,
    FinishBackup,
)
from tussock.meta.version.deltas.commits import CommitEpoch, OpenWriter
from tussock.meta.version.deltas.delta import Delta
from tussock.meta.version.deltas.losses import DiscardQuarantined, QuarantineSst
from tussock.meta.version.deltas.repair import RepairClock
from tussock.meta.version.deltas.retention import (
    AdvanceHorizon,
    AdvanceSafeEpoch,
    Configure,
    ExpireHistory,
    ForgetDropped,
    ForgetWriters,
)
from tussock.meta.version.deltas.tables import AlterTable, CreateTable, DropTable, SetRetention
from tussock.meta.version.deltas.tasks import ClaimCompaction, PauseCompaction, ReleaseCompaction, ReportCompaction
from tussock.meta.version.deltas.terms import StartTerm
from tussock.meta.version.ranges import total_bytes
from tussock.statestore.base.system import RealSystem
from tussock.statestore.contract.object_store import ObjectStore
from tussock.statestore.contract.records import TableSpec
from tussock.statestore.errors import CorruptLog, ObjectNotFound

__all__ = ["describe", "log"]

ENTRIES_SHOWN = 50


def log(
    store: Store,
    limit: Annotated[
        int | None,
        typer.Option(
            "--limit", "-n", min=0, help=f"Number of entries, the last; by default {ENTRIES_SHOWN}, with --json all."
        ),
    ] = None,
    as_json: Json = False,
) -> None:
    """Show the entries of the version log, oldest first; a damaged one is shown as such.

    With --json an entry a line: {"seq", "at", "writer", "id", "term", "deltas": [...]}, or {"seq", "error"}. Entries
    that were truncated are not in the bucket any more.
    """
    most = limit if limit is not None or as_json else ENTRIES_SHOWN
    with bucket_at(store) as bucket:
        listed = [(seq, info.path) for info in bucket.list("log/") if (seq := _entry_sequence(info.path)) is not None]
        picked = listed if most is None else listed[max(len(listed) - most, 0) :]
        read = ((seq, _read(bucket, path, seq)) for seq, path in picked)
        if as_json:
            emit_lines(_document(seq, entry) for seq, entry in read)
            return
        names = _table_names(bucket)
        rows = [row for seq, entry in read for row in _rows(seq, entry, names)]
    show(grid("entry", "time", "writer", "what", right=["entry"], rows=rows))
    if len(picked) < len(listed):
        note(f"{plural(len(listed) - len(picked), 'older entry')} not shown; see --limit")


def _table_names(bucket: ObjectStore) -> dict[int, str]:
    """The tables of the newest version, by id; none if the log is too damaged to say."""
    try:
        version = VersionLog(bucket, RealSystem(), owner="tussock").refresh()
    except CorruptLog:
        return {}
    return {table_id: state.spec.name for table_id, state in version.tables.items()}


def describe(delta: Delta, names: dict[int, str] | None = None) -> str:
    """A delta in a line; `names` are the tables met so far by id, and a new table is added."""
    names = {} if names is None else names
    match delta:
        case CommitEpoch():
            return _describe_commit(delta, names)
        case CreateTable(spec=spec):
            names[spec.id] = spec.name
            key = f" with key ({', '.join(spec.primary_key)})" if spec.primary_key else ", raw"
            return f"create table {spec.name} (id {spec.id}){key}{_periods(spec)}"
        case AlterTable(table_id=table_id, schema=schema):
            columns = ", ".join(f"{field.name}: {field.type}" for field in pa.ipc.read_schema(pa.py_buffer(schema)))
            return f"alter table {_table(table_id, names)} to ({columns})"
        case SetRetention(table_id=table_id, retention_ms=retention_ms):
            wanted = "that of the store" if retention_ms is None else seconds_text(retention_ms)
            return f"set retention of table {_table(table_id, names)} to {wanted}"
        case DropTable(table_id=table_id):
            return f"drop table {_table(table_id, names)}"
        case ClaimCompaction(task=task) if delta.is_renewal:
            return f"renew {task.kind} compaction of {_table(task.table_id, names)}: task {task.id[:8]}"
        case ClaimCompaction(task=task):
            what = plural(len(task.ssts()), "SST") + ("" if task.kind == "history" else f" to L{task.target_level}")
            return f"claim {task.kind} compaction of {_table(task.table_id, names)}: {what}, task {task.id[:8]}"
        case ReportCompaction(outputs=outputs, history=history):
            size = bytes_text(total_bytes(outputs))
            parted = f"; history: {plural(len(history), 'SST')}, {bytes_text(total_bytes(history))}" if history else ""
            return f"report task {delta.task_id[:8]}: {plural(len(outputs), 'SST')}, {size}{parted}"
        case ReleaseCompaction():
            return f"release task {delta.task_id[:8]}"
        case AdvanceSafeEpoch(epoch=epoch, table=table):
            whose = f" of table {_table(table, names)}" if table else ""
            return f"advance safe epoch{whose} to {epoch_text(epoch)}"
        case ExpireHistory(epoch=epoch, tables=tables):
            of_tables = [f"of table {_table(one, names)} up to {epoch_text(own)}" for one, own in tables.items()]
            return "expire history " + ", ".join([f"up to {epoch_text(epoch)}"] * (epoch > 0) + of_tables)
        case AdvanceHorizon(horizon=horizon):
            return f"advance garbage horizon to {horizon}"
        case Configure(retention_ms=retention_ms, gc_grace_ms=gc_grace_ms):
            return f"set retention to {seconds_text(retention_ms)} and grace to {seconds_text(gc_grace_ms)}"
        case ForgetDropped(ids=ids):
            return f"forget {plural(len(ids), 'deleted SST')}"
        case ForgetWriters(writers=writers):
            return f"forget {plural(len(writers), 'writer')}: {', '.join(writers[:3])}"
        case PauseCompaction(paused=paused, reason=reason):
            return f"pause compaction: {reason}" if paused else "resume compaction"
        case OpenWriter(writer=writer, generation=generation):
            return f"open writer {writer}, generation {generation}"
        case StartTerm(term=term, leader=leader, address=address):
            return f"start term {term}: {leader} leads, at {address}"
        case RepairClock(epochs=epochs, rewritten=rewritten):
            given = f": epochs above {delta.limit} from {epochs[0][1]} on" if epochs else ""
            return f"repair the clock{given}, {plural(len(rewritten), 'SST')} written anew"
        case QuarantineSst(loss=loss):
            rest = f", {loss.saved} has the rest" if loss.saved else ""
            return f"put damaged SST {loss.sst.id} of {loss.table} aside: {plural(loss.rows, 'row')} lost{rest}"
        case DiscardQuarantined(ids=ids):
            return f"discard {plural(len(ids), 'damaged SST')}"
        case BeginBackup() | FinishBackup() | DropBackup() | BeginStore() | DetachSource():
            return _describe_backup(delta)
        case _:
            assert_never(delta)


def _periods(spec: TableSpec) -> str:
    retention = "" if spec.retention_ms is None else f", retention {seconds_text(spec.retention_ms)}"
    if spec.ttl_ms is None:
        return retention
    return f"{retention}, rows live {seconds_text(spec.ttl_ms)} from {spec.ttl_column or 'when they are written'}"


def _describe_commit(delta: CommitEpoch, names: dict[int, str]) -> str:
    parts = []
    for table_id, runs in delta.tables.items():
        ssts = [sst for run in runs for sst in run.ssts]
        rows = plural(sum(sst.rows for sst in ssts), "row")
        parts.append(f"{_table(table_id, names)} {rows} in {plural(len(ssts), 'SST')}")
    by = f", writer {delta.writer} batch {delta.batch_id}" if delta.writer is not None else ""
    by += f" generation {delta.generation}" if delta.generation is not None else ""
    return f"commit epoch {delta.epoch}: {'; '.join(parts) or 'no rows'}{by}"


def _describe_backup(delta: BackupChange) -> str:
    match delta:
        case BeginBackup(name=name, holder=holder):
            return f"begin {f'the hold {name} of clone {holder}' if holder else f'backup {name}'}"
        case FinishBackup(name=name):
            return f"finish backup {name}: {plural(delta.ssts, 'SST')}, {bytes_text(delta.bytes)}"
        case DropBackup(name=name):
            return f"delete backup {name}"
        case BeginStore(origin=origin):
            what = f"backup {origin.backup}" if origin.backup else f"version {origin.seq}"
            return f"begin as {origin.kind} of {what} of {origin.url}"
        case DetachSource(url=url):
            return f"detach from {url}"
        case _:
            assert_never(delta)


def _table(table_id: int, names: dict[int, str]) -> str:
    return names.get(table_id, f"#{table_id}")


def _entry_sequence(path: str) -> int | None:
    return sequence_of(path) if path.endswith(".delta") else None


def _read(bucket: ObjectStore, path: str, seq: int) -> LogEntry | str:
    """The entry, or what is wrong with it."""
    try:
        return decode_entry(path, seq, read_object(bucket, path))
    except (CorruptLog, ObjectNotFound) as error:
        return str(error)


def _rows(seq: int, entry: LogEntry | str, names: dict[int, str]) -> Iterator[tuple[str, ...]]:
    if isinstance(entry, str):
        yield str(seq), "", "", f"DAMAGED: {entry}"
        return
    for at, delta in enumerate(entry.deltas):
        head = (str(seq), iso_ms(entry.at_ms), entry.writer) if at == 0 else ("", "", "")
        yield (*head, describe(delta, names))


def _document(seq: int, entry: LogEntry | str) -> dict[str, Any]:
    if isinstance(entry, str):
        return {"seq": seq, "error": entry}
    # To builtins first: keys of tables become strings, bytes stay bytes.
    deltas = [msgspec.to_builtins(delta, builtin_types=(bytes,)) for delta in entry.deltas]
    return {
        "seq": seq,
        "at": iso_ms(entry.at_ms),
        "writer": entry.writer,
        "id": entry.id.hex(),
        "term": entry.term,
        "deltas": deltas,
    }
