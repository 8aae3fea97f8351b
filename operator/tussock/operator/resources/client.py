"""`StateStoreClient`: a client of a store that runs elsewhere, with its own name and certificate, and with limits."""

from collections.abc import Mapping
from typing import Any, ClassVar, Literal

from msgspec import field

from tussock.operator.resources.common import CamelStruct, StoreUser, StoreUserSpec, parse

__all__ = ["ClientSpec", "IssuedIdentity", "StateStoreClient", "parse_client"]


class IssuedIdentity(CamelStruct, frozen=True, kw_only=True):
    """Somebody as an OIDC issuer knows them."""

    issuer: str
    audience: str
    subject: str = ""
    """Empty: the claims say enough."""
    claims: dict[str, str] = field(default_factory=dict)


class ClientSpec(StoreUserSpec, frozen=True, kw_only=True):
    """What the client may do, until when, and how it is known."""

    role: Literal["reader", "writer", "compactor", "admin"]
    tables: tuple[str, ...] = ()
    """Of a writer: the tables that it may write, names or beginnings of names with `*` after them; none: all."""
    rate: float | None = None
    """Calls a second over time; None: what holds for everybody."""
    expires_at: str = ""
    """From when on it is let in no more; empty: never."""
    revoked: bool = False
    certificate: bool | None = None
    """Whether its certificate alone is enough; None: if there is no other way by which it is known."""
    certificate_version: int = 1
    """A certificate of another version is taken no more."""
    service_accounts: tuple[str, ...] = ()
    """Names of those of its namespace."""
    oidc: tuple[IssuedIdentity, ...] = ()


class StateStoreClient(StoreUser, frozen=True, kw_only=True):
    """A declared client."""

    kind: ClassVar[str] = "StateStoreClient"

    spec: ClientSpec

    @property
    def is_known_by_certificate(self) -> bool:
        """Whether its certificate alone is enough. One that is not enough opens the connection all the same."""
        is_known_by_tokens = bool(self.spec.oidc or self.spec.service_accounts)
        return not is_known_by_tokens if self.spec.certificate is None else self.spec.certificate


def parse_client(body: Mapping[str, Any]) -> StateStoreClient:
    """The body of a `StateStoreClient`; `InvalidResource` if it does not fit."""
    return parse(body, StateStoreClient)
