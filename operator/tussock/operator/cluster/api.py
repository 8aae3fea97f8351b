"""Requests to the API server: paths and JSON, with the official client's connection and credentials.

The official client loads the configuration (in a cluster or from a kubeconfig), renews tokens and speaks TLS. Its
generated classes are not used: children stay plain dictionaries from the pure functions that make them to the server.
Every request has a deadline. If the server is away, requests that are safe to repeat are repeated: an apply, a patch
with a resource version and a delete are, a create is not.
"""

import asyncio
import json
import os
import re
from collections.abc import Callable, Mapping
from types import TracebackType
from typing import Any

import aiohttp
from kubernetes.aio import client as kubernetes
from kubernetes.aio import config as kubernetes_config

from tussock.operator.cluster.errors import (
    ApiConflict,
    ApiError,
    ApiNotFound,
    ApiRefused,
    ApiUnavailable,
    FieldsUnknown,
)
from tussock.operator.cluster.kinds import RESOURCES, path_of
from tussock.operator.planning.words.model import Manifest
from tussock.statestore.errors import InvalidOption

__all__ = ["FIELD_MANAGER", "Api", "connect"]

FIELD_MANAGER = "tussock-operator"
REQUEST_SECONDS = 10.0
"""A request without an answer after this time has failed."""
LISTED_AT_ONCE = 500
"""Objects in one page of a list."""
RETRY_PAUSES = (0.2, 1.0, 3.0)
"""Seconds before each repetition: in sum below the time after which a leader without a server has lost its lease."""

APPLY = "application/apply-patch+yaml; charset=utf-8"
"""With its parameter: otherwise the library would write the body itself, as JSON with escapes that YAML lacks."""
MERGE = "application/merge-patch+json"
JSON = "application/json"
METADATA_OF_ONE = "application/json;as=PartialObjectMetadata;g=meta.k8s.io;v=v1"
METADATA_ONLY = "application/json;as=PartialObjectMetadataList;g=meta.k8s.io;v=v1"

_HALVES = re.compile("[\ud800-\udfff]")
_UNKNOWN_FIELD = re.compile(r'(\.\S+): field not declared in schema|unknown field "([^"]+)"')
"""In the server's messages: of an apply, and of strict validation."""
_UNPRINTED = re.compile("[\x7f-\x9f\u2028\u2029\ufeff\ufffe\uffff]")

Count = Callable[[str, str, int], None]
"""Called with verb, kind and HTTP status of each request."""


