"""The entries of declared clients in the clients file of a store's meta nodes (`docs/security.md`, *Declared clients*).

A job in another namespace than its store has an entry, too: it is let in while the store grants that, and no longer.

The service refuses a file with any mistake whole, and keeps the former one; so what stands here has to be right by
itself, whatever a user has written into one of the objects.
"""

from collections.abc import Iterable
from datetime import datetime
from typing import Any

import msgspec

from tussock.operator.manifests.transport_security import client_uri, job_uri
from tussock.operator.resources.client import StateStoreClient
from tussock.operator.resources.common import StoreUser
from tussock.operator.resources.compute import Compute
from tussock.operator.resources.store import StoreResource

__all__ = ["client_entry", "client_name", "has_entry", "job_entry", "token_audience", "with_entries"]


def client_name(user: StoreUser) -> str:
    """The name of a client, or of a job, in the file, and so in logs and limits.

    One of another namespace has that before it; a job one word more, which no client has.
    """
    if isinstance(user, Compute):
        return f"compute/{user.namespace}/{user.name}"
    return f"{user.namespace}/{user.name}" if user.is_far else user.name


def token_audience(store: StoreResource) -> str:
    """For whom tokens of service accounts are made: this store, so that no other one can show them here as its own."""
    return f"tussock://{store.namespace}/{store.name}"


def job_entry(job: Compute, store: StoreResource) -> str:
    """What the file says of a job in another namespace."""
    return _entry(client_name(job), {"role": "writer", "certificates": [f"URI:{job_uri(store, job)}"]})


def client_entry(client: StateStoreClient, store: StoreResource, expires: datetime | None) -> str:
    """What the file says of one client."""
    spec, name = client.spec, client_name(client)
    values: dict[str, Any] = {"role": spec.role}
    if client.is_known_by_certificate:
        values["certificates"] = [f"URI:{client_uri(store, name, spec.certificate_version, is_enough=True)}"]
    if spec.service_accounts:
        values["service_accounts"] = [f"{client.namespace}/{account}" for account in spec.service_accounts]
    if spec.oidc:
        values["oidc"] = [
            {"issuer": one.issuer, "audience": one.audience}
            | ({"subject": one.subject} if one.subject else {})
            | ({"claims": one.claims} if one.claims else {})
            for one in spec.oidc
        ]
    if spec.tables:
        values["tables"] = list(spec.tables)
    if spec.rate is not None:
        values["rate"] = spec.rate
    if expires is not None:
        values["expires"] = expires
    if spec.revoked:
        values["revoked"] = True
    return _entry(name, values)


def with_entries(file: str, entries: Iterable[str]) -> str:
    """The file with entries of clients after what it has, an empty line before each."""
    return "\n".join([file, *entries])


def has_entry(file: str, name: str, entry: str) -> bool:
    """Whether the file says this of the client of that name; an empty entry: whether it says nothing of it.

    No value can look like an entry: its quotation marks are escaped.
    """
    if not entry:
        return f"{_head(name)}\n" not in file
    return f"\n{entry}\n" in f"\n{file}\n"


def _entry(name: str, values: dict[str, Any]) -> str:
    """A table of TOML with a line for each key."""
    lines = [f"{key} = {_value(value)}\n" for key, value in values.items()]
    return "".join([f"{_head(name)}\n", *lines])


def _head(name: str) -> str:
    return f"[clients.{_value(name)}]"


def _value(value: Any) -> str:
    """A value on one line, as TOML has it."""
    if isinstance(value, dict):
        return "{ " + ", ".join(f"{_value(key)} = {_value(value[key])}" for key in sorted(value)) + " }"
    if isinstance(value, list):
        return "[" + ", ".join(map(_value, value)) + "]"
    if isinstance(value, datetime):
        return value.isoformat(timespec="seconds").replace("+00:00", "Z")
    # JSON's form of text, numbers and booleans is TOML's, but for one character that JSON leaves as it is.
    return msgspec.json.encode(value).decode().replace("\x7f", "\\u007f")
