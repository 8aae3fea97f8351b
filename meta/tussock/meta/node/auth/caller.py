"""The caller of a method, and the handlers that answer it."""

from collections.abc import Callable
from typing import NamedTuple

from google.protobuf.message import Message

from tussock.meta.node.auth.certificates import fits
from tussock.meta.rpc.methods import Role
from tussock.statestore.errors import AccessDenied

__all__ = ["ANYONE", "Caller", "Handlers"]

TABLES_SHOWN = 8
"""In a refusal."""


class Caller(NamedTuple):
    """An authenticated caller of one call."""

    identity: str
    """The name of the token or certificate; `anonymous` where the service asks for none."""
    roles: Role
    request_id: str = ""
    """Drawn per call, or given by the caller; in all log lines of the call."""
    host: str = ""
    """Where the call comes from, as limits tell callers of one identity apart."""
    tables: tuple[str, ...] = ()
    """Of a declared client: the tables that it may write, names or beginnings with `*`; empty for all."""
    rate: float = 0.0
    """Of a declared client: the calls a second that it may make; 0 for what holds for everybody."""

    def check_table(self, table: str) -> None:
        """Raise `AccessDenied` if the caller may not write this table."""
        if not self.tables or any(fits(pattern, table) for pattern in self.tables):
            return
        raise AccessDenied(
            f"{self.identity!r} may not write table {table!r}; nothing was stored. Its entry in the service's clients "
            f"file names {', '.join(self.tables[:TABLES_SHOWN])}{' and others' * (len(self.tables) > TABLES_SHOWN)}",
            self.identity,
        )


Handlers = dict[str, Callable[..., Message]]
"""By RPC, what answers it: called with the request's message and the caller."""

ANYONE = Caller("anonymous", Role.ADMIN)
"""The caller where the service authenticates nobody."""
