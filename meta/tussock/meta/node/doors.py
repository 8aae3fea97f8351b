"""The doors of a node, made of its settings: its callers, encryption, the port of HTTP, and the signals that close.

What serves behind them differs, so each kind of node wires these by itself.
"""

import asyncio
import gc
import os
import signal
import sys
from collections.abc import Mapping
from typing import Any

import grpc
from aiohttp import web

from tussock.meta.node.auth.authentication import Authenticator
from tussock.meta.node.auth.bearers.oidc import OidcTokens
from tussock.meta.node.auth.bearers.proofs import Proofs
from tussock.meta.node.auth.bearers.signed_tokens import SignedTokens
from tussock.meta.node.auth.bearers.token_review import TokenReviews, api_of_pod
from tussock.meta.node.auth.clients.registry import ClientRegistry
from tussock.meta.node.auth.http_tls import http_tls
from tussock.meta.node.auth.tls import server_credentials
from tussock.meta.node.settings.groups import OidcSettings, ServiceAccountSettings, TlsSettings, TokenSettings
from tussock.meta.node.wire.addresses import unusable_address
from tussock.meta.node.wire.http_port import start_http
from tussock.statestore.base.process.garbage import collect_rarely
from tussock.statestore.base.system import System
from tussock.statestore.errors import InvalidOption

__all__ = [
    "authenticator_of",
    "grpc_credentials",
    "listen_http",
    "signed_tokens",
    "spare_collector",
    "stop_on_signals",
    "warn_of_open_doors",
]


def authenticator_of(
    tls: TlsSettings,
    tokens: TokenSettings,
    system: System,
    *,
    clients_file: str = "",
    signed: SignedTokens | None = None,
) -> Authenticator:
    """Decides who calls; `InvalidOption` if a file cannot be used."""
    return Authenticator(
        system,
        tokens_file=tokens.file,
        certificates_required=bool(tls.client_ca),
        certificate_roles=tls.roles.model_dump(),
        revoked=tls.revoked,
        clients=ClientRegistry(clients_file, system) if clients_file else None,
        signed=signed,
    )


def signed_tokens(
    accounts: ServiceAccountSettings, oidc: OidcSettings, environ: Mapping[str, str], system: System
) -> SignedTokens:
    """The kinds of signed tokens that the settings allow; `InvalidOption` if they cannot be asked about."""
    issuers = OidcTokens(system, authority=oidc.ca, allow_http=oidc.allow_http)
    of_issuers = Proofs(system, issuers.check, "tokens of OIDC issuers")
    if not accounts.audience:
        return SignedTokens(oidc=of_issuers)
    api = accounts.api or api_of_pod(environ)
    if not api:
        raise InvalidOption("accounts.audience is set, but this process does not run in a pod: set accounts.api")
    reviews = TokenReviews(system, api, accounts.audience, accounts.folder)
    return SignedTokens(accounts=Proofs(system, reviews.check, "tokens of service accounts"), oidc=of_issuers)


def grpc_credentials(tls: TlsSettings, system: System) -> grpc.ServerCredentials | None:
    """What gRPC encrypts by, following its files; `None` without a certificate."""
    return server_credentials(tls.certificate, tls.key, tls.client_ca, system) if tls.certificate else None


async def listen_http(app: web.Application, address: str, tls: TlsSettings, system: System) -> str:
    """Serve `app` at `host:port`; returns the address with the port that was taken, empty for an empty one.

    `InvalidOption` if it cannot be listened on.
    """
    if not address:
        return ""
    host, _, port = address.rpartition(":")
    context = http_tls(tls.certificate, tls.key, tls.client_ca, system) if tls.certificate else None
    try:
        _, taken = await start_http(app, host.strip("[]"), int(port), context)
    except OSError as error:
        raise unusable_address(address, error, "http_listen") from None
    return f"{host}:{taken}"


def spare_collector() -> None:
    """Let the garbage collector pass over what the start has left, which stays as long as the process.

    A full collection looks at all objects, and takes a fifth of a second with those: nobody is answered meanwhile.
    """
    gc.collect()
    gc.freeze()
    collect_rarely()


def stop_on_signals(stopped: asyncio.Event, log: Any) -> None:
    """Let SIGTERM and SIGINT set the event, and the second of them end the process at once."""

    def stop() -> None:
        if stopped.is_set():
            log.warning("stopped at once, by a second signal")
            sys.stderr.flush()
            os._exit(1)
        stopped.set()

    for number in (signal.SIGTERM, signal.SIGINT):
        asyncio.get_running_loop().add_signal_handler(number, stop)


def warn_of_open_doors(
    authenticator: Authenticator, tls: TlsSettings, tokens: TokenSettings, what: str, log: Any
) -> None:
    """Log which doors of `what` are open, where somebody may have meant to close them."""
    if authenticator.is_open:
        log.warning(f"anybody who reaches this {what} may do everything", set="tokens.file, or tls.client_ca")
    elif (tokens.file or authenticator.clients) and not tls.certificate:
        log.warning("tokens travel unencrypted", set="tls.certificate and tls.key, or encrypt below the service")
