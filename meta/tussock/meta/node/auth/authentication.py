"""Authentication: a certificate, a token or both become a `Caller` with roles.

| the service has | a caller is |
|---|---|
| neither | anonymous, and may do everything |
| `tokens.file` | the name of its token, with the token's roles |
| `tls.client_ca`, `tls.roles` | its URI that a pattern fits, else its first name, with the roles of all that fit |
| both | the name of its token, with the roles that token *and* certificate have |
| both, without `tls.roles` | as with tokens alone; the certificate only opens the connection |
| `tls.revoked` that fits its certificate | nobody, whatever else it shows |

Every refusal is a typed error whose text has names, never a secret, nor any part of one.
"""

from collections.abc import Mapping, Sequence
from typing import NamedTuple

from tussock.meta.node.auth.caller import ANYONE, Caller
from tussock.meta.node.auth.certificates import CertificateRules
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
    ) -> None:
        """Reads the file; `InvalidOption` if it, or a pattern, cannot be used."""
        self._file = TokensFile()
        self._tokens: WatchedFiles[tuple[Token, ...]] | None = None
        if tokens_file:
            self._tokens = WatchedFiles([tokens_file], self._file.read, system)
        self._certificates_required = certificates_required
        self._rules = CertificateRules(certificate_roles or {}, revoked)

    @property
    def is_open(self) -> bool:
        """Whether everybody may do everything."""
        return self._tokens is None and not self._certificates_required

    def authenticate(self, presented: Presented) -> Caller:
        """The caller, without a request id; `Unauthenticated` if token or certificate is missing or unknown."""
        if self.is_open:
            return ANYONE
        if self._certificates_required and not presented.names:
            raise Unauthenticated("the client shows no certificate that says who it is: give it tls_cert and tls_key")
        if self._rules.is_revoked(presented.names):
            raise Unauthenticated(
                f"the certificate of {self._rules.identity(presented.names)!r} is taken no more: a pattern of "
                "tls.revoked in the service's settings fits it"
            )
        of_certificate = self._rules.roles(presented.names) if self._rules else None
        if self._tokens is None:
            return Caller(self._rules.identity(presented.names), of_certificate or Role(0))
        token = self._token(presented.authorization, self._tokens.current())
        return Caller(token.name, token.roles if of_certificate is None else token.roles & of_certificate)

    def revoked_identity(self, presented: Presented) -> str:
        """Whose credentials these were, for the log: `NAME (revoked)`; empty if they never were anybody's here.

        Of tokens only those are known that left the file while this process ran.
        """
        if presented.names and self._rules.is_revoked(presented.names):
            return f"{self._rules.identity(presented.names)} (revoked)"
        token = find_token(self._file.former, _secret(presented.authorization))
        return f"{token.name} (revoked)" if token else ""

    @staticmethod
    def _token(authorization: str | None, tokens: Sequence[Token]) -> Token:
        if authorization is None:
            raise Unauthenticated("the call brings no bearer token: give the client token=..., or TUSSOCK_TOKEN")
        if not authorization[: len(_SCHEME)].lower() == _SCHEME:
            raise Unauthenticated("the metadata 'authorization' should be 'Bearer' and a token")
        token = find_token(tokens, _secret(authorization))
        if token is None:
            raise Unauthenticated("the bearer token is not known here; it was revoked, or never in the tokens file")
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


def _secret(authorization: str | None) -> str:
    """What stands behind the scheme."""
    return (authorization or "")[len(_SCHEME) :].strip()


def _list_roles(roles: Role, between: str) -> str:
    names = [str(role.name).lower() for role in roles]
    if not names:
        return "no role"
    return f"the role{'s' if len(names) > 1 and between == 'and' else ''} {f' {between} '.join(names)}"
