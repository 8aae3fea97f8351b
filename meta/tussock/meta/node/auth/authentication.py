"""Authentication: a certificate, a token or both become a `Caller` with roles.

| the service has | a caller is |
|---|---|
| neither | anonymous, and may do everything |
| `tokens.file` | the name of its token, with the token's roles |
| `tls.client_ca`, `tls.roles` | its URI that a pattern fits, else its first name, with the roles of all that fit |
| both | the name of its token, with the roles that token *and* certificate have |
| both, without `tls.roles` | as with tokens alone; the certificate only opens the connection |
| `tls.revoked`, or `revoked` of `clients.file`, that fits its certificate | nobody, whatever else it shows |
| `clients.file` that has its certificate or token | that declared client, with what the file says and nothing else |

A page is looked at by browsers, which have a token at best: there the token of a declared client is enough, also where
the service asks for certificates.

Every refusal is a typed error whose text has names, never a secret, nor any part of one.
"""

import hashlib
from collections.abc import Mapping, Sequence
from typing import NamedTuple

from tussock.meta.node.auth.bearers.signed_tokens import SignedTokens
from tussock.meta.node.auth.caller import ANYONE, Caller
from tussock.meta.node.auth.certificates import CertificateRules
from tussock.meta.node.auth.clients.declarations import DeclaredClient
from tussock.meta.node.auth.clients.registry import ClientRegistry
from tussock.meta.node.auth.tokens import Token, TokensFile, find_token
from tussock.meta.rpc.methods import Method, Role
from tussock.statestore.base.system import System
from tussock.statestore.base.watched_files import WatchedFiles
from tussock.statestore.errors import AccessDenied, Unauthenticated

__all__ = ["Authenticator", "Presented", "authorize"]

_SCHEME = "bearer "


class Presented(NamedTuple):
    """What a call brings along to say who makes it."""

    authorization: str | None
    """The metadata of that name."""
    names: Sequence[str]
    """Those of the certificate; empty without one."""
    is_page: bool = False
    """Whether it asks for a page, and not for a call."""

    def __repr__(self) -> str:
        """The secret stays out of whatever prints this."""
        return f"Presented(authorization={'***' if self.authorization else None}, names={self.names!r})"


