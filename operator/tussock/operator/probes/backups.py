"""Backups of a store, made, deleted and listed by its meta nodes: the operator asks them and reads no bucket."""

from collections.abc import Sequence
from typing import NamedTuple, Self

import grpc
from google.protobuf.message import Message

from tussock.meta.client.transport import GrpcTransport
from tussock.meta.rpc import meta_pb2 as pb
from tussock.meta.rpc.methods import METHODS
from tussock.operator.planning.words.facts import BackupsFact, HeldBackup
from tussock.operator.probes.platform import Certificates
from tussock.statestore.errors import BackupNotFound, NotLeader, TussockError

__all__ = ["NewBackup", "tend"]

ANSWER_SECONDS = 5.0
HOPS_MAX = 3
"""Replicas to ask one after the other, each named by the one before as the leader."""


class NewBackup(NamedTuple):
    """A backup to make."""

    name: str
    id: str
    """32 hex digits. A second request with the same id gets the backup made before, so nothing is made twice."""
    comment: str


def tend(
    address: str,
    certificates: Certificates | None,
    server_name: str,
    make: Sequence[NewBackup] = (),
    drop: Sequence[str] = (),
    *,
    leaving: bool = False,
) -> BackupsFact:
    """Make and delete backups of the store whose meta nodes are at `address` (`host:port`), then list the backups.

    Blocks for seconds, and raises none of the nodes' errors: a failure is in the result, with the list from before it.
    Every part may be repeated. `leaving` is passed on to the result.
    """
    credentials = None
    if certificates is not None:
        credentials = grpc.ssl_channel_credentials(certificates.ca, certificates.key, certificates.certificate)
    held: tuple[HeldBackup, ...] | None = None
    with _Leader(address, credentials, server_name) as leader:
        try:
            held = _list(leader)
            for name in drop:
                _drop(leader, name)
            for wanted in make:
                request = pb.CreateBackupRequest(name=wanted.name, comment=wanted.comment, backup_id=wanted.id)
                leader.call("CreateBackup", request)
            if make or drop:
                held = _list(leader)
        except TussockError as error:
            return BackupsFact(held, f"{str(error.args[0] if error.args else error).rstrip('.')}.", leaving)
    return BackupsFact(held, leaving=leaving)


def _list(leader: "_Leader") -> tuple[HeldBackup, ...]:
    answer = leader.call("ListBackups", pb.ListBackupsRequest())
    assert isinstance(answer, pb.ListBackupsResponse)
    return tuple(
        HeldBackup(one.name, one.id, one.epoch, one.bytes, one.created_ms)
        for one in answer.backups
        # One with an expiry is still being made; one with a holder belongs to a clone.
        if not one.expires_ms and not one.holder
    )


def _drop(leader: "_Leader", name: str) -> None:
    try:
        leader.call("DeleteBackup", pb.DeleteBackupRequest(name=name))
    except BackupNotFound:
        return


class _Leader:
    """The leader, found by asking another replica."""

    def __init__(self, address: str, credentials: grpc.ChannelCredentials | None, server_name: str) -> None:
        self._credentials = credentials
        self._server_name = server_name if credentials is not None else ""
        self._transport = self._dial(address)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._transport.close()

    def call(self, method: str, request: Message) -> Message:
        """One call; raises the leader's error, `NotLeader` if none is found."""
        hops = 0
        while True:
            try:
                return self._transport.call(METHODS[method], request, ANSWER_SECONDS)
            except NotLeader as error:
                leader = str(error.args[1]) if len(error.args) > 1 else ""
                hops += 1
                if not leader or hops == HOPS_MAX:
                    raise
                self._transport.close()
                self._transport = self._dial(leader)

    def _dial(self, address: str) -> GrpcTransport:
        return GrpcTransport(address, self._credentials, server_name=self._server_name)
