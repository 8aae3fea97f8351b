"""What an answer of the API server means for the pass: try again, look again, or tell and go on."""

import asyncio
from typing import Any

import pytest
from aiohttp import web
from kubernetes.aio import client as kubernetes

from tussock.operator.cluster.api import Api
from tussock.operator.cluster.errors import (
    ApiConflict,
    ApiError,
    ApiNotFound,
    ApiRefused,
    ApiUnavailable,
    FieldsUnknown,
)

FAILED = 'failed calling webhook "w.example": Post "https://w.example": connection refused'
CONVERSION = "conversion webhook for tussock.dev/v1, Kind=Meta failed: timeout"
DENIED = 'admission webhook "w.example" denied the request: try later'
CHANGED = 'Operation cannot be fulfilled on configmaps "c": the object has been modified'


def answer_to_create(kind: str, status: int, message: str) -> ApiError:
    """The error of a create that a server answers so; a create is sent once."""

    async def body() -> ApiError:
        async def answer(_: web.Request) -> web.Response:
            return web.json_response({"kind": "Status", "message": message}, status=status)

        app = web.Application()
        app.router.add_route("*", "/{path:.*}", answer)
        runner = web.AppRunner(app)
        await runner.setup()
        site = web.TCPSite(runner, "127.0.0.1", 0)
        await site.start()
        host, port = runner.addresses[0][:2]
        manifest: dict[str, Any] = {"apiVersion": "v1", "kind": kind, "metadata": {"name": "c"}}
        try:
            async with Api(kubernetes.ApiClient(kubernetes.Configuration(host=f"http://{host}:{port}"))) as api:
                with pytest.raises(ApiError) as raised:
                    await api.create(manifest, "n")
        finally:
            await runner.cleanup()
        return raised.value

    return asyncio.run(body())


@pytest.mark.parametrize(
    ("status", "message", "error"),
    [
        (404, "not found", ApiNotFound),
        (409, CHANGED, ApiConflict),
        (422, "is invalid", ApiRefused),
        (500, "etcdserver: leader changed", ApiUnavailable),
        (503, "apiserver is shutting down", ApiUnavailable),
        (500, FAILED, ApiRefused),
        (503, FAILED, ApiRefused),
        (409, FAILED, ApiRefused),
        (500, CONVERSION, ApiRefused),
        (409, DENIED, ApiRefused),
        (429, DENIED, ApiRefused),
    ],
)
def test_a_failure_is_what_has_to_be_done_about_it(status: int, message: str, error: type[ApiError]) -> None:
    """Story: a webhook that refused one child with the status of a busy server stopped all passes of its store."""
    assert type(answer_to_create("ConfigMap", status, message)) is error


def test_a_failure_of_a_create_has_the_name_of_the_object() -> None:
    """Story: it said `create ConfigMap n/*`, as the path of that request has no name."""
    assert str(answer_to_create("ConfigMap", 422, "is invalid")) == "create ConfigMap n/c: 422: is invalid"


UNKNOWN = {
    'errors:\n  .spec.a: field not declared in schema\n  .spec.b[c="d"].e: field not declared in schema': (
        ".spec.a",
        '.spec.b[c="d"].e',
    ),
    'strict decoding error: unknown field "spec.a", unknown field "spec.b[0].e"': ("spec.a", "spec.b[0].e"),
}


@pytest.mark.parametrize("said", UNKNOWN)
def test_unknown_fields_are_known_by_their_paths(said: str) -> None:
    """In the words of an apply, and of strict validation; the first comes with the status of a broken server."""
    found = answer_to_create("Deployment", 500, said)
    assert isinstance(found, FieldsUnknown)
    assert found.fields == UNKNOWN[said]


def test_an_apply_of_a_wrong_type_is_refused() -> None:
    """Although the server answers with 500, which else means to try again."""
    said = "failed to create typed patch object (n/c; apps/v1): .spec.replicas: expected numeric, got string"
    assert type(answer_to_create("Deployment", 500, said)) is ApiRefused


def test_a_webhook_that_fails_for_a_secret_is_told_without_its_words() -> None:
    """They may repeat a value of the Secret."""
    found = answer_to_create("Secret", 500, f"{FAILED} geheim")
    assert type(found) is ApiRefused
    assert "geheim" not in str(found)