class Api:
    """The API server. Objects are named by kind, namespace and name; `None` for a namespace means all of them."""

    def __init__(
        self,
        client: kubernetes.ApiClient,
        count: Count = lambda _verb, _kind, _status: None,
        listed_at_once: int = LISTED_AT_ONCE,
    ) -> None:
        self._listed_at_once = listed_at_once
        self._client = client
        self._count = count

    async def __aenter__(self) -> "Api":
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self._client.close()

    async def get(self, kind: str, namespace: str | None, name: str) -> Manifest:
        """One object; raises `ApiNotFound`. Without `namespace`, one outside all namespaces, such as a namespace."""
        return await self._request("get", kind, namespace, name)

    async def look(self, kind: str, namespace: str, name: str) -> Manifest | None:
        """The metadata of the object of that name, whatever its owner; `None` if there is none."""
        try:
            return await self._request("get", kind, namespace, name, accept=METADATA_OF_ONE)
        except ApiNotFound:
            return None

    async def list_metadata(self, kind: str, namespace: str | None, selector: str, fields: str = "") -> list[Manifest]:
        """The metadata of all objects of a kind whose labels and fields match: a fraction of their size."""
        asked = {"labelSelector": selector, "fieldSelector": fields, "limit": str(self._listed_at_once)}
        found: list[Manifest] = []
        token = ""
        while True:
            query = [(name, value) for name, value in {**asked, "continue": token}.items() if value]
            answer = await self._request("list", kind, namespace, query=query, accept=METADATA_ONLY)
            found += [_without_managed_fields(body) for body in answer.get("items") or ()]  # `null` if there are none
            token = (answer.get("metadata") or {}).get("continue") or ""
            if not token:
                return found

    async def apply(
        self, manifest: Manifest, namespace: str, subresource: str = "", *, strict: bool = False
    ) -> Manifest:
        """Server-side apply: sets our fields, removes our former ones, keeps others'; returns the new object.

        `FieldsUnknown` for fields that the server does not know; without `strict` it drops those within some lists.
        """
        kind, name = manifest["kind"], manifest["metadata"]["name"]
        query = [("fieldManager", FIELD_MANAGER), ("force", "true"), *_validation(strict=strict)]
        return await self._request(
            "apply", kind, namespace, name, subresource, body=manifest, content_type=APPLY, query=query
        )

    async def merge(self, kind: str, namespace: str, name: str, patch: Mapping[str, Any]) -> Manifest:
        """A merge patch: merges maps, removes a field for `None`, and replaces everything else.

        With a `resourceVersion` in it, raises `ApiConflict` if the object has changed since.
        """
        query = [("fieldManager", FIELD_MANAGER)]
        return await self._request("patch", kind, namespace, name, body=patch, content_type=MERGE, query=query)

    async def create(self, manifest: Manifest, namespace: str, *, strict: bool = False) -> Manifest:
        """Create an object; `ApiConflict` if the name is taken.

        Never repeated, so a lost answer raises `ApiUnavailable` although the object may exist. `strict`:
        `FieldsUnknown` for fields that the server does not know; otherwise it drops them.
        """
        query = [("fieldManager", FIELD_MANAGER), *_validation(strict=strict)]
        return await self._request("create", manifest["kind"], namespace, body=manifest, query=query)

    async def replace(self, manifest: Manifest, namespace: str) -> Manifest:
        """Replace an object that has not changed since it was read; otherwise `ApiConflict`. Never repeated."""
        return await self._request("update", manifest["kind"], namespace, manifest["metadata"]["name"], body=manifest)

    async def delete(self, kind: str, namespace: str, name: str, metadata: Mapping[str, Any]) -> None:
        """Delete an object and its dependents; does nothing if it is gone.

        Raises `ApiConflict` if its state is not the one with that metadata, by uid and resource version.
        """
        conditions = {field: metadata[field] for field in ("uid", "resourceVersion")}
        options = {"propagationPolicy": "Background", "preconditions": conditions}
        try:
            await self._request("delete", kind, namespace, name, body=options)
        except ApiNotFound:
            return

    async def _request(
        self,
        verb: str,
        kind: str,
        namespace: str | None,
        name: str = "",
        subresource: str = "",
        *,
        body: Mapping[str, Any] | None = None,
        content_type: str = JSON,
        accept: str = JSON,
        query: list[tuple[str, str]] | None = None,
    ) -> Manifest:
        named = name or ((body or {}).get("metadata") or {}).get("name") or "*"
        target = f"{verb} {kind} {namespace or '*'}/{named}{'/' + subresource if subresource else ''}"
        pauses = iter(() if verb in ("create", "update") else RETRY_PAUSES)
        while True:
            try:
                status, answer = await self._send(
                    _METHODS[verb],
                    path_of(kind, namespace, name, subresource),
                    {"Accept": accept, "Content-Type": content_type},
                    body,
                    query or [],
                )
            except (aiohttp.ClientError, TimeoutError, OSError) as error:
                status, answer = 0, {"message": f"no answer: {str(error) or type(error).__name__}"}
            self._count(verb, kind, status)
            if 200 <= status < 300:
                return answer
            failure = _failure(target, kind, status, answer)
            pause = next(pauses, None)
            if pause is None or not isinstance(failure, ApiUnavailable):
                raise failure
            await asyncio.sleep(pause)

    async def _send(
        self, method: str, path: str, headers: dict[str, str], body: Mapping[str, Any] | None, query: Any
    ) -> tuple[int, Manifest]:
        content = yaml_of(body) if body is not None and headers["Content-Type"] == APPLY else body
        serialized = await self._client.param_serialize(
            method, path, query_params=query, header_params=headers, body=content, auth_settings=["BearerToken"]
        )
        response = await self._client.call_api(
            *serialized, _request_timeout=aiohttp.ClientTimeout(total=REQUEST_SECONDS)
        )
        text = await response.read()
        try:
            answer = json.loads(text)
        except ValueError:
            # A proxy between the operator and the server, which answers with HTML.
            answer = {"message": response.reason or "an answer that is not JSON"}
        return response.status, answer if isinstance(answer, dict) else {}


