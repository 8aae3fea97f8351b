"""Mistakes of TLS that no waiting mends: when a client that has just begun may stop trying.

A wrong CA, a missing certificate or a port without TLS fails at every attempt until somebody changes an option. But a
replica that restarts, or a proxy before it, may look like that for a moment. So a client gives up only if the handshake
itself shows the mistake, at every replica that it knows, at two times apart, and if none has ever answered it: a client
that had an answer has the right options, and what fails then is a certificate that is being replaced.
"""

import contextlib
import socket
import ssl
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from tussock.statestore.base.identity import SYSTEM_CA, Access
from tussock.statestore.errors import MetaUnavailable, TussockError

__all__ = ["SECONDS_APART", "TlsMistake", "TlsMistakes", "closes_for_tls"]

SECONDS_APART = 1.5
"""Between two failures that count as two. gRPC repeats the error of its last handshake for up to 1.2 seconds
(`grpc.max_reconnect_backoff_ms` and a fifth by chance), so these are of two handshakes."""
PROBE_SECONDS_MAX = 1.0


class TlsMistake(MetaUnavailable):
    """A replica could not be reached, for a reason that the handshake shows. Internal to the client."""


@dataclass(frozen=True)
class TlsMistakes:
    """What the attempts of one client have shown so far; times are seconds on a clock that only moves forward."""

    spans: Mapping[str, tuple[float, float]] = field(default_factory=dict)
    """By address: the first and the last of the mistakes since the last attempt that failed for another reason."""
    is_answered: bool = False
    """A replica has answered: the options are right."""

    def after(self, address: str, now: float, failure: TussockError | None) -> "TlsMistakes":
        """After an attempt at `address` that failed so, or did not. Every refusal by a replica is an answer."""
        if self.is_answered or not isinstance(failure, MetaUnavailable):
            return self if self.is_answered else TlsMistakes(is_answered=True)
        spans = dict(self.spans)
        first, _ = spans.pop(address, (now, now))
        if isinstance(failure, TlsMistake):
            spans[address] = (first, now)
        return TlsMistakes(spans)

    def are_hopeless(self, addresses: Iterable[str]) -> bool:
        """Whether all these replicas have shown a mistake twice."""
        never = (0.0, 0.0)
        spans = [self.spans.get(address, never) for address in addresses]
        # Not `<`: at exactly this distance the handshakes are two.
        return not self.is_answered and all(last - first >= SECONDS_APART for first, last in spans)


def closes_for_tls(address: str, access: Access) -> bool:
    """Whether what answers at `host:port` closes connections because of TLS, which gRPC tells as `Socket closed` only.

    A client without TLS is closed out by a service that speaks it: then a handshake succeeds. A client without the
    certificate that the service asks for, or with one of another CA, is closed out at the end of the handshake, before
    the first byte of HTTP/2, which a server that takes the client sends at once.
    """
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname = False
    context.set_alpn_protocols(["h2"])
    host, _, port = address.rpartition(":")
    try:
        _load(context, access)
        with socket.create_connection((host.strip("[]"), int(port)), PROBE_SECONDS_MAX) as plain:
            try:
                with context.wrap_socket(plain, server_hostname=access.tls_server_name or host.strip("[]")) as secure:
                    return not access.tls_ca or (secure.selected_alpn_protocol() == "h2" and _is_closed(secure))
            except ssl.SSLError as error:
                # A server of TLS 1.2 says what it misses while the handshake runs.
                return "ALERT" in (error.reason or "")
    except (OSError, ValueError):
        return False


def _load(context: ssl.SSLContext, access: Access) -> None:
    if not access.tls_ca:
        # Nothing is sent, and nothing that is received is used: only whether there is an answer in TLS.
        context.verify_mode = ssl.CERT_NONE
    elif access.tls_ca == SYSTEM_CA:
        context.load_default_certs()
    else:
        context.load_verify_locations(access.tls_ca)
    if access.tls_cert:
        context.load_cert_chain(access.tls_cert, access.tls_key, password=lambda: b"")


def _is_closed(connection: ssl.SSLSocket) -> bool:
    """Whether the other side ends the connection without a byte; it says nothing for a second if it is only slow."""
    with contextlib.suppress(ConnectionError, ssl.SSLEOFError):
        try:
            return not connection.recv(1)
        except TimeoutError:
            return False
    return True
