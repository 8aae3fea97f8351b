"""What the commands for flows share: their arguments, and the client.

They need the extra `platform`, so what asks the node is imported when it is asked for.
"""

from contextlib import AbstractContextManager
from typing import TYPE_CHECKING, Annotated, TypeAlias

import typer

from tussock.cli.commands.application import DEADLINE_SECONDS, client_access

if TYPE_CHECKING:
    from tussock.compute.changelog import Client

__all__ = ["StreamName", "client_of_flow"]

StreamName: TypeAlias = Annotated[str, typer.Argument(metavar="STREAM", help="A stream of the flow.")]


def client_of_flow(
    address: str,
    tls_ca: str | None,
    tls_cert: str | None,
    tls_key: str | None,
    tls_server_name: str | None,
    timeout: float | None = None,
) -> "AbstractContextManager[Client]":
    """A client of the flow there, tried for `timeout` seconds; a token comes from the environment."""
    from tussock.compute.changelog.remote.client import FlowClient

    access = client_access(tls_ca, tls_cert, tls_key, tls_server_name)
    return FlowClient(address, **access, deadline=DEADLINE_SECONDS if timeout is None else timeout)
