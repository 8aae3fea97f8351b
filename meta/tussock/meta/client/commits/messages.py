"""Commits of several threads of this process, in one message: most of what a small commit costs is its call.

One message is on its way at a time, and what comes meanwhile goes with the next. It is tried once, and only a commit
that is in the log, or held back, counts. Whatever else comes of it, each thread goes on alone, with a call of its
commit, which is safe to repeat: so errors, retries and deadlines are those of `Commit`.
"""

from collections.abc import Sequence

from tussock.meta.client.connection import Attempts, MetaConnection
from tussock.meta.client.versions import PushedVersion
from tussock.meta.rpc import meta_pb2 as pb
from tussock.statestore.base.system import System
from tussock.statestore.base.together import JointCall, Together
from tussock.statestore.errors import (
    AccessDenied,
    InvalidOption,
    MessageTooLarge,
    MetaUnavailable,
    NotLeader,
    ObjectStoreUnavailable,
    ProtocolMismatch,
    RateLimited,
    SessionExpired,
    StoreClosed,
    TussockError,
    Unauthenticated,
)

__all__ = ["CommitMessages"]

LINGER_SECONDS = 0.005
COMMITS_MAX = 64
MESSAGE_BYTES_MAX = 1 << 20
COMMIT_BYTES_MAX = 128 << 10
"""A larger commit goes alone; so does one that has SSTs in the bucket: looking at them would keep others waiting."""

_NOTHING_DONE = (
    AccessDenied,
    InvalidOption,
    MessageTooLarge,
    NotLeader,
    ProtocolMismatch,
    RateLimited,
    SessionExpired,
    StoreClosed,
    Unauthenticated,
)
"""What a service refuses a whole message with, before it looks at the commits."""
_REPEATED = (MetaUnavailable, NotLeader, ObjectStoreUnavailable, RateLimited, SessionExpired)
"""After these a connection repeats a call."""


class _OneCommit(JointCall):
    """A commit that waits for its message."""

    def __init__(self, request: pb.CommitRequest) -> None:
        super().__init__(size=request.ByteSize())
        self.request = request
        self.answer = pb.CommitResponse()
        self.error: TussockError | None = None
        """What it was refused with, in a message that it had to itself."""
        self.may_have_happened = False


class CommitMessages:
    """The commits of one session that may go together. Safe to share between threads."""

    def __init__(self, connection: MetaConnection, pushed: PushedVersion, system: System) -> None:
        """`pushed` learns the versions that the answers bring."""
        self._connection = connection
        self._pushed = pushed
        self._together = Together[_OneCommit](
            system, LINGER_SECONDS, _abandon, calls_max=COMMITS_MAX, size_max=MESSAGE_BYTES_MAX
        )

    def commit(self, request: pb.CommitRequest, attempts: Attempts) -> pb.CommitResponse | None:
        """What came of the commit, as `Commit` answers, or `None` if it has to go alone.

        `attempts` learns whether it may be in the log anyway. Raises what it was refused with.
        """
        opened = self._connection.opened
        has_room = opened.commits_max >= COMMITS_MAX and opened.message_bytes_max >= 2 * MESSAGE_BYTES_MAX
        if not has_room or not _may_share(request):
            return None
        mine = _OneCommit(request)
        self._together.carry_out([mine], self._send)
        attempts.unknown |= mine.may_have_happened
        if mine.error is not None:
            raise mine.error
        return mine.answer if mine.answer.epoch or mine.answer.retry_after_ms else None

    def _send(self, commits: Sequence[_OneCommit]) -> None:
        try:
            if len(commits) == 1:
                self._send_alone(commits[0])
            else:
                self._send_all(commits)
        except TussockError as error:
            for one in commits:
                one.may_have_happened = not isinstance(error, _NOTHING_DONE)
                one.done = True
        except BaseException:
            # The thread was interrupted, and its message goes on.
            _abandon(commits)
            raise
        for one in commits:
            one.done = True

    def _send_alone(self, one: _OneCommit) -> None:
        try:
            answer = self._connection.call_once("Commit", one.request)
        except _REPEATED:
            raise
        except TussockError as error:
            one.error = error
        else:
            assert isinstance(answer, pb.CommitResponse)
            one.answer = answer

    def _send_all(self, commits: Sequence[_OneCommit]) -> None:
        message = pb.CommitEachRequest(
            session_id=self._connection.session_id, known_seq=max(one.request.known_seq for one in commits)
        )
        for one in commits:
            message.commits.append(one.request)
            message.commits[-1].ClearField("session_id")
        answer = self._connection.call_once("CommitEach", message)
        assert isinstance(answer, pb.CommitEachResponse)
        self._pushed.learn(answer.update)
        for one, own in zip(commits, answer.commits, strict=True):
            one.answer = own


def _abandon(commits: Sequence[_OneCommit]) -> None:
    """They go alone, as after an answer that was lost."""
    for one in commits:
        one.may_have_happened = True
        one.done = True


def _may_share(request: pb.CommitRequest) -> bool:
    """Small, and with nothing that the leader has to look up in the bucket, or that is refused now and then."""
    return (
        not request.expect
        and request.ByteSize() <= COMMIT_BYTES_MAX
        and all(sst.id in request.payloads for table in request.tables for run in table.runs for sst in run.ssts)
    )
