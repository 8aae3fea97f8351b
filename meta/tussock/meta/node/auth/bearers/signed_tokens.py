"""Which declared client a signed token is of: whom to ask by what it claims, and what came of it.

A token is proven only if it claims to be of somebody whom the clients file declares.
"""

import hashlib

from tussock.meta.node.auth.bearers.claims import account_of, unproven_claims
from tussock.meta.node.auth.bearers.proofs import Proofs
from tussock.meta.node.auth.clients.declarations import DeclaredClient, DeclaredClients
from tussock.statestore.errors import Unauthenticated

__all__ = ["SignedTokens"]


class SignedTokens:
    """Knows signed tokens, of the kinds that the service is set up for. `prove` is for the event loop."""

    def __init__(self, *, accounts: Proofs | None = None, oidc: Proofs | None = None) -> None:
        """`accounts` proves tokens of service accounts, `oidc` those of issuers."""
        self._accounts = accounts
        self._oidc = oidc

    def is_new(self, token: str, clients: DeclaredClients) -> bool:
        """Whether it takes a proof to tell whose the token is."""
        proofs = self._proofs_for(token, clients)
        return proofs is not None and proofs.find(_digest(token)) is None

    async def prove(self, token: str, clients: DeclaredClients) -> None:
        """Find out about a token, so that `client_of` can tell; nothing for one that no declared client could have.

        Raises `MetaUnavailable` if that cannot be found out now, `RateLimited` if too many tokens are new.
        """
        proofs = self._proofs_for(token, clients)
        if proofs is not None:
            await proofs.prove(_digest(token), token)

    def client_of(self, token: str, clients: DeclaredClients) -> DeclaredClient | None:
        """The client with this token; `None` if it claims nothing about one, `Unauthenticated` if that is not so."""
        proofs = self._proofs_for(token, clients)
        if proofs is None:
            return None
        proven = proofs.find(_digest(token))
        if proven is None:
            raise Unauthenticated("the bearer token was not looked at yet; call again")
        if proven.refusal:
            raise Unauthenticated(proven.refusal)
        if proofs is self._oidc:
            return clients.of_claims(proven.claims)
        return clients.of_account(str(proven.claims["account"]))

    def _proofs_for(self, token: str, clients: DeclaredClients) -> Proofs | None:
        claims = unproven_claims(token)
        if claims is None:
            return None
        if clients.of_account(account_of(claims.get("sub"))) is not None:
            return self._accounts
        # An issuer that is not declared is nobody to ask for keys.
        return self._oidc if clients.of_claims(claims) is not None else None


def _digest(token: str) -> bytes:
    return hashlib.sha256(token.encode("utf-8", "surrogateescape")).digest()
