"""What a client shows a meta service to say who it is: a bearer token, a certificate, both or nothing.

Given to `connect`, or left to the environment, so that a job needs no secret in its code:

| variable | |
|---|---|
| `TUSSOCK_TOKEN` | the token |
| `TUSSOCK_TOKEN_FILE` | a file that holds it, read again when it changes |
| `TUSSOCK_TLS_CA` | turns TLS on: PEM file of the CAs that the service's certificate may be of, or `system` |
| `TUSSOCK_TLS_CERT`, `TUSSOCK_TLS_KEY` | PEM files of the client's own certificate chain and key |
| `TUSSOCK_TLS_SERVER_NAME` | the name that every replica's certificate must have, whatever its address is |

`system` stands for the CAs that gRPC comes with. Without a server's name, a replica's certificate must have the host of
the address at which it is reached.
"""

from collections.abc import Mapping
from dataclasses import dataclass

from tussock.statestore.errors import InvalidOption

__all__ = ["SYSTEM_CA", "Access", "access_from"]

SYSTEM_CA = "system"


@dataclass(frozen=True, repr=False)
class Access:
    """The options, checked; empty ones are not used."""

    token: str = ""
    token_file: str = ""
    tls_ca: str = ""
    tls_cert: str = ""
    tls_key: str = ""
    tls_server_name: str = ""

    def __repr__(self) -> str:
        """Without the token, so that no log or trace of settings has it."""
        token = "***" if self.token else ""
        return (
            f"Access(token={token!r}, tls_ca={self.tls_ca!r}, tls_cert={self.tls_cert!r}, "
            f"tls_server_name={self.tls_server_name!r})"
        )


def access_from(
    environ: Mapping[str, str],
    *,
    token: str | None = None,
    tls_ca: str | None = None,
    tls_cert: str | None = None,
    tls_key: str | None = None,
    tls_server_name: str | None = None,
) -> Access:
    """What was given, else what the environment says; `InvalidOption` if it cannot work together."""

    def choose(given: str | None, variable: str) -> str:
        if given is not None and not isinstance(given, str):
            name = variable.removeprefix("TUSSOCK_").lower()
            raise InvalidOption(f"{name} is of type {type(given).__name__}; expected text")
        return environ.get(variable, "") if given is None else given

    access = Access(
        token=choose(token, "TUSSOCK_TOKEN"),
        token_file="" if token is not None else environ.get("TUSSOCK_TOKEN_FILE", ""),
        tls_ca=choose(tls_ca, "TUSSOCK_TLS_CA"),
        tls_cert=choose(tls_cert, "TUSSOCK_TLS_CERT"),
        tls_key=choose(tls_key, "TUSSOCK_TLS_KEY"),
        tls_server_name=choose(tls_server_name, "TUSSOCK_TLS_SERVER_NAME"),
    )
    if not (access.token.isascii() and access.token.isprintable()):
        raise InvalidOption("the token has characters that no token has; it is not shown here")
    if access.token and access.token_file:
        raise InvalidOption("TUSSOCK_TOKEN and TUSSOCK_TOKEN_FILE are both set; which one holds?")
    if bool(access.tls_cert) != bool(access.tls_key):
        raise InvalidOption("tls_cert and tls_key belong together: give both, or none")
    if access.tls_cert and not access.tls_ca:
        raise InvalidOption(
            f"a certificate is shown over TLS only: give tls_ca as well, a file of CAs or {SYSTEM_CA!r}"
        )
    if access.tls_server_name and not access.tls_ca:
        raise InvalidOption(
            f"tls_server_name is {access.tls_server_name!r}, but only TLS checks a name: give tls_ca as well, a file "
            f"of CAs or {SYSTEM_CA!r}"
        )
    return access
