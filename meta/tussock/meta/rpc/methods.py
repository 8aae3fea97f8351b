"""The table of RPCs: what each is called on the wire, which messages it takes and answers, and who may call it."""

import enum
from typing import NamedTuple

from google.protobuf import message_factory
from google.protobuf.message import Message

from tussock.meta.rpc import meta_pb2

__all__ = [
    "KEEPING_ALIVE",
    "METHODS",
    "OLDEST_PROTOCOL",
    "PIECE_BYTES_MAX",
    "PROTOCOL_VERSION",
    "SERVICE",
    "Method",
    "Role",
    "common_protocol",
]

SERVICE = "tussock.meta.v1.Meta"
KEEPING_ALIVE = frozenset({"CloseSession", "Heartbeat", "OpenSession", "Unpin"})
"""Methods that no other call may keep waiting, in the service or in a client."""
PROTOCOL_VERSION = 1
"""The newest protocol that this release speaks; raised when an old client could misunderstand a new service."""
OLDEST_PROTOCOL = 1
"""The oldest that it speaks as well, as a service and as a client."""
PIECE_BYTES_MAX = 128 << 10
"""The largest message of gRPC that a service takes. A request with more bytes comes as several, one after the other, so
that the service can stop before it has read them all."""


class Role(enum.Flag):
    """What a caller may do; `ADMIN` may do everything."""

    READER = enum.auto()
    WRITER = enum.auto()
    COMPACTOR = enum.auto()
    ADMIN = enum.auto()


_WRITERS = Role.WRITER | Role.ADMIN
_COMPACTORS = Role.COMPACTOR | Role.ADMIN
_EVERYONE = Role.READER | Role.WRITER | Role.COMPACTOR | Role.ADMIN

_SMALL = 64 << 10
_BYTES_MAX = {"OpenSession": 512 << 10, "CreateTable": 1 << 20, "AlterTable": 1 << 20, "ForgetWriters": 1 << 20}
"""Of requests. Those that are not here are small, and those that name SSTs may have what the settings allow."""
_NAMING_SSTS = frozenset({"Commit", "CommitEach", "CollectBarrier", "ReportTask"})

_ROLES = {
    "OpenSession": _EVERYONE,
    "Heartbeat": _EVERYONE,
    "CloseSession": _EVERYONE,
    "Subscribe": _EVERYONE,
    "GetCredentials": _EVERYONE,
    "GetVersion": _EVERYONE,
    "CreateTable": _WRITERS,
    "AlterTable": _WRITERS,
    "DropTable": _WRITERS,
    "AllocateEpoch": _WRITERS,
    "OpenWriter": _WRITERS,
    "ForgetWriters": Role.ADMIN,
    "Commit": _WRITERS,
    "CommitEach": _WRITERS,
    "Pin": _EVERYONE,
    "Unpin": _EVERYONE,
    "ListPins": _EVERYONE,
    "JoinCheckpoint": _WRITERS,
    "CollectBarrier": _WRITERS,
    "LeaveCheckpoint": _WRITERS,
    "Compact": _WRITERS,
    "ReportTask": _COMPACTORS,
    "ReturnTask": _COMPACTORS,
    "PauseCompaction": Role.ADMIN,
    "Vacuum": Role.ADMIN,
    "CreateBackup": Role.ADMIN,
    "ListBackups": _EVERYONE,
    "DeleteBackup": Role.ADMIN,
    "GetStatus": _EVERYONE,
    "HandOver": Role.ADMIN,
}


class Method(NamedTuple):
    """One RPC."""

    name: str
    path: str
    """As gRPC names it: `/package.Service/Name`."""
    request: type[Message]
    response: type[Message]
    streams: bool
    """The answer is a stream of messages."""
    roles: Role
    """Callers with one of these may call it."""
    bytes_max: int
    """The largest request; 0: what the service's settings say."""


def common_protocol(
    oldest: int, newest: int, *, own: tuple[int, int] = (OLDEST_PROTOCOL, PROTOCOL_VERSION)
) -> int | None:
    """The newest protocol that a release with `own` and one that speaks `oldest` to `newest` both know, if any."""
    common = min(newest, own[1])
    return common if common >= max(oldest, own[0]) else None


def _methods() -> dict[str, Method]:
    found = {}
    for described in meta_pb2.DESCRIPTOR.services_by_name["Meta"].methods:
        found[described.name] = Method(
            name=described.name,
            path=f"/{SERVICE}/{described.name}",
            request=message_factory.GetMessageClass(described.input_type),
            response=message_factory.GetMessageClass(described.output_type),
            streams=described.server_streaming,
            roles=_ROLES[described.name],
            bytes_max=0 if described.name in _NAMING_SSTS else _BYTES_MAX.get(described.name, _SMALL),
        )
    return found


METHODS = _methods()
"""By name."""
