"""A platform inside the test's process: replicas of the meta service behind real gRPC, each with its own event loop.

For what needs separate processes (kill -9, SIGSTOP, SIGTERM), tests start `tussock meta serve` instead.
"""

import asyncio
import gc
import threading
from collections.abc import Sequence
from dataclasses import replace
from types import TracebackType

import grpc

from support.buckets.minio import free_port
from support.service.compactors import start_compactor
from tussock.meta.compaction.picker_config import PickerConfig
from tussock.meta.node.auth.authentication import Authenticator
from tussock.meta.node.wire.rate_limits import RateLimits
from tussock.meta.server.node import MetaNode
from tussock.meta.server.settings.node_options import NodeOptions
from tussock.meta.server.status.counters import ReplicaMetrics
from tussock.meta.server.status.report import StatusReport
from tussock.meta.server.wire.gate import Gate
from tussock.meta.server.wire.grpc_server import GrpcServer
from tussock.statestore.base.system import RealSystem
from tussock.statestore.buckets import RequestCounts, open_bucket
from tussock.statestore.client import StateStore
from tussock.statestore.connection import connect

START_SECONDS_MAX = 120


class Replica:
    """One replica of the service, which serves."""

    def __init__(
        self,
        options: NodeOptions,
        *,
        authenticator: Authenticator | None = None,
        limits: float = 0,
        credentials: grpc.ServerCredentials | None = None,
    ) -> None:
        self.system = RealSystem()
        self.metrics = ReplicaMetrics()
        self.gate = Gate(
            self.system,
            authenticator or Authenticator(self.system),
            RateLimits(self.system, limits, max(limits, 1)),
            self.metrics.calls,
        )
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, daemon=True)
        self._thread.start()
        self.bucket = open_bucket(options.store_url, system=self.system, options=options.store_options)
        self.requests = RequestCounts(self.bucket)
        self._server = self._run(self._make_server(self.gate, credentials, options.message_bytes_max))
        port = self._run(self._bind(options.address))
        self.address = f"127.0.0.1:{port}"
        self.node = MetaNode(self.requests, self.system, replace(options, address=self.address))
        self.report = StatusReport(self.node, self.system)
        self.node.status = self.report.status
        self.node.start()
        self._run(self._server.start(self.node))
        self._stopped = False

    def stop(self, *, drain: bool = True) -> None:
        """End it; without `drain` it keeps its lease, as if it had been killed."""
        if self._stopped:
            return
        self._stopped = True
        if drain:
            self.node.drain()
        else:
            self.node.close()
        self._run(self._server.stop(0.2))
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(10)
        self.bucket.close()

    def _run(self, work):
        return asyncio.run_coroutine_threadsafe(work, self._loop).result(30)

    async def _make_server(
        self, gate: Gate, credentials: grpc.ServerCredentials | None, message_bytes_max: int
    ) -> GrpcServer:
        return GrpcServer(gate, credentials=credentials, message_bytes_max=message_bytes_max)

    async def _bind(self, address: str) -> int:
        return self._server.bind(address)


QUIET = PickerConfig(
    base_bytes=1 << 60, l0_merge_min=1 << 20, l0_runs_max=1 << 20, l0_stall_runs=1 << 30, tombstone_percent=101
)
"""A picker that compacts nothing by itself."""


class Platform:
    """Some replicas on one store, and compactors."""

    def __init__(self, store_url: str, replicas: int = 1, *, compactors: int = 0, **options: object) -> None:
        self.options = NodeOptions(store_url=store_url, address="127.0.0.1:0", **options)
        self.replicas = [Replica(self.options) for _ in range(replicas)]
        self._stores: list[StateStore] = []
        self.wait_for_leader()
        self.compactors = [start_compactor(self.url, name=f"compactor-{number}") for number in range(compactors)]

    @property
    def url(self) -> str:
        return "tussock://" + ",".join(replica.address for replica in self.replicas)

    @property
    def leader(self) -> Replica:
        """The leading replica."""
        return next(replica for replica in self.replicas if replica.node.is_leader)

    def wait_for_leader(self) -> Replica:
        """Wait until a replica leads."""
        waited = threading.Event()
        for _ in range(START_SECONDS_MAX * 100):
            for replica in self.replicas:
                if replica.node.is_leader:
                    return replica
            waited.wait(0.01)
        raise AssertionError(f"no replica led within {START_SECONDS_MAX} s")

    def connect(self, **options: object) -> StateStore:
        """A client, closed with the platform."""
        store = connect(self.url, **options)
        self._stores.append(store)
        return store

    def __enter__(self) -> "Platform":
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """End clients, then replicas."""
        for store in self._stores:
            store.close()
        for compactor in self.compactors:
            compactor.drain(5.0)
        for replica in self.replicas:
            replica.stop()
        # gRPC closes a forgotten channel in its finalizer, which waits; in the thread of a later server's event loop
        # that would be for ever.
        gc.collect()


def addresses(count: int) -> Sequence[str]:
    """Addresses on which no program listens."""
    return [f"127.0.0.1:{free_port()}" for _ in range(count)]
