"""Runs one replica as a process: wires settings, logs, bucket, node, gRPC and HTTP, and ends them in order.

SIGTERM and SIGINT drain: the replica gives leadership back, so that another one leads within moments, and tells its
subscribers to go elsewhere; then calls that have begun get `drain_seconds` to end, and new ones are refused. A second
signal ends the process at once.
"""

import asyncio
import functools
import os
import resource
import socket
import sys

from prometheus_client import disable_created_metrics

from tussock.meta.node.doors import (
    authenticator_of,
    grpc_credentials,
    listen_http,
    signed_tokens,
    spare_collector,
    stop_on_signals,
    warn_of_open_doors,
)
from tussock.meta.node.wire.outside import OutsideAddresses
from tussock.meta.node.wire.rate_limits import RateLimits
from tussock.meta.server.bucket_credentials import credential_source
from tussock.meta.server.node import MetaNode
from tussock.meta.server.settings.model import MetaSettings, node_options
from tussock.meta.server.status.counters import ReplicaMetrics
from tussock.meta.server.status.metrics import StatusCollector
from tussock.meta.server.status.report import StatusReport
from tussock.meta.server.wire.gate import Gate
from tussock.meta.server.wire.grpc_server import GrpcServer
from tussock.meta.server.wire.http_server import make_app
from tussock.statestore.base.logs import get_logger
from tussock.statestore.base.service_logs import start_logging
from tussock.statestore.base.system import RealSystem
from tussock.statestore.buckets import RequestCounts, open_source
from tussock.statestore.errors import InvalidOption

__all__ = ["serve"]

log = get_logger("tussock.meta")
FILES_MAX = 65_536


def serve(settings: MetaSettings) -> None:
    """Serve until SIGTERM or SIGINT, then drain and end the process with code 0.

    Raises what the settings turn out not to allow (`InvalidOption`), or what the bucket says.
    """
    # A second series for each one, for which nobody asks.
    disable_created_metrics()  # type: ignore[no-untyped-call]
    start_logging(settings.log.level, settings.log.format, sys.stderr)
    _raise_file_limit()
    asyncio.run(_serve(settings))


def _raise_file_limit() -> None:
    """Let this process have as many files, so connections, as it may: shells and pods often begin with 1,024."""
    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = FILES_MAX if most == resource.RLIM_INFINITY else min(most, FILES_MAX)
    resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, most))


async def _serve(settings: MetaSettings) -> None:
    system = RealSystem()
    metrics = ReplicaMetrics()
    authenticator = authenticator_of(
        settings.tls,
        settings.tokens,
        system,
        clients_file=settings.clients.file,
        signed=signed_tokens(settings.accounts, settings.oidc, os.environ, system),
    )
    server = GrpcServer(
        Gate(
            system,
            authenticator,
            RateLimits(system, settings.limits.calls_per_second, settings.limits.calls_burst),
            metrics.calls,
        ),
        credentials=grpc_credentials(settings.tls, system),
        message_bytes_max=settings.limits.message_bytes,
    )
    address = _address_for_clients(settings, server.bind(settings.listen))
    outside = _bind_outside(settings, server, system)
    store_options = _bucket_options(settings)
    open_other = functools.partial(open_source, system=system, options=store_options)
    requests = RequestCounts(open_other(settings.store), open_other)
    node = MetaNode(
        requests,
        system,
        node_options(settings, address, store_options),
        credential_source(settings, os.environ, system),
        authenticator.clients.dismissal if authenticator.clients else lambda _: "",
    )
    report = StatusReport(node, system, metrics.log.count, authenticator.clients)
    node.status = report.status
    metrics.register(StatusCollector(report.whole, requests.counts))
    stopped = asyncio.Event()
    stop_on_signals(stopped, log)
    warn_of_open_doors(authenticator, settings.tls, settings.tokens, "service", log)
    node.start()
    await server.start(node)
    app = make_app(
        report.status, report.replica, metrics.render, authenticator.authenticate, node.defect, authenticator.prove
    )
    # Kept in a name, or it would be collected.
    watching = asyncio.create_task(authenticator.clients.watch()) if authenticator.clients else None
    try:
        http = await listen_http(app, settings.http_listen, settings.tls, system)
    except InvalidOption:
        await _drain(node, server, settings.drain_seconds)
        raise
    spare_collector()
    log.info("serving", address=address, outside=outside, http=http, store=settings.store)
    await stopped.wait()
    if watching is not None:
        watching.cancel()
    log.info("draining", address=address, seconds=settings.drain_seconds)
    await _drain(node, server, settings.drain_seconds)
    log.info("stopped", address=address)
    # Whatever still runs (a request to a bucket that hangs, an HTTP connection) was given its time; a thread in it
    # would keep Python from ending.
    sys.stderr.flush()
    os._exit(0)


async def _drain(node: MetaNode, server: GrpcServer, seconds: float) -> None:
    loop = asyncio.get_running_loop()
    deadline = loop.time() + seconds
    handed_over = loop.run_in_executor(None, node.drain)
    done, _ = await asyncio.wait({handed_over}, timeout=seconds)
    if not done:
        log.warning("leadership could not be given back in time; the others take over when the lease runs out")
    elif error := handed_over.exception():
        log.warning("leadership could not be given back", error=str(error))
    await server.stop(max(deadline - loop.time(), 0.0))


def _bucket_options(settings: MetaSettings) -> dict[str, str]:
    """How clients reach the bucket: what the settings say, else what this process's environment does. No secrets."""
    told = {
        "AWS_ENDPOINT_URL": settings.bucket.endpoint,
        "AWS_REGION": settings.bucket.region,
        "AWS_ALLOW_HTTP": "" if settings.bucket.allow_http is None else str(settings.bucket.allow_http).lower(),
    }
    if not settings.store.startswith("s3://"):
        return {}
    found = {name: value or os.environ.get(name, "") for name, value in told.items()}
    return {name: value for name, value in found.items() if value}


def _bind_outside(settings: MetaSettings, server: GrpcServer, system: RealSystem) -> str:
    """Where clients outside come in: `host:port` of this machine; empty if they do not."""
    if not settings.outside.listen:
        return ""
    told = OutsideAddresses(settings.outside.file, system).told
    port = server.bind_outside(settings.outside.listen, told, grpc_credentials(settings.tls, system))
    return f"{settings.outside.listen.rpartition(':')[0]}:{port}"


def _address_for_clients(settings: MetaSettings, port: int) -> str:
    """Where clients reach this replica: as told, else where it listens, with a host that means something elsewhere."""
    if settings.advertise:
        return settings.advertise
    host = settings.listen.rpartition(":")[0]
    return f"{socket.getfqdn() if host in ('0.0.0.0', '[::]') else host}:{port}"  # noqa: S104  # compared, not bound
