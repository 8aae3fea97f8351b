"""Runs one application as a process: wires settings, logs, store, application, gRPC and HTTP, and ends them in order.

SIGTERM and SIGINT drain: no new request is taken, those that were taken are answered, the state is committed, and the
process ends with code 0. A second signal ends it at once. An application that another process takes over ends with
`FENCED`, and one that fails with 1.
"""

import asyncio
import contextlib
import os
import sys
from typing import Any

from prometheus_client import disable_created_metrics

from tussock.compute.applications.errors import ApplicationFenced
from tussock.compute.service.server.application_node import OF_NODE, ApplicationNode
from tussock.compute.service.server.call_gate import CallGate
from tussock.compute.service.server.entry import BadApplication, load_application
from tussock.compute.service.server.grpc_port import GrpcPort
from tussock.compute.service.server.http.node_pages import make_pages
from tussock.compute.service.server.layer import ServedLayer, WorkerDoor
from tussock.compute.service.server.metrics import ApplicationMetrics
from tussock.compute.service.server.settings import ServeSettings
from tussock.compute.service.server.worker_port import WorkerPort
from tussock.compute.service.server.workers.workers_file import WorkersFile
from tussock.meta.node.doors import (
    authenticator_of,
    grpc_credentials,
    listen_http,
    spare_collector,
    stop_on_signals,
    warn_of_open_doors,
)
from tussock.statestore import StateStore, connect
from tussock.statestore.base.logs import get_logger
from tussock.statestore.base.service_logs import start_logging
from tussock.statestore.base.system import RealSystem
from tussock.statestore.errors import InvalidOption, StoreNotFound, TussockError

__all__ = ["FENCED", "serve_application"]

log = get_logger("tussock.application")

FENCED = 3
"""The exit code of a process whose application was taken over by another one."""
LOOK_SECONDS = 0.1
FAREWELL_SECONDS = 1.0
"""For which `/readyz` says that the application has failed, before the process ends."""


def serve_application(settings: ServeSettings) -> None:
    """Serve until SIGTERM or SIGINT, then drain and end the process with code 0.

    Raises `BadApplication` if the module has none. What store, ports and application say at their start is a line of
    the log, and ends the process as `tussock` ends by such an error.
    """
    # A second series for each one, for which nobody asks.
    disable_created_metrics()  # type: ignore[no-untyped-call]
    start_logging(settings.log.level, settings.log.format, sys.stderr)
    try:
        _serve_until_told(settings)
    except BadApplication:
        raise
    except TussockError as error:
        log.error("did not start", app=settings.app, error=str(error), kind=type(error).__name__)
        raise SystemExit(2 if isinstance(error, StoreNotFound) else 1) from None


def _serve_until_told(settings: ServeSettings) -> None:
    stores: list[StateStore] = []

    def open_store() -> StateStore | None:
        if settings.store:
            stores.append(connect(settings.store))
        return stores[0] if stores else None

    # Before the loop: a module may run one while it is imported.
    layer = load_application(settings.app, open_store, settings.store).served()
    door: WorkerDoor | None = None
    workers = settings.workers
    try:
        if settings.workers_file:
            workers = WorkersFile(settings.workers_file).read()
        if workers is not None:
            layer.begin_with(workers)
        if settings.workers_listen:
            door = layer.take_workers()
    except InvalidOption as error:
        raise BadApplication(f"{settings.app} with workers={workers}: {error}") from None
    asyncio.run(_serve_and_exit(settings, layer, door, workers or 0, stores))


async def _serve_and_exit(
    settings: ServeSettings, layer: ServedLayer, door: WorkerDoor | None, workers: int, stores: list[StateStore]
) -> None:
    code = await _serve(settings, layer, door, workers, stores)
    log.info("stopped", application=layer.name, code=code)
    # A thread in a procedure that hangs, or in a request to the bucket, would keep the loop, and Python, from ending.
    sys.stderr.flush()
    os._exit(code)


