"""A store with certificates of cert-manager: its real controllers issue them, at a separate API server."""

import base64
from collections.abc import Iterator
from pathlib import Path

import pytest
from cryptography import x509

from cluster.binaries import BUILD_SECONDS_MAX, PROGRAMS, NoCluster, build
from support.buckets.minio import MinioServer
from support.kubernetes.api_server import running_api_server
from support.kubernetes.cert_manager import ca_issuer, running_cert_manager
from support.kubernetes.kubectl import Kubectl
from support.operator.process import PUT_RIGHT_SECONDS, Body, Objects, OperatorProcess, eventually
from support.operator.stores_in_cluster import serving, store_on
from support.service.encrypted_meta import meta_with
from tussock.operator.certificates.issue import certificates_in
from tussock.operator.planning.words.components import SECRETS_SEEN
from tussock.operator.resources.store import parse_store
from tussock.statestore.errors import AccessDenied

pytestmark = [pytest.mark.minio, pytest.mark.slow, pytest.mark.timeout(BUILD_SECONDS_MAX + 300)]
IDENTITIES = ("meta", "compactor", "client-reader", "client-writer", "client-admin")


@pytest.fixture
def kubectl(tmp_path: Path) -> Iterator[Kubectl]:
    """An API server with Tussock's kinds and without cert-manager, which the test installs later."""
    try:
        build(("cert-manager",))
        with running_api_server(tmp_path / "api") as kubeconfig:
            found = Kubectl(kubeconfig, tmp_path / "cache")
            found.define(Path(__file__).resolve().parents[3] / "crds")
            yield found
    except NoCluster as error:
        pytest.skip(str(error))


def test_cert_manager_issues_the_certificates_of_a_store(kubectl: Kubectl, minio: MinioServer, tmp_path: Path) -> None:
    """Missed, then found; issued by an issuer with a CA; valid for nodes and clients; renewals reach kubelets."""
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

        kubectl.define(PROGRAMS["cert-manager"].crds)
        eventually("a request for a certificate", lambda: _certificate(objects, "meta"))
        assert '"event": "stopped", "lost_lease": false' in process.log()
        eventually("its issuer", lambda: objects.ready("StateStore", "s")["message"].endswith("with Issuer nodes."))

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
            secrets = {f"s-{one}-tls": _secret(objects, one)["data"] for one in IDENTITIES}
            with meta_with(secrets, parse_store(objects.get("StateStore", "s") or {}), tmp_path) as opened:
                with opened("client-writer") as store:
                    store.create_table("kv")
                with opened("client-reader") as store, pytest.raises(AccessDenied):
                    store.create_table("other")

            _one_for_a_job(objects)

            former, pod = _secret(objects, "meta"), _pod_of(objects, "s-meta")
            seen = eventually("a stamp of what the pod has", lambda: _stamp(objects, pod))
            objects.delete("Secret", "s-meta-tls")

            def is_renewed() -> bool:
                return _stamp(objects, pod) not in ("", seen) and bool(_secret(objects, "meta"))

            eventually("another stamp", is_renewed, PUT_RIGHT_SECONDS)
            assert _secret(objects, "meta")["data"]["tls.key"] != former["data"]["tls.key"]
        assert process.stop() == 0, process.log()[-2000:]
    finally:
        if process in OperatorProcess.running:
            process.kill()


def _one_for_a_job(objects: Objects) -> None:
    """A job's certificate is issued into a Secret of its name, which goes with the job; cert-manager would keep it."""
    spec = {"storeRef": {"name": "s"}, "application": {"file": "/opt/app.py"}, "checkpoint": {"emptyDir": {}}}
    about = {"apiVersion": "tussock.dev/v1alpha1", "kind": "Compute", "metadata": {"name": "job"}}
    objects.apply({**about, "spec": spec})
    secret = eventually("a certificate of the job", lambda: objects.get("Secret", "job-driver-tls"), PUT_RIGHT_SECONDS)
    leaf = certificates_in(base64.b64decode(secret["data"]["tls.crt"]).decode())[0]
    names = leaf.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    assert names.get_values_for_type(x509.UniformResourceIdentifier) == ["tussock://shop/s/writer/job"]
    assert secret["data"]["tls.key"] != _secret(objects, "client-writer")["data"]["tls.key"]
    eventually("its driver", lambda: objects.get("Pod", "job-driver"))
    objects.delete("Compute", "job")
    eventually("no job", lambda: objects.get("Compute", "job") is None, PUT_RIGHT_SECONDS)
    eventually("no certificate", lambda: objects.get("Certificate", "job-driver-tls") is None, PUT_RIGHT_SECONDS)
    eventually("no secret", lambda: objects.get("Secret", "job-driver-tls") is None, PUT_RIGHT_SECONDS)


def _pod_of(objects: Objects, deployment: str) -> str:
    """Make the pod that the Deployment's controller, which is missing here, would make; returns its name."""
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
