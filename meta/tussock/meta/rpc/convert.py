"""Between the store's records and the messages of `meta.proto`; fields have the same names on both sides."""

from collections.abc import Iterable, Mapping
from typing import Any, TypeVar

import msgspec
import pyarrow as pa
from google.protobuf.message import Message

from tussock.meta.rpc import meta_pb2 as pb
from tussock.meta.version.version import CompactionTask
from tussock.statestore.contract.backend import BackupInfo, CommitRequest, PinInfo, VacuumReport
from tussock.statestore.contract.records import Run, SstInfo, TableChange, TableSpec
from tussock.statestore.errors import SchemaMismatch

__all__ = [
    "backup_from_message",
    "backup_to_message",
    "change_from_message",
    "change_to_message",
    "columns_from_message",
    "columns_to_message",
    "commit_from_message",
    "commit_to_message",
    "pin_from_message",
    "pin_to_message",
    "report_from_message",
    "report_to_message",
    "runs_from_message",
    "runs_to_message",
    "spec_from_message",
    "spec_to_message",
    "sst_from_message",
    "sst_to_message",
    "tables_from_message",
    "tables_to_message",
    "task_from_message",
    "task_to_message",
]

Record = TypeVar("Record", bound=msgspec.Struct)


def _fields(record: msgspec.Struct, **converted: object) -> dict[str, Any]:
    """The fields of a record for a message that has them all; `converted` are those that it holds in another shape."""
    return {name: getattr(record, name) for name in record.__struct_fields__ if name not in converted} | converted


def _record(kind: type[Record], message: Message, **converted: object) -> Record:
    """The record out of a message that has all its fields; `converted` are those that it holds in another shape."""
    plain = {name: getattr(message, name) for name in kind.__struct_fields__ if name not in converted}
    return kind(**plain, **converted)


def columns_to_message(columns: pa.Schema) -> bytes:
    """Columns of a table, as an Arrow IPC schema message; none of them are no bytes."""
    return columns.serialize().to_pybytes() if len(columns) else b""


def columns_from_message(message: bytes) -> pa.Schema:
    """Columns of a table; `SchemaMismatch` if the bytes are no Arrow schema."""
    try:
        return pa.ipc.read_schema(pa.py_buffer(message)) if message else pa.schema([])
    except (pa.ArrowException, OSError) as error:
        raise SchemaMismatch(f"columns that are no Arrow IPC schema message: {error}; nothing was changed") from error


def change_to_message(name: str, change: TableChange) -> pb.AlterTableRequest:
    """A change of a table."""
    added, widened = columns_to_message(change.add), columns_to_message(change.widen)
    return pb.AlterTableRequest(**_fields(change, add=added, widen=widened), name=name)


def change_from_message(message: pb.AlterTableRequest) -> TableChange:
    """A change of a table; `SchemaMismatch` if columns are no Arrow schema."""
    return TableChange(
        add=columns_from_message(message.add),
        widen=columns_from_message(message.widen),
        retention_ms=message.retention_ms if message.HasField("retention_ms") else None,
        store_retention=message.store_retention,
    )


def sst_to_message(sst: SstInfo) -> pb.SstInfo:
    """An SST."""
    return pb.SstInfo(**_fields(sst))


def sst_from_message(message: pb.SstInfo) -> SstInfo:
    """An SST."""
    return _record(SstInfo, message)


def runs_to_message(runs: Iterable[Run]) -> list[pb.Run]:
    """Sorted runs."""
    return [pb.Run(ssts=[sst_to_message(sst) for sst in run.ssts]) for run in runs]


def runs_from_message(messages: Iterable[pb.Run]) -> tuple[Run, ...]:
    """Sorted runs."""
    return tuple(Run(ssts=tuple(sst_from_message(sst) for sst in message.ssts)) for message in messages)


