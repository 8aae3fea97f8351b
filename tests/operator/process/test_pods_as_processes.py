"""The pods of a managed store, run as processes: the manifests give MinIO, meta and compactor what they need.

All that a cluster would add is names of hosts and addresses. So certificates, credentials from files, the STS, the
configuration file and the probes' paths are real.
"""

import base64
import socket
import ssl
import urllib.error
import urllib.request
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from minio import Minio

from support.buckets.minio import MinioServer, free_port
from support.operator.containers import ContainerProcess, MinioContainer, main_container, mounted_files
from support.operator.resources import DEFAULTS
from support.operator.store_cases import CASES, manifests_of, pod_templates
from support.waiting import WAIT_SECONDS
from tussock.operator.certificates.renewal import renew_certificates
from tussock.operator.manifests.certificates import desired_certificates
from tussock.operator.manifests.minio import minio_secret
from tussock.operator.manifests.transport_security import server_name
from tussock.operator.resources.object_store import MANAGED_BUCKET
from tussock.statestore import connect
from tussock.statestore.base.system import RealSystem

STORE = CASES["minimal"][0]
HOST = "127.0.0.1"


class Platform:
    """The templates of the case `minimal`, and where their paths and ports are on this machine."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.ports = {port: free_port() for port in (9000, 7370, 7371, 7372)}
        self.templates = {name.rpartition("/")[2]: found for name, found in pod_templates("minimal").items()}
        secrets = [minio_secret(STORE, "the-user", "the-password-of-it")]
        wanted = desired_certificates(STORE, ("shop",), DEFAULTS)
        secrets += renew_certificates(STORE, wanted, {}, datetime.now(UTC))
        self.sources = {
            found["metadata"]["name"]: {key: base64.b64decode(text).decode() for key, text in found["data"].items()}
            for found in secrets
        }
        self.config = next(found["data"] for found in manifests_of("minimal") if found["kind"] == "ConfigMap")

    def names(self, pod: str) -> dict[str, str]:
        root = str(self.folder / pod)
        return {
            "http://shop-minio.data.svc:9000": f"http://{HOST}:{self.ports[9000]}",
            "shop-meta.data.svc:7370": f"{HOST}:{self.ports[7370]}",
            ":9000": f"{HOST}:{self.ports[9000]}",
            **{f"0.0.0.0:{port}": f"{HOST}:{found}" for port, found in self.ports.items()},
            ":7370": f":{self.ports[7370]}",
            "/etc/tussock": f"{root}/etc/tussock",
            "/data": f"{root}/data",
            "/tmp": f"{root}/tmp",
        }

    def run(self, pod: str, **fields: str) -> ContainerProcess:
        self.mount(pod)
        return ContainerProcess(self.templates[pod], fields, self.names(pod))

    def mount(self, pod: str) -> None:
        sources = {**self.sources, "shop-meta": self.config}
        mounted_files(self.templates[pod], self.folder / pod, sources, self.names(pod))

    def probe(self, pod: str, name: str) -> int:
        """The status of the pod's answer to a probe; 0 if it does not answer."""
        container = main_container(self.templates[pod])
        asked = container[name]["httpGet"]
        port = next(one["containerPort"] for one in container["ports"] if one["name"] == asked["port"])
        # Like a kubelet, which does not check the certificate.
        context = ssl._create_unverified_context() if asked["scheme"] == "HTTPS" else None
        url = f"{asked['scheme'].lower()}://{HOST}:{self.ports[port]}{asked['path']}"
        try:
            with urllib.request.urlopen(url, timeout=5, context=context) as answer:
                return int(answer.status)
        except urllib.error.HTTPError as error:
            with error:
                return error.code
        except OSError:
            return 0

    def wait_until_ready(self, pod: str) -> None:
        system = RealSystem()
        deadline = system.monotonic() + WAIT_SECONDS
        for name in ("startupProbe", "readinessProbe", "livenessProbe"):
            while (status := self.probe(pod, name)) != 200:
                assert system.monotonic() < deadline, f"the {name} of {pod} still gets {status}"
                system.sleep(0.1)

    def client(self, identity: str, **options: Any) -> Any:
        folder = self.folder / identity
        folder.mkdir(exist_ok=True)
        for file, text in self.sources[f"shop-{identity}-tls"].items():
            (folder / file).write_text(text)
        shown = {"tls_ca": folder / "ca.crt", "tls_cert": folder / "tls.crt", "tls_key": folder / "tls.key"}
        url = f"tussock://{HOST}:{self.ports[7370]}"
        return connect(url, **{name: str(file) for name, file in shown.items()}, **options)


@pytest.mark.minio
@pytest.mark.slow
def test_a_managed_store_runs_as_its_manifests_say(
    minio: MinioServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Probes succeed, rows are written, compacted and read, and each process ends in order when told to."""
    for name in minio.environment:
        monkeypatch.delenv(name, raising=False)
    platform = Platform(tmp_path)
    platform.mount("shop-minio")
    names = platform.names("shop-minio")
    with MinioContainer(platform.templates["shop-minio"], minio.binary, names, tmp_path / "minio.log"):
        platform.wait_until_ready("shop-minio")
        # What the operator does when it has reached a managed object store.
        user, password = platform.sources["shop-minio"].values()
        admin = Minio(f"{HOST}:{platform.ports[9000]}", access_key=user, secret_key=password, secure=False)
        admin.make_bucket(MANAGED_BUCKET)
        with (
            platform.run("shop-meta", **{"status.podIP": HOST}) as meta,
            platform.run("shop-compactor") as compactor,
        ):
            platform.wait_until_ready("shop-meta")
            platform.wait_until_ready("shop-compactor")
            assert meta.wait_for(event="serving")["address"] == f"{HOST}:{platform.ports[7370]}"
            assert compactor.wait_for(event="compacting")["name"].startswith(f"{socket.gethostname()}:")
            with platform.client("client-writer", tls_server_name=server_name(STORE)) as store:
                table = store.create_table("kv")
                for batch in range(3):
                    epoch = store.new_epoch()
                    table.ingest_batch([(b"%d" % batch, b"x")], epoch)
                    store.commit_epoch(epoch, writer="job", batch_id=batch)
                store.compact("kv")
            with platform.client("client-reader", tls_server_name=server_name(STORE)) as store:
                assert [store.table("kv").get(b"%d" % batch) for batch in range(3)] == [b"x"] * 3
            for process in (compactor, meta):
                process.terminate()
                assert process.wait() == 0
                assert password not in "\n".join(process.raw)
