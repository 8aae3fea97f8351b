"""Between the store's records and the messages of `meta.proto`; fields have the same names on both sides."""

from collections.abc import Iterable, Mapping

from tussock.meta.rpc import meta_pb2 as pb
from tussock.meta.version import CompactionKind, CompactionTask
from tussock.statestore.backend import BackupInfo, CommitRequest, PinInfo, VacuumReport
from tussock.statestore.catalog import SstInfo, SubLevel, TableSpec

__all__ = [
    "backup_from_message",
    "backup_to_message",
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
    "sub_levels_from_message",
    "sub_levels_to_message",
    "task_from_message",
    "task_to_message",
]

_SST_FIELDS = SstInfo.__struct_fields__


def sst_to_message(sst: SstInfo) -> pb.SstInfo:
    """An SST."""
    return pb.SstInfo(**{field: getattr(sst, field) for field in _SST_FIELDS})


def sst_from_message(message: pb.SstInfo) -> SstInfo:
    """An SST."""
    return SstInfo(**{field: getattr(message, field) for field in _SST_FIELDS})


def sub_levels_to_message(runs: Iterable[SubLevel]) -> list[pb.SubLevel]:
    """Sorted runs."""
    return [pb.SubLevel(ssts=[sst_to_message(sst) for sst in run.ssts]) for run in runs]


def sub_levels_from_message(messages: Iterable[pb.SubLevel]) -> tuple[SubLevel, ...]:
    """Sorted runs."""
    return tuple(SubLevel(ssts=tuple(sst_from_message(sst) for sst in message.ssts)) for message in messages)


def runs_to_message(tables: Mapping[int, Iterable[SubLevel]]) -> list[pb.TableRuns]:
    """The sorted runs of each table, newest first."""
    return [pb.TableRuns(table_id=table, runs=sub_levels_to_message(runs)) for table, runs in tables.items()]


def runs_from_message(messages: Iterable[pb.TableRuns]) -> dict[int, tuple[SubLevel, ...]]:
    """The sorted runs of each table, newest first."""
    return {message.table_id: sub_levels_from_message(message.runs) for message in messages}


def commit_to_message(session_id: str, request: CommitRequest) -> pb.CommitRequest:
    """A commit of a session."""
    return pb.CommitRequest(
        session_id=session_id,
        epoch=request.epoch,
        tables=runs_to_message(request.tables),
        writer=request.writer,
        batch_id=request.batch_id,
        generation=request.generation,
        expect=request.expect,
        payloads=request.payloads,
    )


def commit_from_message(message: pb.CommitRequest) -> CommitRequest:
    """A commit; what is wrong with it is found out where it is stamped."""
    return CommitRequest(
        epoch=message.epoch,
        tables=runs_from_message(message.tables),
        writer=message.writer if message.HasField("writer") else None,
        batch_id=message.batch_id if message.HasField("batch_id") else None,
        generation=message.generation if message.HasField("generation") else None,
        expect=dict(message.expect),
        payloads=dict(message.payloads),
    )


def spec_to_message(spec: TableSpec) -> pb.TableSpec:
    """A table."""
    return pb.TableSpec(**{field: getattr(spec, field) for field in TableSpec.__struct_fields__})


def spec_from_message(message: pb.TableSpec) -> TableSpec:
    """A table."""
    return TableSpec(
        id=message.id,
        name=message.name,
        schema=message.schema if message.HasField("schema") else None,
        primary_key=tuple(message.primary_key),
        distribution_key=tuple(message.distribution_key),
        vnodes=message.vnodes,
        block_bytes=message.block_bytes,
        compression=message.compression,
    )


def pin_to_message(pin: PinInfo) -> pb.PinInfo:
    """A pin."""
    return pb.PinInfo(id=pin.id, epoch=pin.epoch, owner=pin.owner, created_ms=pin.created_ms, expires_ms=pin.expires_ms)


def pin_from_message(message: pb.PinInfo) -> PinInfo:
    """A pin."""
    return PinInfo(
        id=message.id,
        epoch=message.epoch,
        owner=message.owner,
        created_ms=message.created_ms,
        expires_ms=message.expires_ms,
    )


def task_to_message(task: CompactionTask, spec: TableSpec, gc_horizon: str) -> pb.CompactionTask:
    """A compaction task, with the table that it is for and the garbage horizon."""
    return pb.CompactionTask(
        id=task.id,
        table_id=task.table_id,
        kind=task.kind,
        inputs=[pb.SubLevel(ssts=[sst_to_message(sst) for sst in run]) for run in task.inputs],
        target_level=task.target_level,
        bottom=task.bottom,
        watermark=task.watermark,
        owner=task.owner,
        claimed_ms=task.claimed_ms,
        expires_ms=task.expires_ms,
        table=spec_to_message(spec),
        gc_horizon=gc_horizon,
    )


def task_from_message(message: pb.CompactionTask) -> tuple[CompactionTask, TableSpec]:
    """A compaction task, and the table that it is for."""
    kind: CompactionKind = message.kind  # type: ignore[assignment]  # the service sends what it has validated
    task = CompactionTask(
        id=message.id,
        table_id=message.table_id,
        kind=kind,
        inputs=tuple(tuple(sst_from_message(sst) for sst in run.ssts) for run in message.inputs),
        target_level=message.target_level,
        bottom=message.bottom,
        watermark=message.watermark,
        owner=message.owner,
        claimed_ms=message.claimed_ms,
        expires_ms=message.expires_ms,
    )
    return task, spec_from_message(message.table)


def backup_to_message(backup: BackupInfo) -> pb.BackupInfo:
    """A backup."""
    return pb.BackupInfo(**{field: getattr(backup, field) for field in BackupInfo.__struct_fields__})


def backup_from_message(message: pb.BackupInfo) -> BackupInfo:
    """A backup."""
    return BackupInfo(**{field: getattr(message, field) for field in BackupInfo.__struct_fields__})


def report_to_message(report: VacuumReport) -> pb.VacuumResponse:
    """What a vacuum did."""
    return pb.VacuumResponse(
        deleted=[pb.VacuumResponse.Deleted(path=path, reason=reason) for path, reason in report.deleted],
        kept_young=report.kept_young,
        bytes_freed=report.bytes_freed,
        gc_horizon=report.gc_horizon,
    )


def report_from_message(message: pb.VacuumResponse) -> VacuumReport:
    """What a vacuum did."""
    return VacuumReport(
        deleted=tuple((one.path, one.reason) for one in message.deleted),
        kept_young=message.kept_young,
        bytes_freed=message.bytes_freed,
        gc_horizon=message.gc_horizon,
    )
