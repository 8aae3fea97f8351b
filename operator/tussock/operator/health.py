"""Whether this process makes progress, for the kubelet, and its metrics.

| path | answers |
|---|---|
| `/healthz` | 200 while the loops run and no watch is known to be dead, otherwise 503 with the reason |
| `/metrics` | metrics in Prometheus' text format |

An API server that is away fails no probe: a new process would not reach it either, and would have forgotten
everything.
"""

from aiohttp import web

from tussock.operator.metrics import OperatorMetrics
from tussock.statestore.base.system import System

__all__ = ["SILENCE_SECONDS", "Health", "serve_http"]

SILENCE_SECONDS = 60.0
"""A loop that should run every few seconds and has not done so for this time is stuck."""


class Health:
    """What the loops report about themselves."""

    def __init__(self, system: System) -> None:
        self._system = system
        self._beaten = system.monotonic()
        self._failure = ""

    def beat(self) -> None:
        """Note that the loop of the Lease has been to the API server and back, or has given up waiting for it."""
        self._beaten = self._system.monotonic()

    def fail(self, reason: str) -> None:
        """Note that something is broken that only a new process repairs."""
        self._failure = reason

    def problem(self) -> str:
        """Why the process should end; empty if it is well."""
        silent = self._system.monotonic() - self._beaten
        if not self._failure and silent > SILENCE_SECONDS:
            return f"the leader election has stood still for {silent:.0f} s"
        return self._failure


async def serve_http(address: str, metrics: OperatorMetrics, health: Health) -> web.AppRunner:
    """Listen on `HOST:PORT`; `await runner.cleanup()` ends it. `runner.addresses` has the port if it was 0."""

    async def healthz(_: web.Request) -> web.Response:
        problem = health.problem()
        return web.Response(status=503 if problem else 200, text=f"{problem or 'ok'}\n")

    async def show(_: web.Request) -> web.Response:
        return web.Response(body=metrics.render(), headers={"Content-Type": "text/plain; version=0.0.4; charset=utf-8"})

    app = web.Application(client_max_size=1024)
    app.router.add_get("/healthz", healthz)
    app.router.add_get("/metrics", show)
    host, _, port = address.rpartition(":")
    runner = web.AppRunner(app, access_log=None)
    await runner.setup()
    await web.TCPSite(runner, host.strip("[]"), int(port)).start()
    return runner
