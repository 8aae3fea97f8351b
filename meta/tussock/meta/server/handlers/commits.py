"""Versions, catalog, epochs and commits, as the leader serves them.

A commit is checked before it is stamped, against the bucket or by the bytes that come along: an SST that is missing,
damaged or another's never gets into a version. Commits that come at the same time share one log entry (`log.py`), and
the SSTs that came with them lie in it.
"""

import re
from collections.abc import Iterable

from msgspec.structs import replace

from tussock.meta.node.auth.caller import Caller, Handlers
from tussock.meta.rpc import meta_pb2 as pb
from tussock.meta.rpc.convert import (
    change_from_message,
    columns_from_message,
    commit_from_message,
    spec_from_message,
    spec_to_message,
)
from tussock.meta.rpc.methods import Role
from tussock.meta.server.context import Context
from tussock.meta.server.feed import Feed
from tussock.meta.server.part import Part
from tussock.statestore.base.arguments import check_name, check_writer
from tussock.statestore.base.logs import get_logger
from tussock.statestore.base.system import Lock
from tussock.statestore.contract.backend import CommitRequest
from tussock.statestore.contract.records import SstInfo, TableSpec
from tussock.statestore.epochs import next_epoch
from tussock.statestore.errors import (
    AccessDenied,
    CorruptSst,
    InvalidBatch,
    InvalidOption,
    ObjectNotFound,
    ObjectStoreUnavailable,
    TussockError,
)
from tussock.statestore.sst.proof import prove_bytes, prove_sst
from tussock.statestore.tables.table_options import TablePeriods, table_spec

__all__ = ["COMMITS_MAX", "Commits"]

log = get_logger("tussock.meta")

WRITER_CHARACTERS_MAX = 1024
IDENTITY_CHARACTERS_MAX = 255
"""Of the identity that is noted with a new name of a writer."""
UPDATE_BYTES_MAX = 256 << 10
COMMITS_MAX = 64
"""In one message."""
SST_ID = re.compile(r"[0-9a-f]{32}")


