"""The port where workers join, in this process: so that a test may scale the program, and be a bad worker itself."""

import asyncio
import threading
from collections.abc import Coroutine, Iterator
from contextlib import contextmanager
from typing import Any

from tussock.compute import functions as fn
from tussock.compute.service.server.application_node import ApplicationNode
from tussock.compute.service.server.call_gate import CallGate
from tussock.compute.service.server.metrics import ApplicationMetrics
from tussock.compute.service.server.settings import RequestLimits
from tussock.compute.service.server.worker_port import WorkerPort
from tussock.meta.node.auth.authentication import Authenticator
from tussock.statestore.base.system import RealSystem

__all__ = ["joined_port"]


@contextmanager
def joined_port(runtime: fn.Runtime) -> Iterator[str]:
    """Take workers for a program that has not started; gives the address."""
    loop = asyncio.new_event_loop()
    thread = threading.Thread(target=loop.run_forever, daemon=True)
    thread.start()

    def run(work: Coroutine[Any, Any, Any]) -> Any:
        return asyncio.run_coroutine_threadsafe(work, loop).result(60)

    async def open_port() -> tuple[WorkerPort, int]:
        system, metrics = RealSystem(), ApplicationMetrics(())
        node = ApplicationNode(runtime.served(), RequestLimits(), system, metrics)
        port = WorkerPort(node, runtime.take_workers(), CallGate(Authenticator(system), metrics, system), None)
        number = port.bind("127.0.0.1:0")
        await port.start()
        return port, number

    port, number = run(open_port())
    try:
        yield f"127.0.0.1:{number}"
    finally:
        run(port.stop())
        loop.call_soon_threadsafe(loop.stop)
        thread.join(60)
        loop.close()
