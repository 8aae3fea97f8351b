"""A client's lines to the coordinator of checkpoints: calls go to the leader, events come by the subscription."""

from collections.abc import Callable, Mapping

from tussock.meta.client.connection import MetaConnection
from tussock.meta.rpc import meta_pb2 as pb
from tussock.meta.rpc.barriers import event_from_message, on_missing_to_message
from tussock.meta.rpc.convert import tables_to_message
from tussock.statestore.base.system import System
from tussock.statestore.contract.barriers import BarrierEvent, JobOptions
from tussock.statestore.contract.records import Run
from tussock.statestore.errors import DuplicateName

__all__ = ["Inbox", "PlatformChannel", "PlatformChannels"]

Inbox = Callable[[BarrierEvent | None], None]
"""Takes events, and `None` when the participant has to join again; never waits."""


class PlatformChannel:
    """A participant's line; satisfies `BarrierChannel`."""

    def __init__(
        self,
        connection: MetaConnection,
        job: str,
        participant: str,
        incarnation: str,
        options: JobOptions,
        closed: Callable[[str], None],
    ) -> None:
        self._connection = connection
        self._job = job
        self._participant = participant
        self._incarnation = incarnation
        self._options = options
        self._closed = closed

    def join(self, seen_barrier: int) -> int:
        """Become a participant, or ask again where things stand; returns the generation."""
        request = pb.JoinCheckpointRequest(
            session_id=self._connection.session_id,
            job=self._job,
            participant=self._participant,
            participants=self._options.participants,
            interval_ms=self._options.interval_ms,
            timeout_ms=self._options.timeout_ms,
            on_missing=on_missing_to_message(self._options.on_missing),
            incarnation=self._incarnation,
            seen_barrier=seen_barrier,
        )
        answer = self._connection.call("JoinCheckpoint", request)
        assert isinstance(answer, pb.JoinCheckpointResponse)
        return answer.generation

    def collect(self, generation: int, barrier: int, tables: Mapping[int, tuple[Run, ...]]) -> None:
        """The epoch of the barrier is uploaded, as these sorted runs."""
        request = pb.CollectBarrierRequest(
            session_id=self._connection.session_id,
            job=self._job,
            participant=self._participant,
            generation=generation,
            barrier=barrier,
            tables=tables_to_message(tables),
        )
        self._connection.call("CollectBarrier", request)

    def leave(self, generation: int, *, done: bool, reason: str) -> None:
        """Be no participant any more."""
        request = pb.LeaveCheckpointRequest(
            session_id=self._connection.session_id,
            job=self._job,
            participant=self._participant,
            generation=generation,
            done=done,
            reason=reason[:1000],
        )
        self._connection.call("LeaveCheckpoint", request)

    def close(self) -> None:
        """Events are no longer wanted."""
        self._closed(self._job)


class PlatformChannels:
    """The lines of one client, one a job at most."""

    def __init__(self, connection: MetaConnection, system: System) -> None:
        self._connection = connection
        self._system = system
        self._lock = system.lock()
        self._inboxes: dict[str, tuple[str, Inbox]] = {}

    def open(self, job: str, participant: str, options: JobOptions, inbox: Inbox) -> PlatformChannel:
        """A line for a participant; `DuplicateName` if this client takes part in the job already."""
        with self._lock:
            if job in self._inboxes:
                raise DuplicateName(
                    f"this client takes part in job {job!r} already, as {self._inboxes[job][0]!r}; its epochs hold "
                    "the rows of one participant: connect once more for another",
                    job,
                    self._inboxes[job][0],
                )
            self._inboxes[job] = (participant, inbox)
        incarnation = self._system.random_bytes(8).hex()
        return PlatformChannel(self._connection, job, participant, incarnation, options, self._close)

    def deliver(self, message: pb.BarrierEvent) -> None:
        """An event has come by the subscription."""
        participant, inbox = self._inboxes.get(message.job, ("", None))
        event = event_from_message(message)
        if inbox is not None and event is not None and participant == message.participant:
            inbox(event)

    def rejoin(self) -> None:
        """The session was opened anew, or the client is closing: every participant has to look up."""
        for _, inbox in list(self._inboxes.values()):
            inbox(None)

    def _close(self, job: str) -> None:
        with self._lock:
            self._inboxes.pop(job, None)