class Commits(Part):
    """Serves the RPCs about versions, tables and epochs."""

    def __init__(self, context: Context, lock: Lock, feed: Feed) -> None:
        """`lock` is held around the newest epoch."""
        self._context = context
        self._lock = lock
        self._feed = feed
        self._newest_epoch = 0

    def handlers(self) -> Handlers:
        """The RPCs answered here."""
        return {
            "GetCredentials": self._get_credentials,
            "CreateTable": self._create_table,
            "AlterTable": self._alter_table,
            "DropTable": self._drop_table,
            "AllocateEpoch": self._allocate_epoch,
            "OpenWriter": self._open_writer,
            "ForgetWriters": self._forget_writers,
            "Commit": self._commit,
            "CommitEach": self._commit_each,
        }

    def new_epoch(self) -> int:
        """An epoch greater than every one that this leader handed out or has seen committed."""
        with self._lock:
            newest = max(self._newest_epoch, self._context.meta.version().max_committed_epoch)
            self._newest_epoch = next_epoch(self._context.system.now_ms(), newest)
            return self._newest_epoch

    def commit(self, request: CommitRequest, by: str) -> int:
        """Check the SSTs of a commit, and append it with those that came along; returns the epoch.

        `by` is who asks for it.
        """
        known = self._check(request)
        return self._context.meta.commit(request, by[:IDENTITY_CHARACTERS_MAX]) if known is None else known

    def check_tables(self, table_ids: Iterable[int], caller: Caller) -> None:
        """Raise `AccessDenied` if the caller may not write one of these tables."""
        if caller.tables:
            tables = self._context.meta.version().tables
            for table_id in table_ids:
                # One that is gone is refused at the stamp, with the better error.
                if (state := tables.get(table_id)) is not None:
                    caller.check_table(state.spec.name)

    def _check(self, request: CommitRequest) -> int | None:
        """Check the SSTs of a commit; returns its epoch if it turns out to have happened."""
        version = self._context.meta.version()
        for table_id, runs in request.tables.items():
            state = version.tables.get(table_id)
            for sst in (sst for run in runs for sst in run.ssts):
                if state is None or sst.id < version.gc_horizon:
                    continue  # the stamp refuses it, with the better error
                try:
                    self._prove(sst, state.spec, request.payloads.get(sst.id))
                except (ObjectNotFound, CorruptSst) as error:
                    known = self._context.meta.refused_or_known(request) if isinstance(error, ObjectNotFound) else None
                    if known is not None:
                        return known
                    raise InvalidBatch(
                        f"epoch {request.epoch} names an SST for table {state.spec.name!r} that cannot be "
                        f"committed: {error}; nothing was committed, upload it again",
                        sst.id,
                    ) from error
        return None

    def _prove(self, sst: SstInfo, spec: TableSpec, payload: bytes | None) -> None:
        """Make sure that the SST is what it is said to be, in the bucket or as it came along."""
        if sst.entry or sst.offset:
            raise CorruptSst(f"SST {sst.id}: the leader alone says in which log entry an SST lies; this one names some")
        if not SST_ID.fullmatch(sst.id):
            raise CorruptSst(f"SST {sst.id[:64]!r}: an id has 32 hex digits")
        if payload is None:
            prove_sst(self._context.bucket, sst, spec)
            return
        if not sst.meta_in_data:
            raise CorruptSst(f"SST {sst.id}: only one with its meta at its end can come along")
        prove_bytes(payload, sst, spec, f"SST {sst.id}, which came with its commit")

    def _get_credentials(self, _: pb.GetCredentialsRequest, caller: Caller) -> pb.GetCredentialsResponse:
        hand_out = self._context.credentials
        return (
            hand_out(caller.roles, sorted(self._context.meta.version().sources))
            if hand_out
            else pb.GetCredentialsResponse()
        )

    def _create_table(self, request: pb.CreateTableRequest, caller: Caller) -> pb.CreateTableResponse:
        caller.check_table(request.spec.name)
        state = self._context.meta.create_table(_check_spec(spec_from_message(request.spec)))
        return pb.CreateTableResponse(spec=spec_to_message(state.spec), seq=self._seq())

    def _alter_table(self, request: pb.AlterTableRequest, caller: Caller) -> pb.AlterTableResponse:
        caller.check_table(request.name)
        change = change_from_message(request)
        if (change.store_retention or change.retention_ms is not None) and not caller.roles & Role.ADMIN:
            # A writer must not end the history that others read.
            raise AccessDenied(
                f"{caller.identity!r} may not change the retention of table {request.name!r}, which needs the role "
                "admin; a table that it creates has the retention that it asks for",
                caller.identity,
            )
        state = self._context.meta.alter_table(request.name, change)
        return pb.AlterTableResponse(spec=spec_to_message(state.spec), seq=self._seq())

    def _drop_table(self, request: pb.DropTableRequest, caller: Caller) -> pb.DropTableResponse:
        caller.check_table(request.name)
        self._context.meta.drop_table(request.name)
        return pb.DropTableResponse(seq=self._seq())

    def _allocate_epoch(self, _: pb.AllocateEpochRequest, __: Caller) -> pb.AllocateEpochResponse:
        return pb.AllocateEpochResponse(epoch=self.new_epoch())

    def _open_writer(self, request: pb.OpenWriterRequest, caller: Caller) -> pb.OpenWriterResponse:
        check_name(request.writer, "writer", WRITER_CHARACTERS_MAX)
        by = caller.identity[:IDENTITY_CHARACTERS_MAX]
        return pb.OpenWriterResponse(generation=self._context.meta.open_writer(request.writer, by))

    def _forget_writers(self, request: pb.ForgetWritersRequest, caller: Caller) -> pb.ForgetWritersResponse:
        forgotten = self._context.meta.forget_writers(request.writers, request.idle_ms)
        log.info("writers forgotten", caller=caller.identity, writers=len(forgotten))
        return pb.ForgetWritersResponse(forgotten=forgotten)

    def _commit(self, message: pb.CommitRequest, caller: Caller) -> pb.CommitResponse:
        request = commit_from_message(message)
        check_writer(request.writer, request.batch_id, request.generation, request.source)
        self.check_tables(request.tables, caller)
        delay_ms, reason = self._context.meta.write_delay(request.tables, message.waited_ms)
        if delay_ms:
            return pb.CommitResponse(retry_after_ms=delay_ms, stall_reason=reason)
        epoch = self.commit(request, caller.identity)
        self._context.nudge()
        # With the entries, so that the client need not wait for them to be pushed. One that is far behind asks for
        # them.
        update = self._feed.after(message.known_seq, bytes_max=UPDATE_BYTES_MAX)
        return pb.CommitResponse(epoch=epoch, seq=update.seq, update=update)

    def _commit_each(self, message: pb.CommitEachRequest, caller: Caller) -> pb.CommitEachResponse:
        if len(message.commits) > COMMITS_MAX:
            raise InvalidOption(f"{len(message.commits)} commits in one message: {COMMITS_MAX} are allowed")
        outcomes = [pb.CommitResponse() for _ in message.commits]
        ready: list[tuple[pb.CommitResponse, CommitRequest]] = []
        for one, outcome in zip(message.commits, outcomes, strict=True):
            try:
                request = commit_from_message(one)
                check_writer(request.writer, request.batch_id, request.generation, request.source)
                self.check_tables(request.tables, caller)
                delay_ms, reason = self._context.meta.write_delay(request.tables, one.waited_ms)
                if delay_ms:
                    outcome.retry_after_ms, outcome.stall_reason = delay_ms, reason
                elif (known := self._check(request)) is not None:
                    outcome.epoch = known
                else:
                    ready.append((outcome, request))
            except TussockError as error:
                outcome.refused = _refusal(error)
        by = caller.identity[:IDENTITY_CHARACTERS_MAX]
        found = self._context.meta.commit_each([request for _, request in ready], by) if ready else []
        for (outcome, _), epoch in zip(ready, found, strict=True):
            if isinstance(epoch, int):
                outcome.epoch = epoch
            else:
                outcome.refused = _refusal(epoch)
        self._context.nudge()
        update = self._feed.after(message.known_seq, bytes_max=UPDATE_BYTES_MAX)
        for outcome in outcomes:
            outcome.seq = update.seq if outcome.epoch else 0
        return pb.CommitEachResponse(commits=outcomes, update=update)

    def _seq(self) -> int:
        return self._context.meta.version().seq


def _refusal(error: TussockError) -> str:
    """The kind of an error by which one of several commits is refused; raises what may come of one that happened."""
    if isinstance(error, ObjectStoreUnavailable):
        raise error
    return type(error).__name__


def _check_spec(spec: TableSpec) -> TableSpec:
    """The table, if a client of Tussock could have asked for it: `InvalidOption` or `SchemaMismatch` if not."""
    schema = None if spec.schema is None else columns_from_message(spec.schema)
    checked = table_spec(
        spec.name,
        schema,
        spec.primary_key,
        spec.distribution_key,
        spec.vnodes,
        spec.block_bytes,
        spec.compression,
        TablePeriods(ttl=None if spec.ttl_ms is None else spec.ttl_ms / 1000, ttl_column=spec.ttl_column),
    )
    # As they are, and not by way of seconds; `CreateTable` checks the retention.
    return replace(checked, retention_ms=spec.retention_ms, ttl_ms=spec.ttl_ms)
