"""`tussock pause` and `tussock resume`: of an application its requests, of a platform its compaction.

They need the extra `platform`, so what asks the service is imported when it is asked for.
"""

import os
from typing import Annotated

import typer

from tussock.cli.commands.application import client_of
from tussock.cli.options import AnyApplication, OrMeta, TlsCa, TlsCert, TlsKey, TlsServerName
from tussock.cli.output import note
from tussock.cli.places import ask_service
from tussock.statestore.base.identity import Access, access_from
from tussock.statestore.errors import AccessDenied

__all__ = ["pause", "resume"]


def pause(
    address: AnyApplication = None,
    meta: OrMeta = None,
    reason: Annotated[
        str | None,
        typer.Option("--reason", "-r", help="Of a platform: shown by `tussock status` and the console."),
    ] = None,
    tls_ca: TlsCa = None,
    tls_cert: TlsCert = None,
    tls_key: TlsKey = None,
    tls_server_name: TlsServerName = None,
) -> None:
    """Pause an application, whose requests then wait; or, with --meta and --reason, the compaction of a platform.

    Of a platform: running tasks end, no new ones begin, until `tussock resume`; also across leaders. Writers are slowed
    down and then stopped as their tables fill up with small runs. Needs the role admin: a token comes in TUSSOCK_TOKEN
    or in the file that TUSSOCK_TOKEN_FILE names.
    """
    if address is not None:
        with client_of(address, tls_ca, tls_cert, tls_key, tls_server_name) as client:
            client.pause()
        note("the application is paused; its clients will wait: tussock resume")
        return
    if meta is None or reason is None:
        raise typer.BadParameter("give the HOST:PORT of an application; or --meta and --reason for a platform")
    access = access_from(os.environ, tls_ca=tls_ca, tls_cert=tls_cert, tls_key=tls_key, tls_server_name=tls_server_name)
    _tell(meta, access, paused=True, reason=reason)
    note("compaction is paused; writers will be held back in time: tussock resume")


def resume(
    address: AnyApplication = None,
    meta: OrMeta = None,
    tls_ca: TlsCa = None,
    tls_cert: TlsCert = None,
    tls_key: TlsKey = None,
    tls_server_name: TlsServerName = None,
) -> None:
    """Let an application, or with --meta the compaction of a platform, go on after `tussock pause`.

    Needs the role admin: a token comes in TUSSOCK_TOKEN or in the file that TUSSOCK_TOKEN_FILE names.
    """
    if address is not None:
        with client_of(address, tls_ca, tls_cert, tls_key, tls_server_name) as client:
            client.resume()
        note("the application goes on")
        return
    if meta is None:
        raise typer.BadParameter("give the HOST:PORT of an application; or --meta for a platform")
    access = access_from(os.environ, tls_ca=tls_ca, tls_cert=tls_cert, tls_key=tls_key, tls_server_name=tls_server_name)
    _tell(meta, access, paused=False, reason="")
    note("compaction goes on")


def _tell(meta: str, access: Access, *, paused: bool, reason: str) -> None:
    from tussock.meta.rpc import meta_pb2 as pb

    try:
        ask_service(meta, access, "PauseCompaction", pb.PauseCompactionRequest(paused=paused, reason=reason))
    except AccessDenied as error:
        if paused:
            raise
        raise AccessDenied(f"compaction was not resumed: {error}; that call resumes, too", *error.args[1:]) from error
