"""A store with certificates of cert-manager: its own controllers issue them, at an API server of the test's own."""

import base64
from collections.abc import Iterator
from pathlib import Path

import pytest

from cluster.binaries import BUILD_SECONDS_MAX, NoCluster, build
from support.api_server import running_api_server
from support.cert_manager import ca_issuer, install_definitions, running_cert_manager
from support.kubectl import Kubectl
from support.meta_process import MetaProcess
from support.minio import MinioServer
from support.operators import PUT_RIGHT_SECONDS, Body, Objects, OperatorProcess, eventually
from support.stores_in_cluster import serving, store_on
from tussock.operator.manifests.transport_security import role_patterns, server_name
from tussock.operator.planning.components import SECRETS_SEEN
from tussock.operator.resources.store import parse_store
from tussock.statestore import connect
from tussock.statestore.errors import AccessDenied

pytestmark = [pytest.mark.minio, pytest.mark.slow, pytest.mark.timeout(BUILD_SECONDS_MAX + 300)]
SOON = PUT_RIGHT_SECONDS
IDENTITIES = ("meta", "compactor", "client-reader", "client-writer", "client-admin")


@pytest.fixture
def kubectl(tmp_path: Path) -> Iterator[Kubectl]:
    """Of an API server that has our kinds, and no cert-manager; that can be had, though."""
    try:
        build(("cert-manager",))
        with running_api_server(tmp_path / "api") as kubeconfig:
            found = Kubectl(kubeconfig, tmp_path / "cache")
            crds = str(Path(__file__).resolve().parents[2] / "crds")
            found.done("apply", "--server-side", "-f", crds)
            found.done("wait", "--for=condition=Established", "--timeout=60s", "-f", crds)
            yield found
    except NoCluster as error:
        pytest.skip(str(error))


def test_certificates_of_cert_manager(kubectl: Kubectl, minio: MinioServer, tmp_path: Path) -> None:
    """Missed, then found; issued by an issuer with a CA; good for nodes and clients; a new one is told to kubelets."""
    kubeconfig = tmp_path / "api" / "kubeconfig"
    objects = Objects(kubeconfig, "shop")
    objects.make_namespace()
    process = OperatorProcess(kubeconfig, tmp_path, "shop", lease="shop")
    process.keep()
    try:
        body = store_on(minio, objects, "s")
        body["spec"]["tls"] = {"mode": "certManager", "issuerRef": {"name": "nodes", "kind": "Issuer"}}
        objects.apply(body)
        assert "Install cert-manager" in objects.await_reason("StateStore", "s", "CertificatesNotIssued")["message"]

        install_definitions(kubectl)
        eventually("a request for a certificate", lambda: _certificate(objects, "meta"))
        assert '"event": "stopped", "lost_lease": false' in process.log()
        eventually("its issuer", lambda: objects.ready("StateStore", "s")["message"].endswith("by Issuer nodes."))

        with running_cert_manager(kubeconfig, tmp_path) as log:
            for found in ca_issuer("nodes"):
                objects.apply(found)
            try:
                serving(objects, body)
            except AssertionError:
                print(log.read_text()[-4000:])
                raise
            expire = eventually("when they end", lambda: _status(objects).get("certificatesExpireTime"))
            assert expire == min(_certificate(objects, one)["status"]["notAfter"] for one in IDENTITIES)
            _take_part(objects, tmp_path)

            former, pod = _secret(objects, "meta"), _pod_of(objects, "s-meta")
            seen = eventually("a stamp of what the pod has", lambda: _stamp(objects, pod))
            objects.delete("Secret", "s-meta-tls")
            eventually(
                "another stamp", lambda: _stamp(objects, pod) not in ("", seen) and _secret(objects, "meta"), SOON
            )
            assert _secret(objects, "meta")["data"]["tls.key"] != former["data"]["tls.key"]
        assert process.stop() == 0, process.log()[-2000:]
    finally:
        if process in OperatorProcess.running:
            process.kill()


def _take_part(objects: Objects, folder: Path) -> None:
    """A meta node serves with its certificate; a client may do what the role of its own may."""
    for identity in IDENTITIES:
        (folder / identity).mkdir()
        for file, content in _secret(objects, identity)["data"].items():
            (folder / identity / file).write_bytes(base64.b64decode(content))
    own, store = folder / "meta", parse_store(objects.get("StateStore", "s") or {})
    files = ("--tls.certificate", own / "tls.crt", "--tls.key", own / "tls.key", "--tls.client-ca", own / "ca.crt")
    roles = [part for role, names in role_patterns(store).items() for part in (f"--tls.roles.{role}", ",".join(names))]
    with MetaProcess((folder / "bucket").as_uri(), *map(str, files), *roles) as meta:
        meta.wait_until_it_leads()
        for identity, may in (("client-writer", True), ("client-reader", False)):
            shown = {"tls_ca": "ca.crt", "tls_cert": "tls.crt", "tls_key": "tls.key"}
            named = {name: str(folder / identity / file) for name, file in shown.items()}
            with connect(meta.url, tls_server_name=server_name(store), **named) as opened:
                if may:
                    opened.create_table("kv")
                else:
                    with pytest.raises(AccessDenied):
                        opened.create_table("other")


def _pod_of(objects: Objects, deployment: str) -> str:
    """A pod as the Deployment's own controller would make it, if there were one; its name."""
    template = (objects.get("Deployment", deployment) or {})["spec"]["template"]
    name = f"{deployment}-1"
    body = {"apiVersion": "v1", "kind": "Pod", "metadata": {**template["metadata"], "name": name}}
    objects.apply({**body, "spec": template["spec"]})
    return name


def _stamp(objects: Objects, pod: str) -> str:
    annotations = (objects.get("Pod", pod) or {}).get("metadata", {}).get("annotations") or {}
    return str(annotations.get(SECRETS_SEEN, ""))


def _secret(objects: Objects, identity: str) -> Body:
    return objects.get("Secret", f"s-{identity}-tls") or {}


def _certificate(objects: Objects, identity: str) -> Body:
    return objects.get("Certificate", f"s-{identity}-tls") or {}


def _status(objects: Objects) -> Body:
    return (objects.get("StateStore", "s") or {}).get("status") or {}
