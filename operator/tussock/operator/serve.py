"""Runs one replica of the operator as a process: connects settings, API, queue, watches and HTTP, and ends in order.

A replica that does not hold the Lease waits for it and does nothing else; it does not even watch. One that loses it
ends: its knowledge may be old, and a new process starts clean. SIGTERM and SIGINT end it after the running passes, and
it gives the Lease back, so that another replica works within seconds.
"""

import asyncio
import contextlib
import logging
import os
import signal
import sys
from collections.abc import Sequence
from typing import Any, NoReturn

import kopf

from tussock.operator.cluster.api import Api, connect
from tussock.operator.cluster.errors import ApiError, ApiNotFound, ApiRefused, ApiUnavailable
from tussock.operator.cluster.kinds import OURS
from tussock.operator.cluster.lease import Lease
from tussock.operator.cluster.seen import Key, Seen
from tussock.operator.handlers.passes.queue import Queue
from tussock.operator.handlers.passes.reconciler import Reconciler
from tussock.operator.handlers.passes.sweep import Sweeper
from tussock.operator.handlers.passes.watches import kopf_settings, registry_of, watched_kinds
from tussock.operator.handlers.world import Controller, World
from tussock.operator.health import Health, serve_http
from tussock.operator.metrics import OperatorMetrics
from tussock.operator.planning.words.allowances import allowance_of_text
from tussock.operator.planning.words.model import Manifest
from tussock.operator.probes.cache import Probes
from tussock.operator.resource_metrics import ResourceCollector
from tussock.operator.settings import OperatorSettings
from tussock.statestore.base.logs import get_logger
from tussock.statestore.base.service_logs import start_logging
from tussock.statestore.base.system import RealSystem

__all__ = ["serve"]

log = get_logger("tussock.operator")

END_SECONDS = 10.0
"""Time for running passes to end."""
CERT_MANAGER_SECONDS = 20.0
"""The interval of checks for cert-manager while a store waits for it."""


def serve(settings: OperatorSettings, controllers: Sequence[Controller[Any, Any]]) -> NoReturn:
    """Serve until SIGTERM or SIGINT, or until the Lease is lost; ends the process with code 0, or 1 if it was lost."""
    start_logging(settings.log_level, settings.log_format, sys.stderr)
    # It logs a line for each event of each object, about nothing but itself.
    logging.getLogger("kopf").setLevel(max(logging.WARNING, logging.getLogger().level))
    asyncio.run(_serve(settings, controllers))
    raise AssertionError("the process ends inside")


async def _serve(settings: OperatorSettings, controllers: Sequence[Controller[Any, Any]]) -> NoReturn:
    system, metrics = RealSystem(), OperatorMetrics()
    health = Health(system)
    stopped = asyncio.Event()
    _take_signals(stopped)
    http = await serve_http(settings.http_listen, metrics, health)
    log.info("serving", http=str(http.addresses[0]), namespaces=",".join(settings.namespaces) or "all")
    async with await connect(metrics.request) as api:
        lease = Lease(api, system, settings.lease_namespace, settings.lease_name, settings.identity, health.beat)
        if not await _wait_for(stopped, lease.acquire()):
            await http.cleanup()
            _exit(0)
        metrics.leader.set(1)
        keeping = asyncio.create_task(lease.keep())
        keeping.add_done_callback(_leave_at_once)
        await _lead(settings, controllers, api, metrics, health, stopped)
        metrics.leader.set(0)
        await _end(keeping)
        await lease.release()
    await http.cleanup()
    log.info("stopped", lost_lease=False)
    _exit(0)


def _leave_at_once(keeping: "asyncio.Task[None]") -> None:
    """End the process when the lease is lost: another replica may lead in a moment, so no pass may continue."""
    if not keeping.cancelled():
        log.info("stopped", lost_lease=True, exc_info=keeping.exception())
        _exit(1)


