"""TLS of the HTTP port, with the same files as gRPC, read again when they change.

A client may show a certificate, but need not: a probe of `/healthz` has none. Where the service asks for
certificates, the status is refused without one, except to a declared client with a token (`authentication.py`).
"""

import ssl
from collections.abc import Sequence
from pathlib import Path

from tussock.statestore.base.system import System
from tussock.statestore.base.watched_files import WatchedFiles
from tussock.statestore.errors import InvalidOption

__all__ = ["http_tls"]


def http_tls(certificate: str, key: str, client_ca: str, system: System) -> ssl.SSLContext:
    """A context whose every handshake uses what the files say then; `client_ca` may be empty.

    Raises `InvalidOption` if a file cannot be used.
    """

    def load(paths: Sequence[str]) -> ssl.SSLContext:
        for path in paths:
            Path(path).read_bytes()  # whose error names the file, as that of the TLS library does not
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.minimum_version = ssl.TLSVersion.TLSv1_2
        try:
            # An encrypted key would otherwise be asked for on the terminal.
            context.load_cert_chain(certificate, key, password=lambda: b"")
            if client_ca:
                context.load_verify_locations(client_ca)
                context.verify_mode = ssl.CERT_OPTIONAL
        except (ssl.SSLError, ValueError) as error:
            raise InvalidOption(
                f"{certificate}, {key} or {client_ca or 'no CA'} cannot be used for TLS: {error}"
            ) from None
        return context

    files = WatchedFiles([certificate, key] + [client_ca] * bool(client_ca), load, system)

    def newest(connection: ssl.SSLObject, _name: str | None, _context: ssl.SSLContext) -> None:
        # OpenSSL asks at each handshake, also of a client that names no server.
        connection.context = files.current()

    first = load([])
    first.sni_callback = newest
    return first
