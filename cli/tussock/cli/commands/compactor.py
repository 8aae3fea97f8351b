"""`tussock compactor`: a compactor node of a meta service.

It needs the extra `platform`, so what it is made of is imported when it is asked for.
"""

import os
import socket
from typing import Annotated

import typer

from tussock.cli.options import TlsCa, TlsCert, TlsKey, TlsServerName
from tussock.statestore.base.identity import access_from

__all__ = ["compactor"]

_PREFIX = "TUSSOCK_COMPACTOR_"


def compactor(
    meta: Annotated[
        str,
        typer.Option(envvar=_PREFIX + "META", metavar="HOST:PORT,...", help="Replicas of the meta service."),
    ],
    slots: Annotated[
        int, typer.Option(envvar=_PREFIX + "SLOTS", min=1, max=1024, help="Processes; 0.5 GB of memory each.")
    ] = 1,
    name: Annotated[
        str,
        typer.Option(
            envvar=_PREFIX + "NAME", help="Unique among compactors; by default the host, and digits by chance."
        ),
    ] = "",
    memory_mib: Annotated[
        int, typer.Option(envvar=_PREFIX + "MEMORY_MIB", min=0, help="For all slots together; 0: no limit.")
    ] = 0,
    deadline: Annotated[
        float, typer.Option(envvar=_PREFIX + "DEADLINE", min=1.0, help="Seconds for a request or a call.")
    ] = 30.0,
    drain: Annotated[
        float, typer.Option(envvar=_PREFIX + "DRAIN", min=0.0, help="Seconds that SIGTERM waits for tasks to stop.")
    ] = 20.0,
    health_listen: Annotated[
        str, typer.Option(envvar=_PREFIX + "HEALTH_LISTEN", metavar="HOST:PORT", help="Where probes are answered.")
    ] = "",
    log_level: Annotated[
        str, typer.Option(envvar=_PREFIX + "LOG_LEVEL", help="debug, info, warning or error.")
    ] = "info",
    log_format: Annotated[str, typer.Option(envvar=_PREFIX + "LOG_FORMAT", help="json or text.")] = "json",
    tls_ca: TlsCa = None,
    tls_cert: TlsCert = None,
    tls_key: TlsKey = None,
    tls_server_name: TlsServerName = None,
) -> None:
    """Run a compactor node until SIGTERM, which hands running tasks back.

    A token, if the service asks for one, comes in TUSSOCK_TOKEN or in the file that TUSSOCK_TOKEN_FILE names.
    """
    from tussock.compactor.node.serve import CompactorSettings, serve
    from tussock.meta.client.addresses import addresses_in
    from tussock.statestore.base.system import RealSystem

    if log_level not in ("debug", "info", "warning", "error"):
        raise typer.BadParameter("--log-level is debug, info, warning or error")
    if log_format not in ("json", "text"):
        raise typer.BadParameter("--log-format is json or text")
    settings = CompactorSettings(
        addresses=tuple(addresses_in(meta)),
        name=name or f"{socket.gethostname()}:{RealSystem().random_bytes(2).hex()}",
        slots=slots,
        memory_bytes=memory_mib << 20,
        deadline_seconds=deadline,
        drain_seconds=drain,
        health_listen=health_listen,
        log_level=log_level,
        log_format=log_format,
    )
    access = access_from(os.environ, tls_ca=tls_ca, tls_cert=tls_cert, tls_key=tls_key, tls_server_name=tls_server_name)
    serve(settings, access)