async def _lead(
    settings: OperatorSettings,
    controllers: Sequence[Controller[Any, Any]],
    api: Api,
    metrics: OperatorMetrics,
    health: Health,
    stopped: asyncio.Event,
) -> None:
    """Do the work, until `stopped`."""
    namespace = settings.namespaces[0] if settings.namespaces else None
    has_cert_manager = await _has_certificates(api, namespace)
    probes = Probes(lambda key: queue.wake(key))

    async def run(key: Key) -> float | None:
        return await reconciler.run(key)

    queue = Queue(run, metrics)
    world = World(
        api=api,
        seen=Seen(),
        probes=probes,
        wake=queue.wake,
        system=RealSystem(),
        metrics=metrics,
        identity=settings.identity,
        has_cert_manager=has_cert_manager,
        defaults=settings.defaults,
        max_unavailable=allowance_of_text(settings.max_unavailable),
    )
    reconciler = Reconciler(world, controllers)
    kinds = watched_kinds(certificates=has_cert_manager)
    await _wait_for(stopped, _await_definitions(api, namespace))
    sweeper = Sweeper(world, kinds, settings.namespaces, health)
    working = [asyncio.create_task(queue.work()), asyncio.create_task(sweeper.work())]
    if not has_cert_manager:
        working.append(asyncio.create_task(_await_certificates(world, namespace)))
    for task in working:
        # They end only when the process should restart; if one fails, the process ends with it.
        task.add_done_callback(lambda _: stopped.set())
    started = asyncio.Event()
    watching = asyncio.create_task(
        kopf.operator(
            registry=registry_of(world, kinds),
            settings=kopf_settings(kinds, clusterwide=not settings.namespaces),
            clusterwide=not settings.namespaces,
            namespaces=settings.namespaces,
            ready_flag=started,
        )
    )
    watching.add_done_callback(lambda _: stopped.set())
    if await _wait_for(stopped, started.wait()):
        # kopf has taken the signals over, and at the end it would wait for tasks that are not its own.
        _take_signals(stopped)
        with metrics.showing(ResourceCollector(world.seen, world.now)):
            await stopped.wait()
    await _end(watching)
    # A running pass may end, so that its writes are known to be complete.
    await queue.drain(END_SECONDS)
    for task in working:
        await _end(task)
    await probes.close()


def _exit(code: int) -> NoReturn:
    # A probe waits for its bucket in a thread, which would keep Python from ending.
    sys.stderr.flush()
    os._exit(code)


def _take_signals(stopped: asyncio.Event) -> None:
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stopped.set)


async def _wait_for(stopped: asyncio.Event, work: Any) -> bool:
    """Wait for `work` or for the end, whichever comes first; returns whether it was the work."""
    task, end = asyncio.ensure_future(work), asyncio.create_task(stopped.wait())
    await asyncio.wait({task, end}, return_when=asyncio.FIRST_COMPLETED)
    done = task.done()
    await _end(end)
    await _end(task)
    return done


async def _end(task: "asyncio.Future[Any]") -> None:
    """Cancel a task and wait for its end; raises an earlier error of the task."""
    if not task.done():
        task.cancel()
    with contextlib.suppress(asyncio.CancelledError):
        await task


async def _has_certificates(api: Api, namespace: str | None) -> bool:
    """Whether cert-manager is in the cluster and usable."""
    try:
        await api.list_metadata("Certificate", namespace, OURS)
    except (ApiNotFound, ApiRefused):
        return False
    return True


async def _await_certificates(world: World, namespace: str | None) -> None:
    """Return when cert-manager is there and a store waits for it: kopf watches no kind that appears after its start."""
    while True:
        await asyncio.sleep(CERT_MANAGER_SECONDS)
        waiting = any(_asks_cert_manager(body) for body in world.seen.all_of("StateStore"))
        try:
            found = waiting and await _has_certificates(world.api, namespace)
        except ApiUnavailable:
            continue
        if found:
            log.info("found cert-manager; restarting to watch its certificates")
            return


def _asks_cert_manager(store: Manifest) -> bool:
    return ((store.get("spec") or {}).get("tls") or {}).get("mode") == "certManager"


async def _await_definitions(api: Api, namespace: str | None) -> None:
    """Wait until the cluster knows our kinds: without rights on the whole cluster, kopf would not notice later."""
    while True:
        try:
            await api.list_metadata("StateStore", namespace, OURS)
        except ApiError as error:
            log.error("could not list StateStores: install crds/, or give the operator its role", error=str(error))
            await asyncio.sleep(5.0)
        else:
            return
