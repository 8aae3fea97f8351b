"""The settings of `tussock serve`: those that all nodes have, in the same words, and the limits of requests."""

from typing import Annotated

from pydantic import AfterValidator, Field

from tussock.compute.service.rpc.kinds import MESSAGE_BYTES_LIMIT, MESSAGE_BYTES_MAX
from tussock.compute.service.server.workers.workers_file import WorkersFile
from tussock.meta.client.addresses import addresses_in
from tussock.meta.node.settings.groups import (
    Address,
    AddressOrNothing,
    LogSettings,
    SecondsOrNever,
    SettingsGroup,
    TlsSettings,
    TokenSettings,
    access_contradictions,
)
from tussock.meta.node.settings.sources import SettingsForm
from tussock.statestore.buckets.urls import parse_bucket_url
from tussock.statestore.errors import InvalidOption

__all__ = ["SERVE_FORM", "RequestLimits", "ServeSettings"]


def _any_store(value: str) -> str:
    if value.startswith("tussock://"):
        addresses_in(value)
        return value
    return str(parse_bucket_url(value)) if value else value


class RequestLimits(SettingsGroup):
    """What callers may have on its way."""

    message_bytes: int = Field(
        default=MESSAGE_BYTES_MAX, ge=1 << 10, le=MESSAGE_BYTES_LIMIT, description="largest message, so largest batch"
    )
    outstanding: int = Field(
        default=8192, ge=1, le=9000, description="requests that wait for their replies, of all callers"
    )
    identity_outstanding: int = Field(default=4096, ge=1, le=9000, description="of one identity on one host")
    conversation_outstanding: int = Field(default=1024, ge=1, le=9000, description="of one conversation")
    outstanding_bytes: int = Field(
        default=256 << 20,
        ge=1 << 10,
        description="bytes of requests, and of replies until they are out; of replies of one conversation an eighth",
    )
    conversations: int = Field(default=1024, ge=1, le=65536, description="conversations at once; of one host half")


class ServeSettings(SettingsGroup):
    """All settings of one node."""

    app: str = Field(description="`MODULE:APP`, an application or a function of a store; the argument of the command")
    store: Annotated[str, AfterValidator(_any_store)] = Field(
        default="", description="URL of the store that a function is given; `tussock://HOST:PORT` for a platform"
    )
    listen: Address = Field(default="127.0.0.1:7380", description="where gRPC is served")
    http_listen: AddressOrNothing = Field(
        default="127.0.0.1:7381", description="where the page, `/metrics` and `/healthz` are served; empty for nowhere"
    )
    workers: int | None = Field(
        default=None, ge=0, le=64, description="processes that share a program of functions; empty: as it says itself"
    )
    workers_file: str = Field(
        default="",
        description="file with that number, in place of `workers`; it is followed: another one scales the program",
    )
    workers_listen: AddressOrNothing = Field(
        default="",
        description="where workers join that run elsewhere, by `tussock work`; empty: workers are processes here",
    )
    drain_seconds: SecondsOrNever = Field(default=30.0, description="how long SIGTERM waits for requests taken")
    tls: TlsSettings = TlsSettings()
    tokens: TokenSettings = TokenSettings()
    limits: RequestLimits = RequestLimits()
    log: LogSettings = LogSettings()


def _contradictions(settings: ServeSettings) -> list[tuple[str, str]]:
    found = access_contradictions(settings.tls, settings.tokens)
    if settings.workers is not None and settings.workers_file:
        found.append(("workers_file", "says how many workers there are, and so does workers; give one of the two"))
    try:
        if settings.workers_file:
            WorkersFile(settings.workers_file).read()
    except InvalidOption as error:
        found.append(("workers_file", str(error)))
    limits = settings.limits
    if limits.outstanding_bytes < limits.message_bytes:
        found.append(("limits.outstanding_bytes", f"is less than limits.message_bytes, {limits.message_bytes}"))
    return found


SERVE_FORM = SettingsForm(ServeSettings, "TUSSOCK_SERVE_", _contradictions, {"app": "module:app"})
