"""The options that all nodes have, in the same words: addresses, TLS, tokens, logs."""

from typing import Annotated, Literal

from pydantic import AfterValidator, BaseModel, BeforeValidator, ConfigDict, Field

from tussock.meta.node.auth.bearers.token_review import ACCOUNT_FOLDER
from tussock.meta.node.auth.certificates import pattern_misfit

__all__ = [
    "Address",
    "AddressOrNothing",
    "ClientSettings",
    "LogSettings",
    "OidcSettings",
    "Seconds",
    "SecondsOrNever",
    "ServiceAccountSettings",
    "SettingsGroup",
    "TlsSettings",
    "TokenSettings",
    "access_contradictions",
]


def _address(value: str) -> str:
    host, separator, port = value.rpartition(":")
    if not separator or not host or not port.isdigit() or int(port) > 65535:
        raise ValueError("should be HOST:PORT, such as 127.0.0.1:7370 or [::]:7370; port 0 takes a free one")
    return value


def _address_or_nothing(value: str) -> str:
    return _address(value) if value else value


def _split(value: object) -> object:
    return [part.strip() for part in value.split(",") if part.strip()] if isinstance(value, str) else value


# 31 years: a thread can wait that long, and the log has room for it.
Seconds = Annotated[float, Field(gt=0, le=10**9, allow_inf_nan=False)]
SecondsOrNever = Annotated[float, Field(ge=0, le=10**9, allow_inf_nan=False)]
Address = Annotated[str, AfterValidator(_address)]
AddressOrNothing = Annotated[str, AfterValidator(_address_or_nothing)]
Patterns = Annotated[tuple[str, ...], BeforeValidator(_split)]


class SettingsGroup(BaseModel):
    """Options that belong together."""

    # What is wrong is told without the value, which may be a secret in the wrong place.
    model_config = ConfigDict(extra="forbid", frozen=True, hide_input_in_errors=True)


class RoleRules(SettingsGroup):
    """Which certificates have which role: patterns `CN:`, `OU:`, `URI:` or `DNS:`, with `*` for the rest."""

    reader: Patterns = Field(default=(), description="certificates of readers: `CN:`, `OU:`, `URI:`, `DNS:`")
    writer: Patterns = Field(default=(), description="certificates of writers")
    compactor: Patterns = Field(default=(), description="certificates of compactors")
    admin: Patterns = Field(default=(), description="certificates of administrators")


class TlsSettings(SettingsGroup):
    """Encryption, and authentication by certificates."""

    certificate: str = Field(
        default="", description="file with the service's certificate chain (PEM); empty for no TLS"
    )
    key: str = Field(default="", description="file with its private key (PEM)")
    client_ca: str = Field(
        default="", description="file with the CAs of clients (PEM); every client then needs a certificate"
    )
    revoked: Patterns = Field(
        default=(),
        description="certificates that are taken no more, though they have not ended: patterns like those of roles",
    )
    roles: RoleRules = RoleRules()


class TokenSettings(SettingsGroup):
    """Authentication by bearer tokens."""

    file: str = Field(
        default="", description="file with the hashes of tokens, see `tussock meta token`; empty for no tokens"
    )


class ClientSettings(SettingsGroup):
    """Clients that are declared one by one."""

    file: str = Field(
        default="",
        description="file that declares clients, each with role, tables, rate and expiry; read again when it changes; "
        "empty for none",
    )


class ServiceAccountSettings(SettingsGroup):
    """Service accounts of Kubernetes as clients: their tokens are asked about at its API."""

    audience: str = Field(
        default="",
        max_length=256,
        description="for which audience tokens of service accounts must be made; empty: none is taken",
    )
    api: str = Field(
        default="", description="URL of the API of Kubernetes; that of the cluster in which the service runs if empty"
    )
    folder: str = Field(
        default=ACCOUNT_FOLDER,
        description="folder with `token` and `ca.crt`, by which the service asks; read again when they change",
    )


class OidcSettings(SettingsGroup):
    """How the keys of the OIDC issuers that clients are declared with are fetched."""

    ca: str = Field(default="", description="file with the CAs of issuers (PEM); those of the machine if empty")
    allow_http: bool = Field(
        default=False, description="whether keys are fetched from `http://` issuers, too; for tests"
    )


class LogSettings(SettingsGroup):
    """What the service says on standard error."""

    level: Literal["debug", "info", "warning", "error"] = Field(
        default="info", description="the least severity that is shown"
    )
    format: Literal["json", "text"] = Field(
        default="json", description="one JSON object a line, or text for a terminal"
    )


def access_contradictions(
    tls: TlsSettings, tokens: TokenSettings, clients: ClientSettings | None = None
) -> list[tuple[str, str]]:
    """Those between the options that say who may call; `clients` of nodes that have declared ones."""
    found = []
    if bool(tls.certificate) != bool(tls.key):
        found.append(("tls.key" if tls.certificate else "tls.certificate", "certificate and key belong together"))
    if tls.client_ca and not tls.certificate:
        found.append(("tls.client_ca", "clients can only show certificates over TLS: set tls.certificate and tls.key"))
    rules = [pattern for patterns in tls.roles.model_dump().values() for pattern in patterns]
    if rules and not tls.client_ca:
        found.append(("tls.roles", "certificates of clients are not asked for: set tls.client_ca"))
    if tls.revoked and not tls.client_ca:
        found.append(("tls.revoked", "certificates of clients are not asked for: set tls.client_ca"))
    if tls.client_ca and not (rules or tokens.file or (clients and clients.file)):
        found.append(("tls.roles", "no certificate would have a role: give patterns, or set tokens.file"))
    patterns = {"tls.revoked": tls.revoked, **{f"tls.roles.{role}": some for role, some in tls.roles}}
    found += [
        (name, misfit) for name, some in patterns.items() for pattern in some if (misfit := pattern_misfit(pattern))
    ]
    return found
