"""A registry of Avro schemas, by its HTTP interface, which Confluent's, Karapace, Apicurio's and Redpanda's have."""

import base64
import ssl
import urllib.error
import urllib.parse
import urllib.request
from dataclasses import dataclass, field
from http.client import HTTPException
from typing import Any

from tussock.compute.applications.arguments import check_seconds
from tussock.compute.changelog.envelopes.json_messages import decoded
from tussock.compute.changelog.envelopes.meanings import Misread
from tussock.statestore.base.system import System
from tussock.statestore.errors import InvalidOption, WaitTimeout

__all__ = ["OpenRegistry", "SchemaRegistry"]

ANSWER_BYTES_MAX = 4 << 20
REFERENCES_MAX = 200
"""Of one schema, at any depth."""
_PART = 64 << 10
_ACCEPT = "application/vnd.schemaregistry.v1+json, application/json"


@dataclass(frozen=True)
class SchemaRegistry:
    """Where schemas are asked for, by the number that each message has.

    `user` and `password`, or an API key and its secret, for a registry that asks for them. `ca_file`: the certificates
    to trust, in place of the system's. One question takes at most `timeout` seconds.
    """

    url: str
    user: str | None = None
    password: str | None = field(default=None, repr=False)
    ca_file: str | None = None
    timeout: float = 10.0

    def __post_init__(self) -> None:
        """Check what was given; `InvalidOption`."""
        parts = urllib.parse.urlsplit(self.url) if isinstance(self.url, str) else None
        if parts is None or parts.scheme not in ("http", "https") or not parts.hostname:
            raise InvalidOption(f"a schema registry at {self.url!r:.200}; expected http://… or https://…")
        if parts.username or parts.query or parts.fragment:
            raise InvalidOption(
                f"a schema registry at host {parts.hostname!r:.200}: its URL has a user, a query or a fragment; give "
                "user= and password="
            )
        if (self.user is None) != (self.password is None):
            raise InvalidOption(f"schema registry {self.url!r:.200}: give both user= and password=, or neither")
        check_seconds(self.timeout, f"schema registry {self.url!r:.200}: timeout", none=False)
        if not self.timeout:
            raise InvalidOption(f"schema registry {self.url!r:.200}: timeout=0; expected more than 0 s")


class _NoRedirects(urllib.request.HTTPRedirectHandler):
    """A redirect would take the password along."""

    def redirect_request(self, *_: Any) -> None:
        return None


class OpenRegistry:
    """A `SchemaSource`, for one run."""

    def __init__(self, registry: SchemaRegistry, system: System) -> None:
        """`InvalidOption` if its certificates cannot be read."""
        self._registry = registry
        self._system = system
        self._what = f"schema registry {registry.url}"
        try:
            context = ssl.create_default_context(cafile=registry.ca_file)
        except OSError as error:
            raise InvalidOption(f"{self._what}: ca_file={registry.ca_file!r:.200}: {error}") from error
        self._opener = urllib.request.build_opener(_NoRedirects, urllib.request.HTTPSHandler(context=context))
        self._headers = {"Accept": _ACCEPT}
        if registry.user is not None:
            both = f"{registry.user}:{registry.password}".encode()
            self._headers["Authorization"] = f"Basic {base64.b64encode(both).decode()}"

    def schema(self, number: int) -> tuple[Any, list[Any]]:
        """A schema, and those that it names.

        Raises `Misread` for one that is not there, or is not Avro's; `WaitTimeout` if the registry does not answer;
        `InvalidOption` if it refuses the question.
        """
        answer = self._ask(f"schemas/ids/{number}", f"its schema is number {number}")
        named: dict[tuple[str, int], Any] = {}
        self._collect(answer, named, set())
        return answer["schema"], list(named.values())

    def _collect(self, answer: dict[str, Any], named: dict[tuple[str, int], Any], begun: set[tuple[str, int]]) -> None:
        references = answer.get("references") or []
        if not isinstance(references, list):
            raise Misread(f"its schema has {references!r:.100} for references")
        for one in references:
            try:
                place = str(one["subject"]), int(one["version"])
            except (TypeError, KeyError, ValueError):
                raise Misread(f"its schema has a reference {one!r:.100}") from None
            if place in begun:
                continue
            begun.add(place)
            if len(begun) > REFERENCES_MAX:
                raise Misread(f"its schema refers to more than {REFERENCES_MAX} others")
            subject = urllib.parse.quote(place[0], safe="")
            found = self._ask(f"subjects/{subject}/versions/{place[1]}", f"its schema refers to {place}")
            self._collect(found, named, begun)
            named[place] = found["schema"]

    def _ask(self, path: str, why: str) -> dict[str, Any]:
        request = urllib.request.Request(f"{self._registry.url.rstrip('/')}/{path}", headers=self._headers)  # noqa: S310 - checked
        try:
            with self._opener.open(request, timeout=self._registry.timeout) as response:
                data = self._body(response)
        except urllib.error.HTTPError as error:
            error.close()
            if error.code == 404:
                raise Misread(f"{why}, which {self._what} does not have") from None
            if error.code == 429 or error.code >= 500:
                raise self._timeout(f"HTTP {error.code}") from error
            raise InvalidOption(
                f"{self._what} refuses to tell /{path}: HTTP {error.code}; check its URL, user= and password="
            ) from error
        except (OSError, HTTPException) as error:
            # Of `URLError`, too; time that is up among them.
            raise self._timeout(str(error)) from error
        try:
            answer = decoded(data)
        except Misread:
            answer = None
        if not isinstance(answer, dict) or not isinstance(answer.get("schema"), str):
            raise InvalidOption(f"{self._what} answers /{path} with {data[:100]!r}, which is no schema; check its URL")
        if answer.get("schemaType", "AVRO") not in ("AVRO", None):
            raise Misread(f"{why}, which is of type {answer['schemaType']!r:.100}; expected AVRO")
        return answer

    def _body(self, response: Any) -> bytes:
        until = self._system.monotonic() + self._registry.timeout
        parts: list[bytes] = []
        nbytes = 0
        while part := response.read1(_PART):
            parts.append(part)
            nbytes += len(part)
            if nbytes > ANSWER_BYTES_MAX:
                raise InvalidOption(f"{self._what} answers with more than {ANSWER_BYTES_MAX:,} bytes; check its URL")
            if self._system.monotonic() > until:
                raise self._timeout("its answer does not end")
        return b"".join(parts)

    def _timeout(self, why: str) -> WaitTimeout:
        return WaitTimeout(f"{self._what} does not answer: {why}")
