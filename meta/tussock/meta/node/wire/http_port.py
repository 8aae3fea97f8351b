"""The port of HTTP that each node has: its headers and types, who asks, and refusals as JSON."""

import ssl
from collections.abc import Awaitable, Callable

import msgspec
from aiohttp import web

from tussock.meta.node.wire.http_connections import HttpConnections
from tussock.statestore.errors import AccessDenied, TussockError, Unauthenticated

__all__ = ["TYPES", "add_headers", "certificate_names_of", "refusals", "start_http"]

# Everything comes from this port and nothing is inline, so text of the store that found a way into the page could
# neither run nor load anything; `require-trusted-types-for` takes the ways away too.
CONTENT_SECURITY_POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; base-uri 'none'; "
    "form-action 'none'; frame-ancestors 'none'; require-trusted-types-for 'script'; trusted-types 'none'"
)
HEADERS = {
    "Content-Security-Policy": CONTENT_SECURITY_POLICY,
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Referrer-Policy": "no-referrer",
    "X-Content-Type-Options": "nosniff",
}
TYPES = {
    ".css": "text/css",
    ".html": "text/html",
    ".js": "text/javascript",
    ".svg": "image/svg+xml",
    ".txt": "text/plain",
    ".LICENSE": "text/plain",
}

Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]


async def start_http(
    app: web.Application, host: str, port: int, tls: ssl.SSLContext | None = None
) -> tuple[HttpConnections, int]:
    """Listen; returns what `await connections.cleanup()` ends it by, and the port, which is a free one for `port` 0."""
    connections = HttpConnections(app)
    return connections, await connections.listen(host, port, tls)


@web.middleware
async def refusals(request: web.Request, handler: Handler) -> web.StreamResponse:
    """Refusals and failures as JSON, of the same shape as in `ErrorDetail`."""
    try:
        return await handler(request)
    except Unauthenticated as error:
        return _refuse(401, error, {"WWW-Authenticate": "Bearer"})
    except AccessDenied as error:
        return _refuse(403, error, {})
    except TussockError as error:
        return _refuse(503, error, {})


def _refuse(status: int, error: TussockError, headers: dict[str, str]) -> web.Response:
    body = msgspec.json.encode({"kind": type(error).__name__, "message": str(error)})
    return web.Response(status=status, body=body, content_type="application/json", headers=headers)


def certificate_names_of(request: web.Request) -> list[str]:
    """The names of the caller's certificate, as `certificates.py` writes them; the connection has checked it."""
    certificate = request.get_extra_info("peercert") or {}
    subject = [pair for pairs in certificate.get("subject", ()) for pair in pairs]
    names = [f"CN:{value}" for key, value in subject if key == "commonName"]
    names += [f"OU:{value}" for key, value in subject if key == "organizationalUnitName"]
    others = certificate.get("subjectAltName", ())
    return names + [f"{kind}:{value}" for kind in ("URI", "DNS") for key, value in others if key == kind]


async def add_headers(_: web.Request, response: web.StreamResponse) -> None:
    """Give a response the headers of all."""
    response.headers.update(HEADERS)
    if "Server" in response.headers:
        response.headers["Server"] = "tussock"