def tables_to_message(tables: Mapping[int, Iterable[Run]]) -> list[pb.TableRuns]:
    """The sorted runs of each table, newest first."""
    return [pb.TableRuns(table_id=table, runs=runs_to_message(runs)) for table, runs in tables.items()]


def tables_from_message(messages: Iterable[pb.TableRuns]) -> dict[int, tuple[Run, ...]]:
    """The sorted runs of each table, newest first."""
    return {message.table_id: runs_from_message(message.runs) for message in messages}


def commit_to_message(session_id: str, request: CommitRequest) -> pb.CommitRequest:
    """A commit of a session."""
    return pb.CommitRequest(
        session_id=session_id,
        epoch=request.epoch,
        tables=tables_to_message(request.tables),
        writer=request.writer,
        batch_id=request.batch_id,
        generation=request.generation,
        source=request.source,
        expect=request.expect,
        payloads=request.payloads,
    )


def commit_from_message(message: pb.CommitRequest) -> CommitRequest:
    """A commit; what is wrong with it is found out where it is stamped."""
    return CommitRequest(
        epoch=message.epoch,
        tables=tables_from_message(message.tables),
        writer=message.writer if message.HasField("writer") else None,
        batch_id=message.batch_id if message.HasField("batch_id") else None,
        generation=message.generation if message.HasField("generation") else None,
        source=message.source if message.HasField("source") else None,
        expect=dict(message.expect),
        payloads=dict(message.payloads),
    )


def spec_to_message(spec: TableSpec) -> pb.TableSpec:
    """A table."""
    return pb.TableSpec(**_fields(spec))


def spec_from_message(message: pb.TableSpec) -> TableSpec:
    """A table."""
    return _record(
        TableSpec,
        message,
        schema=message.schema if message.HasField("schema") else None,
        primary_key=tuple(message.primary_key),
        distribution_key=tuple(message.distribution_key),
        retention_ms=message.retention_ms if message.HasField("retention_ms") else None,
        ttl_ms=message.ttl_ms if message.HasField("ttl_ms") else None,
        ttl_column=message.ttl_column if message.HasField("ttl_column") else None,
    )


def pin_to_message(pin: PinInfo) -> pb.PinInfo:
    """A pin."""
    return pb.PinInfo(**_fields(pin))


def pin_from_message(message: pb.PinInfo) -> PinInfo:
    """A pin."""
    return _record(PinInfo, message, unkept=tuple(message.unkept))


def task_to_message(task: CompactionTask, spec: TableSpec, gc_horizon: str) -> pb.CompactionTask:
    """A compaction task, with the table that it is for and the garbage horizon."""
    inputs = [pb.Run(ssts=[sst_to_message(sst) for sst in run]) for run in task.inputs]
    return pb.CompactionTask(**_fields(task, inputs=inputs), table=spec_to_message(spec), gc_horizon=gc_horizon)


def task_from_message(message: pb.CompactionTask) -> tuple[CompactionTask, TableSpec]:
    """A compaction task, and the table that it is for."""
    inputs = tuple(tuple(sst_from_message(sst) for sst in run.ssts) for run in message.inputs)
    return _record(CompactionTask, message, inputs=inputs), spec_from_message(message.table)


def backup_to_message(backup: BackupInfo) -> pb.BackupInfo:
    """A backup."""
    return pb.BackupInfo(**_fields(backup))


def backup_from_message(message: pb.BackupInfo) -> BackupInfo:
    """A backup."""
    return _record(BackupInfo, message)


def report_to_message(report: VacuumReport) -> pb.VacuumResponse:
    """What a vacuum did."""
    deleted = [pb.VacuumResponse.Deleted(path=path, reason=reason) for path, reason in report.deleted]
    return pb.VacuumResponse(**_fields(report, deleted=deleted))


def report_from_message(message: pb.VacuumResponse) -> VacuumReport:
    """What a vacuum did."""
    return _record(VacuumReport, message, deleted=tuple((one.path, one.reason) for one in message.deleted))
