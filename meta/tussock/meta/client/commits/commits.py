"""A client's commits: repeated while compaction is behind, and until it is known what became of them."""

import contextlib
from collections.abc import Callable

from tussock.meta.client.commits.messages import CommitMessages
from tussock.meta.client.connection import Attempts, MetaConnection
from tussock.meta.client.versions import PushedVersion
from tussock.meta.log.appends.unknown_commits import UnknownCommits, cannot_tell
from tussock.meta.rpc import meta_pb2 as pb
from tussock.meta.rpc.convert import commit_to_message
from tussock.statestore.base.logs import get_logger
from tussock.statestore.base.system import System
from tussock.statestore.contract.backend import CommitRequest
from tussock.statestore.errors import (
    Conflict,
    EpochTooOld,
    Fenced,
    InvalidBatch,
    MetaUnavailable,
    ObjectStoreUnavailable,
    StaleUpload,
    TableNotFound,
    TussockError,
    WriteStalled,
)

__all__ = ["PlatformCommits"]

log = get_logger("tussock.meta.client")


class PlatformCommits:
    """The commits of one session. Safe to share between threads."""

    def __init__(
        self,
        connection: MetaConnection,
        pushed: PushedVersion,
        system: System,
        deadline_seconds: float,
        refresh: Callable[[], object],
    ) -> None:
        """`refresh` asks the leader for the newest version."""
        self._connection = connection
        self._pushed = pushed
        self._system = system
        self._deadline_seconds = deadline_seconds
        self._refresh = refresh
        self._messages = CommitMessages(connection, pushed, system)
        self._stalled: set[int] = set()
        self._unknown_commits = UnknownCommits()

    def commit(self, request: CommitRequest) -> pb.CommitResponse:
        """Commit an epoch; waits while compaction is behind, and raises `WriteStalled` if that outlasts the deadline.

        The version of the response may not be here yet.
        """
        message = commit_to_message(self._connection.session_id, request)
        message.known_seq = self._pushed.version.seq
        deadline = self._system.monotonic() + self._deadline_seconds
        attempts = Attempts(unknown=request in self._unknown_commits)
        while True:
            try:
                answer = self._ask(message, attempts)
            except (MetaUnavailable, ObjectStoreUnavailable):
                if attempts.unknown:
                    self._unknown_commits.add(request)
                raise
            except StaleUpload as error:
                if attempts.unknown and request.writer is None:
                    raise cannot_tell(request, error) from error
                self._learn_why()
                raise
            except (Conflict, EpochTooOld, Fenced, InvalidBatch, TableNotFound):
                self._learn_why()
                raise
            if not answer.retry_after_ms:
                break
            message.waited_ms += self._stall(request, answer, deadline)
        self._unknown_commits.discard(request)
        if not message.waited_ms and not self._stalled.isdisjoint(request.tables):
            log.info("writes are no longer held back", tables=self._pushed.table_names(request.tables))
            self._stalled.difference_update(request.tables)
        self._pushed.learn(answer.update)
        return answer

    def _ask(self, message: pb.CommitRequest, attempts: Attempts) -> pb.CommitResponse:
        began = self._system.monotonic()
        answer = self._messages.commit(message, attempts)
        if answer is not None:
            return answer
        left = self._deadline_seconds - (self._system.monotonic() - began)
        alone = self._connection.call("Commit", message, timeout=left, attempts=attempts)
        assert isinstance(alone, pb.CommitResponse)
        return alone

    def _learn_why(self) -> None:
        """See what the leader saw when it refused: a read before the retry must not meet the old version."""
        with contextlib.suppress(TussockError):
            self._refresh()

    def _stall(self, request: CommitRequest, answer: pb.CommitResponse, deadline: float) -> int:
        """Wait as the leader asks, returns the milliseconds; a table's time of stalls is one line in the log."""
        if not self._stalled.issuperset(request.tables):
            names = self._pushed.table_names(request.tables)
            log.warning("writes are held back", reason=answer.stall_reason, tables=names)
        self._stalled.update(request.tables)
        left = deadline - self._system.monotonic()
        if left <= 0:
            raise WriteStalled(
                f"epoch {request.epoch} waited {self._deadline_seconds:.0f} s for compaction: {answer.stall_reason}; "
                "nothing was committed, the same call can be repeated: add compactors, or write less often",
                request.epoch,
            )
        self._system.sleep(min(answer.retry_after_ms / 1000, left))
        return answer.retry_after_ms
