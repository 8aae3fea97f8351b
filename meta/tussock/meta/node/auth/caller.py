"""The caller of a method, and the handlers that answer it."""

from collections.abc import Callable
from typing import NamedTuple

from google.protobuf.message import Message

from tussock.meta.rpc.methods import Role

__all__ = ["ANYONE", "Caller", "Handlers"]


class Caller(NamedTuple):
    """An authenticated caller of one call."""

    identity: str
    """The name of the token or certificate; `anonymous` where the service asks for none."""
    roles: Role
    request_id: str = ""
    """Drawn per call, or given by the caller; in all log lines of the call."""


Handlers = dict[str, Callable[..., Message]]
"""By RPC, what answers it: called with the request's message and the caller."""

ANYONE = Caller("anonymous", Role.ADMIN)
"""The caller where the service authenticates nobody."""
