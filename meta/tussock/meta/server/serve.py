"""Runs one replica as a process: wires settings, logs, bucket, node, gRPC and HTTP, and ends them in order."""

import asyncio
import os
import signal
import socket

import grpc

from tussock.meta.server.gate import Gate
from tussock.meta.server.grpc_server import GrpcServer
from tussock.meta.server.http import make_app, start_http
from tussock.meta.server.limits import RateLimits
from tussock.meta.server.metrics import Metrics
from tussock.meta.server.node import MetaNode
from tussock.meta.server.report import Report
from tussock.meta.server.security import Authenticator
from tussock.meta.server.settings import MetaSettings, node_options
from tussock.meta.server.status_metrics import StatusCollector
from tussock.meta.server.tls import server_credentials
from tussock.statestore.buckets import RequestCounts, open_bucket
from tussock.statestore.logs import get_logger
from tussock.statestore.system import RealSystem, System

__all__ = ["serve"]

log = get_logger("tussock.meta")


def serve(settings: MetaSettings) -> None:
    """Serve until SIGTERM or SIGINT, then hand over and return. Raises what the settings turn out not to allow."""
    asyncio.run(_serve(settings))


async def _serve(settings: MetaSettings) -> None:
    system = RealSystem()
    metrics = Metrics()
    authenticator = _authenticator(settings, system)
    limits = RateLimits(system, settings.limits.calls_per_second, settings.limits.calls_burst)
    server = GrpcServer(
        Gate(system, authenticator, limits, metrics.calls),
        credentials=_tls(settings, system),
        message_bytes_max=settings.limits.message_bytes,
    )
    address = _advertised(settings, server.bind(settings.listen))
    store_options = bucket_options(settings)
    bucket = open_bucket(settings.store, system=system, options=store_options)
    requests = RequestCounts(bucket)
    node = MetaNode(requests, system, node_options(settings, address, store_options))
    report = Report(node, system)
    metrics.register(StatusCollector(report.status, requests.counts))
    stopped = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stopped.set)
    node.start()
    await server.start(node)
    runner = None
    if settings.http_listen:
        host, _, port = settings.http_listen.rpartition(":")
        app = make_app(report.status, metrics.render, authenticator.authenticate)
        runner, http_port = await start_http(app, host.strip("[]"), int(port))
        log.info("serving", address=address, http=f"{host}:{http_port}", store=settings.store)
    else:
        log.info("serving", address=address, store=settings.store)
    await stopped.wait()
    log.info("draining", address=address)
    await loop.run_in_executor(None, node.drain)
    await server.stop(settings.drain_seconds)
    if runner is not None:
        await runner.cleanup()
    bucket.close()
    log.info("stopped", address=address)


def bucket_options(settings: MetaSettings) -> dict[str, str]:
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


def _authenticator(settings: MetaSettings, system: System) -> Authenticator:
    return Authenticator(
        system,
        tokens_file=settings.tokens.file,
        certificates_required=bool(settings.tls.client_ca),
        certificate_roles=settings.tls.roles.model_dump(),
    )


def _tls(settings: MetaSettings, system: System) -> grpc.ServerCredentials | None:
    tls = settings.tls
    return server_credentials(tls.certificate, tls.key, tls.client_ca, system) if tls.certificate else None


def _advertised(settings: MetaSettings, port: int) -> str:
    """Where clients reach this replica: as told, else where it listens, with a host that means something elsewhere."""
    if settings.advertise:
        return settings.advertise
    host = settings.listen.rpartition(":")[0]
    return f"{socket.getfqdn() if host in ('0.0.0.0', '[::]') else host}:{port}"  # noqa: S104  # compared, not bound
