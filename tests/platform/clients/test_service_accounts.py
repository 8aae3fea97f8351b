"""Service accounts of a real API server of Kubernetes at a real meta service."""

import base64
import time
from pathlib import Path

import pytest
import yaml
from kubernetes import client, config

from support.service.meta_process import MetaProcess
from tussock.statestore import connect
from tussock.statestore.errors import AccessDenied, MetaUnavailable, Unauthenticated

AUDIENCE = "tussock"
CLIENTS = """
[clients.dashboard]
role = "reader"
service_accounts = ["identity/dashboard"]
"""
REFUSED_SECONDS_MAX = 60


class Accounts:
    """Service accounts in a namespace for this test."""

    def __init__(self, kubeconfig: Path) -> None:
        api = config.new_client_from_config(str(kubeconfig))
        self._core, self._rights = client.CoreV1Api(api), client.RbacAuthorizationV1Api(api)
        (cluster,) = yaml.safe_load(kubeconfig.read_text())["clusters"]
        self.url = str(cluster["cluster"]["server"])
        self.authority = base64.b64decode(cluster["cluster"]["certificate-authority-data"])
        self._core.create_namespace({"metadata": {"name": "identity"}})
        for name in ("meta", "dashboard", "stranger"):
            self._core.create_namespaced_service_account("identity", {"metadata": {"name": name}})

    def let_meta_ask(self) -> None:
        """Bind the account of the service to the right to ask."""
        self._rights.create_cluster_role_binding(
            {
                "metadata": {"name": "identity-meta"},
                "roleRef": {
                    "apiGroup": "rbac.authorization.k8s.io",
                    "kind": "ClusterRole",
                    "name": "system:auth-delegator",
                },
                "subjects": [{"kind": "ServiceAccount", "namespace": "identity", "name": "meta"}],
            }
        )

    def token(self, name: str, *audiences: str) -> str:
        """A token as a pod gets it; for the API itself without audiences."""
        spec = client.V1TokenRequestSpec(audiences=list(audiences), expiration_seconds=3600)
        request = client.AuthenticationV1TokenRequest(spec=spec)
        return str(self._core.create_namespaced_service_account_token(name, "identity", request).status.token)

    def delete(self, name: str) -> None:
        self._core.delete_namespaced_service_account(name, "identity")


@pytest.fixture
def accounts(api_server: Path) -> Accounts:
    return Accounts(api_server)


def test_a_service_account_is_a_client_while_it_exists(accounts: Accounts, tmp_path: Path) -> None:
    """By a token for the service's audience alone; the service has to have the right to ask."""
    (tmp_path / "token").write_text(accounts.token("meta"))
    (tmp_path / "ca.crt").write_bytes(accounts.authority)
    (tmp_path / "clients").write_text(CLIENTS)
    arguments = ("--clients.file", str(tmp_path / "clients"), "--accounts.audience", AUDIENCE)
    arguments += ("--accounts.api", accounts.url, "--accounts.folder", str(tmp_path))
    with MetaProcess((tmp_path / "store").as_uri(), *arguments) as process:
        process.wait_until_it_leads()
        token = accounts.token("dashboard", AUDIENCE)
        with pytest.raises(MetaUnavailable, match="system:auth-delegator"):
            connect(process.url, token=token, deadline=1.0)
        accounts.let_meta_ask()
        with (
            connect(process.url, token=token, deadline=10.0) as store,
            pytest.raises(AccessDenied, match="'client:dashboard' has the role reader"),
        ):
            store.create_table("kv")
        for refused in (
            accounts.token("dashboard"),
            accounts.token("dashboard", "elsewhere"),
            accounts.token("stranger", AUDIENCE),
            token[:-4] + "AAAA",
        ):
            with pytest.raises(Unauthenticated):
                connect(process.url, token=refused, deadline=10.0)
        accounts.delete("dashboard")
        deadline = time.monotonic() + REFUSED_SECONDS_MAX
        while True:
            try:
                connect(process.url, token=token, deadline=10.0).close()
            except Unauthenticated:
                break
            assert time.monotonic() < deadline
            time.sleep(1.0)
        assert not [line for line in process.raw if token in line or token.rpartition(".")[2] in line]


def test_a_service_says_what_is_missing(tmp_path: Path) -> None:
    """An audience without a clients file, or outside of a cluster, or with no files to ask by."""
    (tmp_path / "c").write_text(CLIENTS)
    given = ("--clients.file", str(tmp_path / "c"))
    for arguments, said in (
        ((), "no service account would have a role: set clients.file"),
        (given, "does not run in a pod: set accounts.api"),
        ((*given, "--accounts.api", "http://k:1"), "expected an https:// URL"),
        ((*given, "--accounts.api", "https://k:1", "--accounts.folder", "/nowhere"), "/nowhere/token"),
    ):
        with MetaProcess((tmp_path / "store").as_uri(), "--accounts.audience", AUDIENCE, *arguments) as process:
            assert process.wait() != 0
            assert any(said in line for line in process.raw), process.raw
