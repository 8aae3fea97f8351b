"""A declared client: how it is known, what it may do, and until when.

Roles and tokens say what a kind of caller may do; a declaration says it of one caller. It names the ways by which the
client is known (any of them is enough) and narrows what it may do, so it counts before the patterns of `tls.roles` and
the lines of `tokens.file`: a wider rule that fits the same certificate must not undo it.
"""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple, TypeVar

from tussock.meta.node.auth.certificates import fits
from tussock.meta.rpc.methods import Role
from tussock.statestore.errors import InvalidOption, Unauthenticated

__all__ = ["IDENTITY_PREFIX", "DeclaredClient", "DeclaredClients", "OidcIdentity"]

K = TypeVar("K")

IDENTITY_PREFIX = "client:"
"""Before the name of a declared client in its identity. No token's name has a colon, so no token can take its place."""


class OidcIdentity(NamedTuple):
    """Somebody as an OIDC issuer knows them."""

    issuer: str
    audience: str
    """For which a token must be made."""
    subject: str = ""
    """Empty if the claims say enough."""
    claims: tuple[tuple[str, str], ...] = ()
    """Names and values that the token must have; of a claim that is a list one of its items."""

    def fits(self, claims: Mapping[str, Any]) -> bool:
        """Whether a token that says this is of them."""
        return (
            claims.get("iss") == self.issuer
            and _has(claims.get("aud"), self.audience)
            and (not self.subject or claims.get("sub") == self.subject)
            and all(_has(claims.get(name), value) for name, value in self.claims)
        )


class DeclaredClient(NamedTuple):
    """One client as the file declares it."""

    name: str
    roles: Role
    certificates: tuple[str, ...] = ()
    """Patterns as those of `tls.roles`."""
    tokens: tuple[bytes, ...] = ()
    """SHA-256 of its bearer tokens."""
    accounts: tuple[str, ...] = ()
    """Service accounts of Kubernetes, `NAMESPACE/NAME`."""
    oidc: tuple[OidcIdentity, ...] = ()
    tables: tuple[str, ...] = ()
    """Names, or beginnings of names with `*` after them, of the tables that it may write; empty for all."""
    rate: float = 0.0
    """Calls a second over time; 0 for what holds for everybody."""
    expires_ms: int | None = None
    """From when on it is let in no more."""
    revoked: bool = False

    @property
    def identity(self) -> str:
        """What the client goes by in the log, in limits and in its sessions."""
        return IDENTITY_PREFIX + self.name

    def refusal(self, now_ms: int) -> str:
        """Why it is let in no more; empty if it is let in."""
        if self.revoked:
            return f"the client {self.name!r} is revoked in the service's clients file"
        # At that very moment, too: "until" is how people read it.
        if self.expires_ms is not None and now_ms >= self.expires_ms:
            return f"the client {self.name!r} has expired; its entry in the service's clients file says when"
        return ""


class DeclaredClients:
    """All declared clients of one state of the file. Never changes, so threads may share it."""

    def __init__(self, clients: Iterable[DeclaredClient], revoked: Sequence[str] = ()) -> None:
        """`revoked` are patterns of certificates, of declared clients or others, that are taken no more.

        `InvalidOption` if two clients are known by the same: then nobody could say which of them calls.
        """
        self._revoked = tuple(revoked)
        self._by_name: dict[str, DeclaredClient] = {}
        self._by_token: dict[bytes, DeclaredClient] = {}
        self._by_certificate: dict[str, DeclaredClient] = {}
        self._by_account: dict[str, DeclaredClient] = {}
        self._by_issuer: dict[str, list[tuple[OidcIdentity, DeclaredClient]]] = {}
        for client in clients:
            self._by_name[client.name] = client
            for token in client.tokens:
                _put(self._by_token, token, client, "a token")
            for account in client.accounts:
                _put(self._by_account, account, client, f"the service account {account!r}")
            for identity in client.oidc:
                self._by_issuer.setdefault(identity.issuer, []).append((identity, client))
            for pattern in client.certificates:
                _put(self._by_certificate, pattern, client, f"the certificate {pattern!r}")
        self._beginnings = [one for one in self._by_certificate.items() if one[0].endswith("*")]

    def get(self, identity: str) -> DeclaredClient | None:
        """The client of that identity, revoked or not; `None` if none is declared."""
        return self._by_name.get(identity.removeprefix(IDENTITY_PREFIX))

    def all(self) -> Mapping[str, DeclaredClient]:
        """By name."""
        return self._by_name

    def is_revoked(self, names: Sequence[str]) -> bool:
        """Whether a certificate with these names is taken no more, whatever else the caller shows."""
        return any(fits(pattern, name) for pattern in self._revoked for name in names)

    def of_certificate(self, names: Sequence[str]) -> DeclaredClient | None:
        """The client whose certificate has one of `names`; `Unauthenticated` if it would be several clients."""
        found = {self._by_certificate[name].name for name in names if name in self._by_certificate}
        found |= {client.name for name in names for pattern, client in self._beginnings if fits(pattern, name)}
        clients = sorted(found)
        if len(clients) > 1:
            raise Unauthenticated(
                f"the certificate is that of several declared clients, {' and '.join(map(repr, clients))}: let their "
                "patterns fit one certificate each"
            )
        return self._by_name[clients[0]] if clients else None

    def of_token(self, digest: bytes) -> DeclaredClient | None:
        """The client with the token of this SHA-256, by which no secret can be guessed piece by piece."""
        return self._by_token.get(digest)

    def of_account(self, account: str) -> DeclaredClient | None:
        """The client with the service account `NAMESPACE/NAME`."""
        return self._by_account.get(account)

    def of_claims(self, claims: Mapping[str, Any]) -> DeclaredClient | None:
        """The client whose issuer, audience and claims these are; `Unauthenticated` if it would be several clients."""
        issuer = claims.get("iss")
        declared = self._by_issuer.get(issuer, ()) if isinstance(issuer, str) else ()
        found = {client.name: client for identity, client in declared if identity.fits(claims)}
        if len(found) > 1:
            raise Unauthenticated(
                f"the bearer token is that of several declared clients, {' and '.join(map(repr, sorted(found)))}: let "
                "their claims fit one each"
            )
        return next(iter(found.values()), None)


def _has(claim: object, value: str) -> bool:
    return claim == value or (isinstance(claim, list) and value in claim)


def _put(known: dict[K, DeclaredClient], key: K, client: DeclaredClient, what: str) -> None:
    other = known.setdefault(key, client)
    if other is not client:
        raise InvalidOption(
            f"the clients {other.name!r} and {client.name!r} are both known by {what}: which of them would call?"
        )