class Authenticator:
    """Decides who calls, by rules that may change while the service runs. Safe to share between threads."""

    def __init__(
        self,
        system: System,
        *,
        tokens_file: str = "",
        certificates_required: bool = False,
        certificate_roles: Mapping[str, Sequence[str]] | None = None,
        revoked: Sequence[str] = (),
        clients: ClientRegistry | None = None,
        signed: SignedTokens | None = None,
    ) -> None:
        """Reads the file; `InvalidOption` if it, or a pattern, cannot be used."""
        self._system = system
        self.clients = clients
        """The declared ones, if there are any."""
        self._signed = signed or SignedTokens()
        self._file = TokensFile()
        self._tokens: WatchedFiles[tuple[Token, ...]] | None = None
        if tokens_file:
            self._tokens = WatchedFiles([tokens_file], self._file.read, system)
        self._certificates_required = certificates_required
        self._rules = CertificateRules(certificate_roles or {}, revoked)

    @property
    def is_open(self) -> bool:
        """Whether everybody may do everything."""
        return self._tokens is None and not self._certificates_required and self.clients is None

    async def prove(self, presented: Presented) -> None:
        """Find out about a token that somebody else has signed, before `authenticate` is asked about it.

        Raises `MetaUnavailable` if that cannot be found out now, `RateLimited` if too many tokens are new.
        """
        if self.clients is not None and presented.authorization is not None:
            await self._signed.prove(_secret(presented.authorization), self.clients.current())

    def has_to_prove(self, presented: Presented) -> bool:
        """Whether `prove` would do anything: it may cost somebody a request."""
        if self.clients is None or presented.authorization is None:
            return False
        return self._signed.is_new(_secret(presented.authorization), self.clients.current())

    def authenticate(self, presented: Presented) -> Caller:
        """The caller, without a request id; `Unauthenticated` if token or certificate is missing or unknown."""
        if self.is_open:
            return ANYONE
        if self._certificates_required and not presented.names:
            if presented.is_page and (declared := self._declared(presented)) is not None:
                return _caller_of(declared, self._system.now_ms())
            other = ", or here the token of a declared client" if presented.is_page and self.clients else ""
            raise Unauthenticated(
                f"the client shows no certificate that says who it is: give it tls_cert and tls_key{other}"
            )
        if place := self._revoked_by(presented.names):
            raise Unauthenticated(
                f"the certificate of {self._rules.identity(presented.names)!r} is taken no more: a pattern of {place} "
                "fits it"
            )
        if (declared := self._declared(presented)) is not None:
            return _caller_of(declared, self._system.now_ms())
        of_certificate = self._rules.roles(presented.names) if self._rules else None
        if self._tokens is None and presented.names:
            return Caller(self._rules.identity(presented.names), of_certificate or Role(0))
        token = self._token(presented.authorization, self._tokens.current() if self._tokens else ())
        return Caller(token.name, token.roles if of_certificate is None else token.roles & of_certificate)

    def revoked_identity(self, presented: Presented) -> str:
        """Whose credentials these were, for the log: `NAME (revoked)`; empty if they never were anybody's here.

        Of tokens only those are known that left the file while this process ran.
        """
        if self._revoked_by(presented.names):
            return f"{self._rules.identity(presented.names)} (revoked)"
        try:
            declared = self._declared(presented)
        except Unauthenticated:
            declared = None
        if declared is not None:
            return f"{declared.identity} (revoked)"
        token = find_token(self._file.former, _secret(presented.authorization))
        return f"{token.name} (revoked)" if token else ""

    def _revoked_by(self, names: Sequence[str]) -> str:
        """Where it says that a certificate with these names is taken no more; empty if it is taken."""
        if self._rules.is_revoked(names):
            return "tls.revoked in the service's settings"
        if self.clients is not None and self.clients.current().is_revoked(names):
            return "`revoked` in the service's clients file"
        return ""

    def _declared(self, presented: Presented) -> DeclaredClient | None:
        """The declared client that calls, let in or not; `Unauthenticated` if certificate and token are of two."""
        if self.clients is None:
            return None
        known = self.clients.current()
        by_certificate = known.of_certificate(presented.names)
        secret = _secret(presented.authorization).encode("utf-8", "surrogateescape")
        by_token = known.of_token(hashlib.sha256(secret).digest()) or self._signed.client_of(
            _secret(presented.authorization), known
        )
        if by_certificate and by_token and by_certificate is not by_token:
            raise Unauthenticated(
                f"the certificate is that of the client {by_certificate.name!r}, and the token that of "
                f"{by_token.name!r}: show those of one client"
            )
        return by_token or by_certificate

    @staticmethod
    def _token(authorization: str | None, tokens: Sequence[Token]) -> Token:
        if authorization is None:
            raise Unauthenticated("the call brings no bearer token: give the client token=..., or TUSSOCK_TOKEN")
        if not authorization[: len(_SCHEME)].lower() == _SCHEME:
            raise Unauthenticated("the metadata 'authorization' should be 'Bearer' and a token")
        token = find_token(tokens, _secret(authorization))
        if token is None:
            raise Unauthenticated("the bearer token is not known here; it was revoked, or was never in its files")
        return token


def authorize(caller: Caller, method: Method) -> None:
    """Raise `AccessDenied` unless one of the caller's roles may call the method."""
    if not caller.roles & method.roles:
        has, needed = _list_roles(caller.roles, "and"), _list_roles(method.roles, "or")
        raise AccessDenied(
            f"{caller.identity!r} has {has}, and {method.name} needs {needed}",
            caller.identity,
            method.name,
        )


def _caller_of(client: DeclaredClient, now_ms: int) -> Caller:
    if refusal := client.refusal(now_ms):
        raise Unauthenticated(refusal)
    return Caller(client.identity, client.roles, tables=client.tables, rate=client.rate)


def _secret(authorization: str | None) -> str:
    """What stands behind the scheme."""
    return (authorization or "")[len(_SCHEME) :].strip()


def _list_roles(roles: Role, between: str) -> str:
    names = [str(role.name).lower() for role in roles]
    if not names:
        return "no role"
    return f"the role{'s' if len(names) > 1 and between == 'and' else ''} {f' {between} '.join(names)}"
