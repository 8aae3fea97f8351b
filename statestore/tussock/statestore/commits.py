"""Committing a sealed epoch of the shared buffer, and finding out that it was committed before."""

from collections.abc import Mapping, Sequence

from msgspec.structs import replace

from tussock.statestore.contract.backend import CommitRequest
from tussock.statestore.contract.records import Run, TableSpec, UploadedRun
from tussock.statestore.errors import (
    ClockAhead,
    Conflict,
    Fenced,
    InvalidBatch,
    InvalidOption,
    StaleUpload,
    TableNotFound,
)
from tussock.statestore.parts import StoreParts
from tussock.statestore.shown import show_value
from tussock.statestore.write.epoch_buffer import EpochBuffer
from tussock.statestore.write.writes import Writes

__all__ = ["check_uploaded", "commit_epoch", "commit_sealed", "commit_uploads"]

_UPLOAD_ATTEMPTS = 3


def check_uploaded(uploads: object) -> None:
    """`InvalidOption` unless this maps names of tables to what their `upload` returned."""
    if not isinstance(uploads, Mapping):
        raise InvalidOption(
            f"uploads is {show_value(uploads)}; expected a dict of table names and what upload() returned"
        )
    for name, runs in uploads.items():
        if not isinstance(runs, list | tuple) or not all(isinstance(run, Run) for run in runs):
            raise InvalidOption(f"uploads has {show_value(name)}: {show_value(runs)}; expected what upload() returned")


def _expected(parts: StoreParts, expect: Mapping[str, int] | None) -> tuple[dict[int, int], TableNotFound | None]:
    """By id the tables that were read, each with its epoch; and the error if there was never one of a name.

    A table that was dropped has its id, too: the commit refuses it, unless it repeats one.
    """
    found: dict[int, int] = {}
    missing = None
    for name, epoch in (expect or {}).items():
        try:
            found[parts.known.id_read_at(parts.views.named(name), epoch)] = epoch
        except TableNotFound as error:
            table = parts.known.id_of_gone(name, parts.backend.version())
            if table is None:
                missing = error
            else:
                found[table] = epoch
    return found, missing


def _known_commit(parts: StoreParts, request: CommitRequest) -> int | None:
    """The epoch that holds the request's (writer, batch) already; `None` if it is not known to be committed.

    So the rows of a repeated batch, which are in the buffer, are not uploaded again. `Fenced` as a commit raises it.
    """
    if request.writer is None or request.batch_id is None:
        return None
    rows_in = parts.writes.buffer.tables_of(request.epoch)
    known = parts.backend.committed_batch(request.writer, request.batch_id, request.source, rows_in)
    if known is None or request.generation is None:
        return known
    # A writer that was replaced is to learn of it, even where its batch holds: the commit is repeated without rows, on
    # the newest version.
    parts.backend.refresh()
    return parts.backend.commit(request)


def commit_epoch(parts: StoreParts, request: CommitRequest, expect: Mapping[str, int] | None) -> int:
    """Seal the request's epoch and commit what the shared buffer has of it; see `StateStore.commit_epoch`."""
    try:
        expected, missing = _expected(parts, expect)
        known = _known_commit(parts, request)
        if known is not None:
            parts.writes.buffer.drop(request.epoch)
            return known
        if missing is not None:
            raise missing
        request = replace(request, expect=expected)
        buffer = parts.writes.buffer.seal(request.epoch)
        with buffer.committing:
            # Another thread may have committed the epoch while this one waited for it.
            parts.writes.buffer.check_held(buffer)
            return _commit_buffer(parts, buffer, request)
    except (Conflict, Fenced, TableNotFound):
        # This commit can never succeed; its rows must not shadow what others committed.
        parts.writes.buffer.drop(request.epoch)
        raise
    except ClockAhead:
        parts.writes.buffer.refuse(request.epoch)
        raise


def _commit_buffer(parts: StoreParts, buffer: EpochBuffer, request: CommitRequest) -> int:
    """Upload a sealed epoch and commit it as `request`, which has no tables yet; then drop it from the buffer."""
    committed = commit_sealed(parts, parts.writes, buffer, request, parts.backend.payload_bytes_max)
    parts.writes.buffer.note_committed(committed)
    parts.writes.buffer.drop(buffer.epoch)
    return committed


def commit_sealed(
    parts: StoreParts, writes: Writes, buffer: EpochBuffer, request: CommitRequest, payload_bytes_max: int
) -> int:
    """Upload what was sealed of a buffer and commit it as `request`, which has no tables yet; the epoch that holds.

    SSTs of at most `payload_bytes_max` bytes go along with the commit. Called again, it uploads only what was not.
    """
    for attempt in range(1, _UPLOAD_ATTEMPTS + 1):
        try:
            tables = writes.upload_epoch(buffer, payload_bytes_max=payload_bytes_max)
            return parts.backend.commit(replace(request, tables=dict(tables), payloads=dict(buffer.payloads)))
        except StaleUpload:
            # The upload took longer than the grace period, and vacuum took it for garbage: do it again.
            if attempt == _UPLOAD_ATTEMPTS:
                raise
            writes.renew_uploads(buffer)
    raise AssertionError("unreachable: the last attempt returns or raises")


def commit_uploads(
    parts: StoreParts,
    request: CommitRequest,
    specs: Mapping[str, TableSpec],
    uploads: Mapping[str, Sequence[Run]],
    expect: Mapping[str, int] | None,
) -> int:
    """Commit `request`, which has these runs in these tables; see `StateStore.commit_uploaded`."""
    expected, missing = _expected(parts, expect)
    request = replace(request, expect=expected)
    foreign = [
        (run, specs[name])
        for name, runs in uploads.items()
        for run in runs
        if isinstance(run, UploadedRun) and run.ssts and run.table_id not in (0, specs[name].id)
    ]
    if not foreign and missing is None:
        return parts.backend.commit(request)
    if request.writer is not None and request.batch_id is not None:
        # A batch that was committed may be repeated after its table was dropped, also if it was created again.
        parts.views.refresh()
        meant = {run.table_id for runs in uploads.values() for run in runs if isinstance(run, UploadedRun) and run.ssts}
        known = parts.backend.committed_batch(request.writer, request.batch_id, request.source, meant)
        if known is not None:
            return known
    if missing is not None:
        raise missing
    run, spec = foreign[0]
    also = f"another table {spec.name!r}, which was dropped" if run.table == spec.name else f"table {run.table!r}"
    raise InvalidBatch(
        f"table {spec.name!r} with id {spec.id}: SST {run.ssts[0].id} was uploaded for {also}, with id "
        f"{run.table_id}; nothing was committed: name each run under the table whose upload() returned it",
        run.ssts[0].id,
    )