async def _serve(
    settings: ServeSettings, layer: ServedLayer, door: WorkerDoor | None, workers: int, stores: list[StateStore]
) -> int:
    system, loop = RealSystem(), asyncio.get_running_loop()
    metrics = ApplicationMetrics(layer.kinds | OF_NODE)
    tls = settings.tls
    node = ApplicationNode(layer, settings.limits, system, metrics, (tls.certificate, tls.client_ca))
    metrics.watch(node.status)
    authenticator = authenticator_of(tls, settings.tokens, system)
    gate, credentials = CallGate(authenticator, metrics, system), grpc_credentials(tls, system)
    port = GrpcPort(node, gate, credentials)
    address = f"{settings.listen.rpartition(':')[0]}:{port.bind(settings.listen)}"
    stopped = asyncio.Event()

    def stop_soon() -> None:
        loop.call_soon_threadsafe(stopped.set)

    node.on_drain = stop_soon
    stop_on_signals(stopped, log)
    http = await listen_http(make_pages(node, authenticator), settings.http_listen, tls, system)
    warn_of_open_doors(authenticator, tls, settings.tokens, "application", log)
    if settings.store.startswith("memory:"):
        log.warning("the store is in the memory of this process and ends with it", store=settings.store)
    worker_port: WorkerPort | None = None
    if door is not None:
        # Before the start, which waits for them. Each port has credentials, as these follow the files port by port.
        worker_port = WorkerPort(node, door, gate, grpc_credentials(tls, system))
        place = settings.workers_listen
        workers_address = f"{place.rpartition(':')[0]}:{worker_port.bind(place)}"
        await worker_port.start()
        log.info("taking workers", application=layer.name, address=workers_address, http=http, **layer.workers())
    # While it recovers, the probes answer; a signal then ends the process at once, since nothing was taken.
    starting = loop.run_in_executor(None, layer.start)
    stopping = asyncio.create_task(stopped.wait())
    first: set[asyncio.Future[Any]] = {starting, stopping}
    await asyncio.wait(first, return_when=asyncio.FIRST_COMPLETED)
    if not starting.done():
        if door is not None:
            door.close()
        return 0
    await starting
    node.is_started = True
    await port.start()
    spare_collector()
    for one in node.status()["trouble"]:
        log.warning("trouble at the start", what=one["what"], error=one["error"])
    log.info("serving", application=layer.name, address=address, http=http, store=layer.store_url)
    scaling = asyncio.create_task(_follow_workers(settings, layer, workers))
    while not stopped.is_set() and layer.failure is None:
        await asyncio.wait({stopping}, timeout=LOOK_SECONDS)
    scaling.cancel()
    code = await _end(settings, node, port, stores)
    if door is not None and worker_port is not None:
        door.close()
        await worker_port.stop()
    return code


async def _follow_workers(settings: ServeSettings, layer: ServedLayer, workers: int) -> None:
    if settings.workers_file:
        await WorkersFile(settings.workers_file).follow(layer, workers)


def _close(stores: list[StateStore]) -> None:
    for store in stores:
        store.close()


async def _end(settings: ServeSettings, node: ApplicationNode, port: GrpcPort, stores: list[StateStore]) -> int:
    layer, seconds = node.layer, settings.drain_seconds
    loop = asyncio.get_running_loop()
    if layer.failure is None:
        log.info("draining", application=layer.name, seconds=seconds, outstanding=node.outstanding.requests)
        node.is_draining = True
        with contextlib.suppress(TussockError):  # it failed this moment: its requests hear of it
            layer.resume()
        await port.stop(seconds)
        ended = loop.run_in_executor(None, layer.stop)
        await asyncio.wait({ended}, timeout=max(seconds, LOOK_SECONDS))
        if not ended.done():
            log.error("the application did not end in time; its next start replays what is not committed")
            return 1
        failure = ended.exception() or layer.failure
    else:
        failure = layer.failure
        port.tell_health()
        farewell = asyncio.create_task(asyncio.sleep(FAREWELL_SECONDS))
        await port.stop(FAREWELL_SECONDS)
        await farewell
    if failure is None:
        # All is committed: a bucket that is away now is waited for no longer than the drain took.
        closed = loop.run_in_executor(None, _close, stores)
        await asyncio.wait({closed}, timeout=max(seconds, LOOK_SECONDS))
        if closed.done():
            closed.result()
        else:
            log.warning("the store was not closed in time; its pins and its session end by themselves")
        return 0
    if isinstance(failure, ApplicationFenced):
        log.error("fenced: another process runs the application", application=layer.name, error=str(failure))
        return FENCED
    log.error("the application has failed", application=layer.name, error=str(failure))
    return 1
