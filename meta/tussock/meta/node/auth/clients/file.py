"""The clients file: TOML, with the certificates that are revoked, and one table for each declared client.

```toml
revoked = ["URI:tussock://data/shop/writer/totals"]

[clients.dashboard]
role = "reader"
certificates = ["URI:tussock://data/shop/client/dashboard"]
rate = 50
expires = 2027-03-01T00:00:00Z

[clients.importer]
role = "writer"
tokens = ["sha256:9f86d081884c7d659a2feaa0c55ad015a3bf4f1b2b0b822cd15d6c15b0f00a08"]
tables = ["orders", "clicks_*"]
```

It says who gets in, so nothing of it is guessed: an unknown word, a wrong value, or two clients that are known by the
same, and the whole file is refused. The errors name the place, and never the value, which may be a secret.
"""

import tomllib
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Literal

from pydantic import AfterValidator, AwareDatetime, BaseModel, ConfigDict, Field, ValidationError, model_validator

from tussock.meta.node.auth.certificates import pattern_misfit
from tussock.meta.node.auth.clients.declarations import DeclaredClient, DeclaredClients, OidcIdentity
from tussock.meta.node.auth.tokens import ROLES
from tussock.statestore.errors import InvalidOption

__all__ = ["read_clients"]

FILE_BYTES_MAX = 4 << 20
CLIENTS_MAX = 2000
WAYS_MAX = 16
"""By which one client is known, of each kind."""
TABLES_MAX = 1000
REVOKED_MAX = 1000
PROBLEMS_MAX = 8
"""Of one file that an error lists."""


def _pattern(value: str) -> str:
    if misfit := pattern_misfit(value):
        raise ValueError(misfit)
    return value


def _table(value: str) -> str:
    if not value.rstrip("*") or "*" in value[:-1]:
        raise ValueError("should be the name of a table, or the beginning of names with one '*' after it")
    return value


Pattern = Annotated[str, Field(max_length=1024), AfterValidator(_pattern)]
Digest = Annotated[str, Field(pattern=r"^sha256:[0-9a-f]{64}$")]

TableName = Annotated[str, Field(min_length=1, max_length=255), AfterValidator(_table)]
Account = Annotated[str, Field(pattern=r"^[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?/[a-z0-9][a-z0-9.-]{0,252}$")]
ClaimText = Annotated[str, Field(min_length=1, max_length=256)]
Name = Annotated[str, Field(pattern=r"^[A-Za-z0-9][A-Za-z0-9._/-]{0,126}$")]


class _Identity(BaseModel):
    """Somebody as an OIDC issuer knows them, as the file says it."""

    model_config = ConfigDict(extra="forbid", frozen=True, hide_input_in_errors=True)

    issuer: Annotated[str, Field(pattern=r"^https?://[^\s?#]+$", max_length=1024)]
    audience: Annotated[str, Field(min_length=1, max_length=256)]
    subject: Annotated[str, Field(min_length=1, max_length=256)] | None = None
    claims: Annotated[dict[ClaimText, ClaimText], Field(max_length=WAYS_MAX)] = {}

    @model_validator(mode="after")
    def _names_somebody(self) -> "_Identity":
        # Or everybody whom the issuer knows would be this client.
        if self.subject is None and not self.claims:
            raise ValueError("names nobody: give subject or claims")
        return self


class _ClientEntry(BaseModel):
    """One client, as the file says it."""

    model_config = ConfigDict(extra="forbid", frozen=True, hide_input_in_errors=True)

    role: Literal["reader", "writer", "compactor", "admin"]
    certificates: Annotated[tuple[Pattern, ...], Field(max_length=WAYS_MAX)] = ()
    tokens: Annotated[tuple[Digest, ...], Field(max_length=WAYS_MAX)] = ()
    service_accounts: Annotated[tuple[Account, ...], Field(max_length=WAYS_MAX)] = ()
    oidc: Annotated[tuple[_Identity, ...], Field(max_length=WAYS_MAX)] = ()
    tables: Annotated[tuple[TableName, ...], Field(max_length=TABLES_MAX)] | None = None
    rate: Annotated[float, Field(gt=0, le=1e6, allow_inf_nan=False)] | None = None
    expires: AwareDatetime | None = None
    revoked: Annotated[bool, Field(strict=True)] = False


class _ClientsFile(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True, hide_input_in_errors=True)

    revoked: Annotated[tuple[Pattern, ...], Field(max_length=REVOKED_MAX)] = ()
    clients: Annotated[dict[Name, _ClientEntry], Field(max_length=CLIENTS_MAX)] = {}


def read_clients(paths: Sequence[str]) -> DeclaredClients:
    """The clients of a file; `InvalidOption` with all that is wrong in it."""
    (path,) = paths
    file = Path(path)
    if (size := file.stat().st_size) > FILE_BYTES_MAX:
        raise InvalidOption(f"{path} has {size} bytes, and a clients file may have {FILE_BYTES_MAX}", path)
    try:
        found = _ClientsFile.model_validate(tomllib.loads(file.read_text(encoding="utf-8")))
    except UnicodeDecodeError:
        raise InvalidOption(f"{path} is not UTF-8 text", path) from None
    except tomllib.TOMLDecodeError as error:
        raise InvalidOption(f"{path} is not TOML: {error}", path) from None
    except ValidationError as error:
        problems = [_describe(one) for one in error.errors(include_url=False, include_input=False)]
        left = f" (and {len(problems) - PROBLEMS_MAX} more)" if len(problems) > PROBLEMS_MAX else ""
        raise InvalidOption(f"{path}: {'; '.join(problems[:PROBLEMS_MAX])}{left}", path) from None
    try:
        return DeclaredClients((_client(name, entry) for name, entry in found.clients.items()), found.revoked)
    except InvalidOption as error:
        raise InvalidOption(f"{path}: {error}", path) from None


def _client(name: str, entry: _ClientEntry) -> DeclaredClient:
    if not (entry.certificates or entry.tokens or entry.service_accounts or entry.oidc):
        raise InvalidOption(
            f"clients.{name}: nobody is known by it: give certificates, tokens, service_accounts or oidc"
        )
    if entry.tables is not None and entry.role != "writer":
        raise InvalidOption(
            f"clients.{name}.tables: only a writer can be held to some tables: readers read objects of the bucket by "
            "themselves, which belong to no table, and compactors and admins work on all"
        )
    if entry.tables == ():
        raise InvalidOption(f"clients.{name}.tables: is empty: leave it out for all tables, or make it a reader")
    return DeclaredClient(
        name=name,
        roles=ROLES[entry.role],
        certificates=entry.certificates,
        tokens=tuple(bytes.fromhex(token.removeprefix("sha256:")) for token in entry.tokens),
        accounts=entry.service_accounts,
        oidc=tuple(
            OidcIdentity(one.issuer, one.audience, one.subject or "", tuple(sorted(one.claims.items())))
            for one in entry.oidc
        ),
        tables=entry.tables or (),
        rate=entry.rate or 0.0,
        expires_ms=None if entry.expires is None else int(entry.expires.timestamp() * 1000),
        revoked=entry.revoked,
    )


def _describe(found: object) -> str:
    assert isinstance(found, dict)
    place = ".".join(str(part) for part in found["loc"] if part != "[key]")
    return f"{place}: {str(found['msg']).removeprefix('Value error, ')}"
