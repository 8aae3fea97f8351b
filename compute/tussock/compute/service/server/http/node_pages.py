"""The HTTP port of the node: the page, the status as JSON, metrics, and the probes of the process.

| path | answers | asks for a token |
|---|---|---|
| `/`, `/static/...` | the page: files of this package, nothing of the application | no |
| `/status` | the status as JSON | yes |
| `/call-graph` | of functions, what a transaction called, as JSON | yes |
| `/stream`, `/history`, `/bad-rows`, `/act` | of a flow: `flow_pages.py` | yes |
| `/metrics` | metrics in Prometheus' text format | yes |
| `/healthz` | 200 while the process lives | no |
| `/readyz` | 200 while requests are taken, else 503 with the reason | no |
"""

import asyncio
import re
from importlib import resources

from aiohttp import web

from tussock.compute.service.rpc import application_pb2 as pb
from tussock.compute.service.server.application_node import ApplicationNode
from tussock.compute.service.server.http.callers import check_caller, json_answer
from tussock.compute.service.server.http.flow_pages import add_flow_pages
from tussock.meta.node.auth.authentication import Authenticator
from tussock.meta.node.wire.http_port import TYPES, add_headers, refusals

__all__ = ["make_pages"]

REQUEST_BYTES_MAX = 4096
_NUMBER = re.compile(r"[0-9]{1,18}")


def make_pages(node: ApplicationNode, authenticator: Authenticator) -> web.Application:
    """The application of aiohttp."""
    pages = _NodePages(node, authenticator)
    app = web.Application(middlewares=[refusals], client_max_size=REQUEST_BYTES_MAX)
    app.on_response_prepare.append(add_headers)
    app.router.add_get("/", pages.page)
    app.router.add_get("/static/{name}", pages.static)
    app.router.add_get("/status", pages.status)
    app.router.add_get("/call-graph", pages.call_graph)
    if node.layer.layer == "changelog":
        add_flow_pages(app, node, authenticator)
    app.router.add_get("/metrics", pages.metrics)
    app.router.add_get("/healthz", pages.healthz)
    app.router.add_get("/readyz", pages.readyz)
    return app


class _NodePages:
    def __init__(self, node: ApplicationNode, authenticator: Authenticator) -> None:
        self._node = node
        self._authenticator = authenticator
        folder = resources.files("tussock.compute.service.server").joinpath("page")
        shared = resources.files("tussock.meta.node").joinpath("page")
        # Read once, so that no request names a file of the disk. Colours and sizes are the console's.
        found = [*folder.iterdir(), *shared.iterdir()]
        self._files = {entry.name: entry.read_bytes() for entry in found if entry.is_file()}

    async def page(self, _: web.Request) -> web.Response:
        return self._file("index.html")

    async def static(self, request: web.Request) -> web.Response:
        return self._file(request.match_info["name"])

    async def status(self, request: web.Request) -> web.Response:
        self._check(request)
        return json_answer(self._node.status())

    async def call_graph(self, request: web.Request) -> web.Response:
        self._check(request, "call_graph")
        request_id, tid = request.query.get("request_id"), request.query.get("tid")
        if (request_id is None) == (tid is None) or (tid is not None and not _NUMBER.fullmatch(tid)):
            raise web.HTTPBadRequest(text="expected request_id=ID or tid=NUMBER\n")
        graph = pb.CallGraph(request_id=request_id) if tid is None else pb.CallGraph(tid=int(tid))
        if problem := self._node.obstacle():
            raise web.HTTPServiceUnavailable(text=f"the application {problem}\n")
        found = await asyncio.wrap_future(self._node.begin("call_graph", pb.Request(call_graph=graph)))
        return json_answer(found)

    async def metrics(self, request: web.Request) -> web.Response:
        self._check(request)
        body = await asyncio.to_thread(self._node.metrics.render)
        return web.Response(body=body, headers={"Content-Type": "text/plain; version=0.0.4; charset=utf-8"})

    async def healthz(self, _: web.Request) -> web.Response:
        return web.Response(text="ok\n")

    async def readyz(self, _: web.Request) -> web.Response:
        if problem := self._node.obstacle():
            return web.Response(status=503, text=f"not ready: the application {problem}\n")
        return web.Response(text="ok\n")

    def _file(self, name: str) -> web.Response:
        kind = TYPES.get(f".{name.rpartition('.')[2]}")
        if name not in self._files or kind is None:
            raise web.HTTPNotFound(text="no such page\n")
        return web.Response(
            body=self._files[name], content_type=kind, charset="utf-8", headers={"Cache-Control": "no-cache"}
        )

    def _check(self, request: web.Request, kind: str = "status") -> None:
        check_caller(request, self._authenticator, kind)
