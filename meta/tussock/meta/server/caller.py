"""Who makes a call."""

from typing import NamedTuple

from tussock.meta.rpc.methods import Role

__all__ = ["ANYONE", "Caller"]


class Caller(NamedTuple):
    """An authenticated caller of one call."""

    identity: str
    """The name of the token or certificate; `anonymous` where the service asks for none."""
    roles: Role
    request_id: str = ""
    """Drawn per call, or given by the caller; in all log lines of the call."""


ANYONE = Caller("anonymous", Role.ADMIN)
"""The caller where the service authenticates nobody."""
