"""The pods of a service, run as processes: the manifests give node and workers what they need, with all certificates.

All that a cluster would add is names of hosts and addresses. So TLS, roles, the file of workers and the probe of the
operator are real.
"""

import asyncio
import base64
from collections.abc import Iterator
from contextlib import ExitStack
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from support.applications.served_bank import START
from support.buckets.minio import free_port
from support.children import path_of_imports
from support.operator.containers import ContainerProcess, mounted_files
from support.operator.resources import DEFAULTS, meta_with, store_with
from support.operator.services.service_cases import service_with
from support.waiting import eventually
from tussock.compute import functions as fn
from tussock.operator.certificates.renewal import renew_certificates, renew_own_certificate
from tussock.operator.manifests.certificates import desired_certificates, job_certificate
from tussock.operator.manifests.meta import meta_address, meta_manifests
from tussock.operator.manifests.service.children import service_manifests
from tussock.operator.manifests.service.names import service_server_name
from tussock.operator.planning.words.facts import NodeFact
from tussock.operator.probes.computes.node import ask_node
from tussock.operator.probes.platform import Certificates
from tussock.statestore import AccessDenied

HOST = "127.0.0.1"
SECONDS = 100
STORE = store_with({"volume": {"size": "1Gi"}}, compaction={})
META = meta_with()
BANK = service_with(workers=2, drainSeconds=20, module="support.applications.served_bank:make")


class ServicePlatform:
    """The templates of a store's meta node and of a service, and where their paths and ports are on this machine."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.ports = {port: free_port() for port in (7370, 7371, 7380, 7381, 7382)}
        rendered = meta_manifests(META, STORE, DEFAULTS).manifests
        made = service_manifests(BANK, STORE, [meta_address(META.name, "data")], DEFAULTS)
        assert made.workers is not None
        nodes = {"meta": rendered, "node": [made.node], "worker": [made.workers]}
        self.templates = {name: self._template(found) for name, found in nodes.items()}
        now = datetime.now(UTC)
        secrets = list(renew_certificates(STORE, desired_certificates(STORE, (META.name,), DEFAULTS), {}, now))
        held = {one["metadata"]["name"]: one["data"] for one in secrets}
        own = renew_own_certificate(BANK, STORE, job_certificate(BANK, STORE), held, now)
        assert own is not None
        self.sources: dict[str, dict[str, str]] = {
            one["metadata"]["name"]: {key: base64.b64decode(text).decode() for key, text in one["data"].items()}
            for one in [*secrets, own]
        }
        for one in [*rendered, *made.around]:
            if one["kind"] == "ConfigMap":
                self.sources[one["metadata"]["name"]] = one["data"]

    @staticmethod
    def _template(manifests: Any) -> dict[str, Any]:
        found: dict[str, Any] = next(one for one in manifests if one["kind"] in ("Deployment", "StatefulSet"))
        template: dict[str, Any] = found["spec"]["template"]
        return template

    def names(self, pod: str) -> dict[str, str]:
        root = str(self.folder / pod)
        return {
            "shop-meta.data.svc:7370": f"{HOST}:{self.ports[7370]}",
            "bank-workers.data.svc:7382": f"{HOST}:{self.ports[7382]}",
            **{f"0.0.0.0:{port}": f"{HOST}:{found}" for port, found in self.ports.items()},
            ":7370": f":{self.ports[7370]}",
            "/etc/tussock": f"{root}/etc/tussock",
            "/var/lib/tussock/store": str(self.folder / "store"),
            "/tmp": f"{root}/tmp",
        }

    def run(self, pod: str, as_pod: str = "") -> ContainerProcess:
        names = self.names(as_pod or pod)
        mounted_files(self.templates[pod], self.folder / (as_pod or pod), self.sources, names)
        return ContainerProcess(self.templates[pod], {"status.podIP": HOST}, names)

    def files(self, secret: str) -> dict[str, str]:
        """The arguments by which a client shows the certificate in that secret."""
        folder = self.folder / secret
        folder.mkdir(exist_ok=True)
        for file, text in self.sources[secret].items():
            (folder / file).write_text(text)
        shown = {"tls_ca": "ca.crt", "tls_cert": "tls.crt", "tls_key": "tls.key"}
        return {name: str(folder / file) for name, file in shown.items()}

    def client(self, secret: str) -> fn.Client:
        """A client of the service, which checks the certificate's name."""
        name = service_server_name(BANK, STORE)
        address = f"{HOST}:{self.ports[7380]}"
        return fn.Client(address, tls_server_name=name, deadline=SECONDS, **self.files(secret))

    def ask(self, secret: str) -> NodeFact:
        """What the operator's probe finds."""
        found = self.sources[secret]
        shown = Certificates(*(found[name].encode() for name in ("ca.crt", "tls.crt", "tls.key")))
        return asyncio.run(ask_node(f"{HOST}:{self.ports[7381]}", shown, service_server_name(BANK, STORE)))

    def set_workers(self, number: int) -> None:
        """As a kubelet brings the ConfigMap's change into the pod."""
        file = self.folder / "node" / "etc" / "tussock" / "workers" / "workers"
        file.with_name("new").write_text(f"{number}\n")
        file.with_name("new").replace(file)


@pytest.fixture
def platform(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> ServicePlatform:
    monkeypatch.setenv("PYTHONPATH", path_of_imports())
    return ServicePlatform(tmp_path)


@pytest.fixture
def stack() -> Iterator[ExitStack]:
    with ExitStack() as found:
        yield found


@pytest.mark.slow
def test_a_service_runs_as_its_manifests_say(platform: ServicePlatform, stack: ExitStack) -> None:
    """Workers join over TLS, clients have their roles, the probe sees all, a file scales, and all end in order."""
    stack.enter_context(platform.run("meta")).wait_for(event="serving")
    node = stack.enter_context(platform.run("node"))
    node.wait_for(event="taking workers")
    assert platform.ask("shop-client-reader-tls").workers_joined == 0
    workers = [stack.enter_context(platform.run("worker", f"worker-{number}")) for number in range(2)]
    node.wait_for(event="serving")
    with platform.client("shop-client-writer-tls") as client:
        assert client.send("account", "p0", "transfer", "p1", 30).result(SECONDS) == START - 30
        found = platform.ask("shop-client-reader-tls")
        assert (found.problem, found.application, found.workers, found.workers_joined) == ("", "bank", 2, 2)
        platform.set_workers(1)
        eventually(lambda: platform.ask("shop-client-reader-tls").workers == 1)
        assert client.send("account", "p0", "transfer", "p1", 1).result(SECONDS) == START - 31
    with platform.client("shop-client-reader-tls") as client, pytest.raises(AccessDenied):
        client.send("account", "p0", "transfer", "p1", 1).result(SECONDS)
    node.terminate()
    assert node.wait() == 0, node.raw
    for worker in workers:
        worker.terminate()
        assert worker.wait() == 0, worker.raw


@pytest.mark.slow
def test_a_worker_of_another_job_is_refused(platform: ServicePlatform, stack: ExitStack) -> None:
    """Every writer of the store may call the service; only its own certificate may compute its replies."""
    stack.enter_context(platform.run("meta")).wait_for(event="serving")
    stack.enter_context(platform.run("node")).wait_for(event="taking workers")
    platform.sources["bank-service-tls"] = platform.sources["shop-client-writer-tls"]
    worker = stack.enter_context(platform.run("worker"))
    assert worker.wait() == 1
    assert "may not be a worker; that needs the role admin" in " ".join(worker.raw)
