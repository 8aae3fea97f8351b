"""The HTTP port of a replica: the console, the status as JSON, metrics, and the probes of the process.

| path | answers | asks for a token |
|---|---|---|
| `/`, `/static/...` | the console: files of this package, nothing of the store | no |
| `/api/status` | the status (`status/document.py`) as JSON | yes |
| `/metrics` | metrics in Prometheus' text format | yes |
| `/healthz` | 200 while the process serves, else 503 with what only a restart can cure | no |
| `/readyz` | 200 while the replica leads or keeps up with the log, else 503 with the reason | no |

The console polls: a status is small and whole, so a lost connection, a new leader or a slow browser needs no care.
However many look, a status is made at most twice a second. Tokens come in the header `Authorization` only, never in
an address, since addresses end up in logs and histories.
"""

import asyncio
import hashlib
from collections.abc import Awaitable, Callable
from importlib import resources
from importlib.resources.abc import Traversable
from typing import NamedTuple

import msgspec
from aiohttp import web

from tussock.meta.node.auth.authentication import Presented, authorize
from tussock.meta.node.auth.caller import Caller
from tussock.meta.node.wire.http_port import TYPES, add_headers, certificate_names_of, refusals
from tussock.meta.rpc.methods import METHODS
from tussock.meta.server.status.document import ReplicaStatus, ServiceStatus

__all__ = ["make_app"]

STATUS_SECONDS = 0.5
"""A status that is younger is answered again."""
REQUEST_BYTES_MAX = 4096
"""No request here has a body."""


class _File(NamedTuple):
    body: bytes
    content_type: str
    etag: str


class _Pages:
    """The handlers, with what they share."""

    def __init__(
        self,
        status: Callable[[], ServiceStatus],
        replica: Callable[[], ReplicaStatus],
        metrics: Callable[[], bytes],
        authenticate: Callable[[Presented], Caller],
        defect: Callable[[], str],
        prove: Callable[[Presented], Awaitable[None]] | None,
    ) -> None:
        self._status = status
        self._replica = replica
        self._defect = defect
        self._metrics = metrics
        self._authenticate = authenticate
        self._prove = prove
        self._files = _console_files()
        self._encoder = msgspec.json.Encoder()
        self._making = asyncio.Lock()
        self._made: tuple[float, ServiceStatus] | None = None

    async def console(self, request: web.Request) -> web.Response:
        return self._file(request, "index.html")

    async def static(self, request: web.Request) -> web.Response:
        return self._file(request, request.match_info["name"])

    async def status(self, request: web.Request) -> web.Response:
        await self._check(request)
        body = self._encoder.encode(await self._fresh_status())
        response = web.Response(body=body, content_type="application/json", headers={"Cache-Control": "no-store"})
        response.enable_compression()
        return response

    async def metrics(self, request: web.Request) -> web.Response:
        await self._check(request)
        body = await asyncio.to_thread(self._metrics)
        return web.Response(body=body, headers={"Content-Type": "text/plain; version=0.0.4; charset=utf-8"})

    async def healthz(self, _: web.Request) -> web.Response:
        if problem := self._defect():
            return web.Response(status=503, text=f"{problem}\n")
        return web.Response(text="ok\n")

    async def readyz(self, _: web.Request) -> web.Response:
        # Not out of a status: that may wait for the bucket, and a late answer to a probe counts as none.
        replica = self._replica()
        if replica.draining:
            return web.Response(status=503, text="draining: the replica is shutting down\n")
        if replica.damaged:
            # Not which object: callers show no certificate here.
            return web.Response(status=503, text="not ready: the log is damaged, see the status\n")
        if not replica.ready:
            return web.Response(status=503, text="not ready: the replica has not read the log to its tail lately\n")
        return web.Response(text=f"ok: {replica.role}\n")

    async def _fresh_status(self) -> ServiceStatus:
        # In a thread, since a status waits for the replica's locks; one at a time, for all clients.
        async with self._making:
            loop = asyncio.get_running_loop()
            if self._made is None or loop.time() - self._made[0] >= STATUS_SECONDS:
                self._made = (loop.time(), await asyncio.to_thread(self._status))
            return self._made[1]

    async def _check(self, request: web.Request) -> None:
        # The same as over gRPC: a caller that may call GetStatus may see the status here, and the metrics made of it.
        presented = Presented(request.headers.get("Authorization"), certificate_names_of(request), is_page=True)
        if self._prove is not None:
            await self._prove(presented)
        authorize(self._authenticate(presented), METHODS["GetStatus"])

    def _file(self, request: web.Request, name: str) -> web.Response:
        found = self._files.get(name)
        if found is None:
            raise web.HTTPNotFound(text=f"no such page: {request.path}\n")
        # Asked for each time, and answered without a body if it is still the same: an upgrade shows at once.
        headers = {"Cache-Control": "no-cache", "ETag": found.etag}
        if request.headers.get("If-None-Match") == found.etag:
            return web.Response(status=304, headers=headers)
        return web.Response(body=found.body, content_type=found.content_type, charset="utf-8", headers=headers)


def make_app(
    status: Callable[[], ServiceStatus],
    replica: Callable[[], ReplicaStatus],
    metrics: Callable[[], bytes],
    authenticate: Callable[[Presented], Caller],
    defect: Callable[[], str] = str,
    prove: Callable[[Presented], Awaitable[None]] | None = None,
) -> web.Application:
    """The application; `status` and `metrics` are called in threads, `authenticate` and `prove` an `Authenticator`'s.

    `replica` and `defect` (what only a restart can cure; nothing, if it is not given) must not wait for anything.
    """
    pages = _Pages(status, replica, metrics, authenticate, defect, prove)
    app = web.Application(middlewares=[refusals], client_max_size=REQUEST_BYTES_MAX)
    app.on_response_prepare.append(add_headers)
    app.router.add_get("/", pages.console)
    app.router.add_get("/static/{name:.+}", pages.static)
    app.router.add_get("/api/status", pages.status)
    app.router.add_get("/metrics", pages.metrics)
    app.router.add_get("/healthz", pages.healthz)
    app.router.add_get("/readyz", pages.readyz)
    return app


def _console_files() -> dict[str, _File]:
    """All files of the console by their path below `static/`; read once, so no request names a file of the disk."""
    found: dict[str, _File] = {}

    def walk(folder: Traversable, prefix: str) -> None:
        for entry in folder.iterdir():
            if entry.is_dir():
                walk(entry, f"{prefix}{entry.name}/")
            elif (content_type := TYPES.get(f".{entry.name.rpartition('.')[2]}")) is not None:
                body = entry.read_bytes()
                found[prefix + entry.name] = _File(body, content_type, f'"{hashlib.sha256(body).hexdigest()[:32]}"')

    walk(resources.files("tussock.meta.server").joinpath("console"), "")
    walk(resources.files("tussock.meta.node").joinpath("page"), "")
    return found
