"""The callers of the HTTP port, and JSON as it answers."""

from typing import Any

import msgspec
from aiohttp import web

from tussock.compute.service.rpc.kinds import KINDS
from tussock.meta.node.auth.authentication import Authenticator, Presented
from tussock.meta.node.wire.http_port import certificate_names_of
from tussock.statestore.errors import AccessDenied

__all__ = ["check_caller", "json_answer"]


def check_caller(request: web.Request, authenticator: Authenticator, kind: str) -> None:
    """Raise `Unauthenticated`, or `AccessDenied` unless the caller may ask for that kind of request."""
    presented = Presented(request.headers.get("Authorization"), certificate_names_of(request))
    caller = authenticator.authenticate(presented)
    if not caller.roles & KINDS[kind]:
        needed = " or ".join(str(role.name).lower() for role in KINDS[kind])
        raise AccessDenied(f"{caller.identity!r} may not {kind}; that needs the role {needed}", caller.identity, kind)


def json_answer(value: Any, status: int = 200) -> web.Response:
    """An answer that nobody keeps."""
    body = msgspec.json.encode(_shown(value))
    return web.Response(
        status=status, body=body, content_type="application/json", headers={"Cache-Control": "no-store"}
    )


def _shown(value: Any) -> Any:
    """Keys that are bytes as all commands take them; JSON of msgspec would have them in Base64."""
    if isinstance(value, bytes):
        return f"hex:{value.hex()}"
    if isinstance(value, dict):
        return {name: _shown(item) for name, item in value.items()}
    return [_shown(item) for item in value] if isinstance(value, list | tuple) else value
