"""Service accounts as clients: what the operator makes, a real token of the API server, and a real meta service."""

import base64
import os
import time
import tomllib
from collections.abc import Callable
from pathlib import Path

import pytest
import yaml
from kubernetes import client, config

from support.operator.process import Body, Objects, OperatorProcess
from support.operator.stores_in_cluster import serving, unprobed_store
from support.service.meta_process import MetaProcess
from tussock.statestore import connect
from tussock.statestore.errors import AccessDenied, TussockError, Unauthenticated

pytestmark = pytest.mark.timeout(300)
FILES = ("ca.crt", "tls.crt", "tls.key")


class Pods:
    """What kubelets give to pods: files of Secrets and ConfigMaps, and tokens."""

    def __init__(self, objects: Objects, folder: Path) -> None:
        self._objects = objects
        self._folder = folder
        api = config.new_client_from_config(str(objects.kubeconfig))
        self._core, self._rights = client.CoreV1Api(api), client.RbacAuthorizationV1Api(api)
        (cluster,) = yaml.safe_load(objects.kubeconfig.read_text())["clusters"]
        self.api = str(cluster["cluster"]["server"])
        self._authority = base64.b64decode(cluster["cluster"]["certificate-authority-data"])

    def secret(self, name: str) -> Path:
        """The folder with the files of a Secret."""
        found, folder = self._objects.get("Secret", name), self._folder / name
        assert found is not None
        folder.mkdir(exist_ok=True)
        for file in FILES:
            (folder / file).write_bytes(base64.b64decode(found["data"][file]))
        return folder

    def account(self, name: str) -> Path:
        """The folder of the service account that a pod runs as."""
        folder = self._folder / f"account-{name}"
        folder.mkdir(exist_ok=True)
        (folder / "token").write_text(self.token(name))
        (folder / "ca.crt").write_bytes(self._authority)
        return folder

    def token(self, name: str, *audiences: str) -> str:
        """A token of a service account; for the API itself without audiences."""
        spec = client.V1TokenRequestSpec(audiences=list(audiences), expiration_seconds=3600)
        request = client.AuthenticationV1TokenRequest(spec=spec)
        made = self._core.create_namespaced_service_account_token(name, self._objects.namespace, request)
        return str(made.status.token)

    def let_ask(self, account: str) -> None:
        """What the chart's value `tokenReviews` makes."""
        rules = [{"apiGroups": ["authentication.k8s.io"], "resources": ["tokenreviews"], "verbs": ["create"]}]
        self._rights.create_cluster_role({"metadata": {"name": account}, "rules": rules})
        self._rights.create_cluster_role_binding(
            {
                "metadata": {"name": account},
                "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": account},
                "subjects": [{"kind": "ServiceAccount", "namespace": self._objects.namespace, "name": account}],
            }
        )


def settings_of(shared: Objects, store: str) -> Body:
    return tomllib.loads((shared.get("ConfigMap", f"{store}-meta") or {})["data"]["meta.toml"])


def refused_within(seconds: float, call: Callable[[], object]) -> TussockError:
    """The refusal of a call that is let in at first."""
    deadline = time.monotonic() + seconds
    while True:
        try:
            call()
        except Unauthenticated as error:
            return error
        assert time.monotonic() < deadline
        time.sleep(0.1)


def test_a_pod_is_a_client_by_its_service_account(
    name: str, shared: Objects, operator: OperatorProcess, tmp_path: Path
) -> None:
    """With the operator's certificate for the connection, until the client is revoked; and nobody else is."""
    pods, app = Pods(shared, tmp_path), f"{name}-app"
    platform = serving(shared, unprobed_store(name, tls={"mode": "managed"}, tokenReviews=True))
    for account in (app, f"{name}-other", "buckets"):
        shared.apply({"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": account}})
    spec = {"storeRef": {"name": platform}, "role": "reader", "serviceAccounts": [app]}
    about = {"apiVersion": "tussock.dev/v1alpha1", "kind": "StateStoreClient", "metadata": {"name": app}}
    shared.apply({**about, "spec": spec})
    shared.await_reason("StateStoreClient", app, "Ready")
    audience = (shared.get("StateStoreClient", app) or {})["status"]["audience"]
    assert audience == f"tussock://{shared.namespace}/{platform}"
    assert settings_of(shared, platform)["accounts"] == {"audience": audience}
    pod = (shared.get("Deployment", f"{platform}-meta") or {})["spec"]["template"]["spec"]
    assert pod["automountServiceAccountToken"] is True

    declared = tmp_path / "clients.toml"

    def fetch() -> None:
        """What a kubelet does when the ConfigMap has changed."""
        beside = declared.with_suffix(".new")
        beside.write_text((shared.get("ConfigMap", f"{platform}-meta") or {})["data"]["clients.toml"])
        os.replace(beside, declared)

    fetch()
    node, own, account = (
        pods.secret(f"{platform}-meta-tls"),
        pods.secret(f"{app}-client-tls"),
        pod["serviceAccountName"],
    )
    shown = [f"--tls.certificate={node / 'tls.crt'}", f"--tls.key={node / 'tls.key'}"]
    shown += [f"--tls.client-ca={node / 'ca.crt'}", f"--clients.file={declared}", f"--accounts.audience={audience}"]
    # Without it nobody is let in, which `test_service_accounts.py` shows.
    pods.let_ask(account)
    shown += [f"--accounts.api={pods.api}", f"--accounts.folder={pods.account(account)}"]
    with MetaProcess((tmp_path / "bucket").as_uri(), *shown) as process:
        process.wait_until_it_leads()

        def open_with(token: str | None) -> None:
            connect(
                process.url,
                token=token,
                tls_ca=str(own / "ca.crt"),
                tls_cert=str(own / "tls.crt"),
                tls_key=str(own / "tls.key"),
                tls_server_name=f"{platform}-meta.{shared.namespace}.svc",
                deadline=60.0,
            ).close()

        token = pods.token(app, audience)
        open_with(token)
        for stranger in (pods.token(f"{name}-other", audience), pods.token(app, "elsewhere"), pods.token(app), None):
            with pytest.raises((AccessDenied, Unauthenticated)):
                open_with(stranger)
        shared.patch("StateStoreClient", app, {"spec": {"revoked": True}})
        shared.await_reason("StateStoreClient", app, "Revoked")
        fetch()
        assert "is revoked" in str(refused_within(10, lambda: open_with(token)))
        assert not [line for line in process.raw if token in line]