def yaml_of(body: Mapping[str, Any]) -> bytes:
    r"""A body as the JSON that is YAML, too: characters beyond 16 bits as they are, and not as pairs of escapes.

    Escapes what YAML 1.2 does not print (section 5.1); half of a surrogate pair, which is not text, becomes U+FFFD.
    """
    text = _HALVES.sub("\ufffd", json.dumps(body, ensure_ascii=False))
    return _UNPRINTED.sub(lambda found: f"\\u{ord(found[0]):04x}", text).encode()


def _without_managed_fields(body: Manifest) -> Manifest:
    """An object without its managed fields, which are most of its metadata."""
    body["metadata"].pop("managedFields", None)
    return body


_METHODS = {
    "get": "GET",
    "list": "GET",
    "apply": "PATCH",
    "patch": "PATCH",
    "create": "POST",
    "update": "PUT",
    "delete": "DELETE",
}


def _failure(target: str, kind: str, status: int, answer: Mapping[str, Any]) -> ApiError:
    # The server's message on an invalid object repeats its values.
    said = (
        answer.get("message", "")
        if kind != "Secret" or status in (0, 403, 404, 409)
        else "the message is left out, because it may repeat a value"
    )
    message = f"{target}: {status or 'failed'}: {said}"
    if _is_of_webhook(str(answer.get("message", ""))):
        # With any status, also those of a busy server: some webhook refuses this object or does not work, and
        # everything else continues without it.
        return ApiRefused(message, status)
    if status == 404:
        return ApiNotFound(message, status)
    if status == 409:
        return ApiConflict(message, status)
    if fields := tuple(_UNKNOWN_FIELD.findall(said)):
        way_out = "apply crds/" if kind in RESOURCES else "upgrade Kubernetes"
        return FieldsUnknown(
            f"{message}; the cluster's definitions are older than this operator: {way_out}",
            status,
            tuple(of_apply or of_decoder for of_apply, of_decoder in fields),
        )
    if "failed to create typed patch object" in said:
        # An apply that does not fit the schema: the server reports that as an internal error, 500.
        return ApiRefused(message, status)
    # 401 ends when the token is renewed.
    if status == 0 or status in (401, 408, 429) or status >= 500:
        return ApiUnavailable(message, status)
    return ApiRefused(message, status)


def _validation(*, strict: bool) -> list[tuple[str, str]]:
    return [("fieldValidation", "Strict")] if strict else []


def _is_of_webhook(said: str) -> bool:
    """Whether a webhook of the cluster is why a request failed, by what the server itself says of those."""
    return "webhook" in said and ("failed" in said or "denied the request" in said)


async def connect(count: Count = lambda _verb, _kind, _status: None, listed_at_once: int = LISTED_AT_ONCE) -> Api:
    """Connect as the pod's service account, or with a kubeconfig (`KUBECONFIG`, `~/.kube/config`).

    A list comes in pages of `listed_at_once` objects. Raises `InvalidOption` if there is neither.
    """
    configuration = kubernetes.Configuration()
    try:
        kubernetes_config.load_incluster_config(client_configuration=configuration)
    except kubernetes_config.ConfigException:
        # Read now: the library read the variable when it was imported.
        path = os.environ.get("KUBECONFIG") or None
        try:
            await kubernetes_config.load_kube_config(config_file=path, client_configuration=configuration)
        except kubernetes_config.ConfigException as error:
            raise InvalidOption(
                "found no cluster: this process is not in a pod with a service account, and "
                f"{path or '~/.kube/config'} cannot be used: {error}"
            ) from error
    return Api(kubernetes.ApiClient(configuration), count, listed_at_once)
