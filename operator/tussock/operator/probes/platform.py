"""What the meta nodes of a store report: the leader, the committed epoch, the compactors."""

import socket
from typing import NamedTuple

import grpc
import msgspec

from tussock.meta.client.transport import GrpcTransport
from tussock.meta.rpc import meta_pb2 as pb
from tussock.meta.rpc.methods import METHODS
from tussock.operator.planning.words.facts import PlatformFact
from tussock.statestore.errors import TussockError

__all__ = ["Certificates", "ask"]

ANSWER_SECONDS = 5.0
CONNECT_SECONDS = 2.0


class Certificates(NamedTuple):
    """The certificate that the operator shows to meta nodes, and the CAs that it trusts, in PEM."""

    ca: bytes
    certificate: bytes
    key: bytes


class _Replica(msgspec.Struct):
    role: str
    term: int
    leader: str


class _Version(msgspec.Struct):
    max_committed_epoch: int
    committed_ms: int
    log_format: int = 0


class _TaskStatus(msgspec.Struct):
    id: str


class _Compaction(msgspec.Struct):
    slots: int = 0
    tasks: tuple[_TaskStatus, ...] = ()


class _Loss(msgspec.Struct):
    rows: int
    kept: bool


class _PlatformStatus(msgspec.Struct):
    """The parts of a status that the operator uses (`docs/console.md` has all)."""

    software: str
    replica: _Replica
    version: _Version
    compaction: _Compaction = msgspec.field(default_factory=_Compaction)
    losses: tuple[_Loss, ...] = ()


def ask(address: str, certificates: Certificates | None, server_name: str) -> PlatformFact:
    """Ask the meta nodes at `address` (`host:port`) for their status. Blocks for seconds; raises none of their errors.

    Without `certificates` the connection is not encrypted. Any replica that answers knows the leader, and the leader is
    then asked for what only it knows (compactors). A leader that has just died is still named for a moment and does not
    answer: then there is no leader, and the rest is what the replica knows.
    """
    credentials = None
    if certificates is not None:
        credentials = grpc.ssl_channel_credentials(certificates.ca, certificates.key, certificates.certificate)
    try:
        status = _ask(address, credentials, server_name)
    except (TussockError, msgspec.ValidationError) as error:
        return PlatformFact(problem=f"{str(error).rstrip('.')}.", is_blind=not _answers(address))
    leader = status.replica.leader
    if status.replica.role != "leader" and leader:
        try:
            status = _ask(leader, credentials, server_name)
        except (TussockError, msgspec.ValidationError):
            leader = ""
    return PlatformFact(
        problem="",
        version=status.software.removeprefix("tussock "),
        leader=leader,
        term=status.replica.term,
        committed_epoch=status.version.max_committed_epoch,
        committed_ms=status.version.committed_ms,
        slots=status.compaction.slots,
        tasks=len(status.compaction.tasks),
        quarantined_ssts=sum(loss.kept for loss in status.losses),
        lost_rows=sum(loss.rows for loss in status.losses),
        # Only a leader writes; a follower may be of another release.
        log_format=status.version.log_format if status.replica.role == "leader" else 0,
    )


def _answers(address: str) -> bool:
    """Whether the network leads to `host:port`: a host accepts the connection there, or refuses it.

    If neither happens, a policy or a missing name keeps us away, and that says nothing about others.
    """
    host, _, port = address.rpartition(":")
    try:
        socket.create_connection((host.strip("[]"), int(port)), CONNECT_SECONDS).close()
    except ConnectionRefusedError:
        return True
    except OSError:
        return False
    return True


def _ask(address: str, credentials: grpc.ChannelCredentials | None, server_name: str) -> _PlatformStatus:
    transport = GrpcTransport(address, credentials, server_name=server_name if credentials else "")
    try:
        answer = transport.call(METHODS["GetStatus"], pb.GetStatusRequest(), ANSWER_SECONDS)
    finally:
        transport.close()
    assert isinstance(answer, pb.GetStatusResponse)
    return msgspec.json.decode(answer.status, type=_PlatformStatus)
