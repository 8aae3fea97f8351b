"""The kinds of requests, and who may make them; and what goes with every call."""

from tussock.compute.service.rpc import application_pb2 as pb
from tussock.meta.rpc.methods import Role

__all__ = [
    "ASK",
    "CONVERSE",
    "ERROR_METADATA",
    "KINDS",
    "MESSAGE_BYTES_LIMIT",
    "MESSAGE_BYTES_MAX",
    "PLAIN_BYTES_MAX",
    "PROTOCOL",
    "PROTOCOL_METADATA",
    "SERVICE",
    "WORK",
    "WORKERS_SERVICE",
]

SERVICE = "tussock.application.v1.Application"
ASK, CONVERSE = f"/{SERVICE}/Ask", f"/{SERVICE}/Converse"
WORKERS_SERVICE = "tussock.application.v1.Workers"
WORK = f"/{WORKERS_SERVICE}/Work"
PROTOCOL = 1
"""Raised when an old client could misunderstand a new service."""
PROTOCOL_METADATA = "tussock-protocol"
ERROR_METADATA = "tussock-error-bin"
"""The trailing metadata that has an `Error`."""
MESSAGE_BYTES_LIMIT = 256 << 20
"""To which a node may raise the following."""
MESSAGE_BYTES_MAX = 16 << 20
PLAIN_BYTES_MAX = 1 << 20
"""Of MessagePack in a request: as objects it may take a hundred times as much."""

_READERS = Role.READER | Role.WRITER | Role.COMPACTOR | Role.ADMIN
_WRITERS = Role.WRITER | Role.ADMIN

KINDS: dict[str, Role] = {
    "submit": _WRITERS,
    "call": _WRITERS,
    "trace": _READERS,
    "window_rows": _READERS,
    "stats": _READERS,
    "status": _READERS,
    "pause": Role.ADMIN,
    "resume": Role.ADMIN,
    "drain": Role.ADMIN,
    "send": _WRITERS,
    "send_many": _WRITERS,
    "query": _READERS,
    "call_graph": _READERS,
    "push": _WRITERS,
    "subscribe": _READERS,
    "history": _READERS,
    "bad_rows": _READERS,
    "replay_bad": _WRITERS,
    "stream_row": _READERS,
    "stream_rows": _READERS,
    "stream_look": _READERS,
    "step": Role.ADMIN,
    "auto_step": Role.ADMIN,
    "hold": Role.ADMIN,
    "set_breakpoint": Role.ADMIN,
    "change_breakpoint": Role.ADMIN,
    "what_if": Role.ADMIN,
}
"""By the field of `Request.what`. Every caller who may read sees the status."""

assert set(KINDS) == {field.name for field in pb.Request.DESCRIPTOR.oneofs_by_name["what"].fields}
