"""etcd and kube-apiserver as command lines, for the node and for tests that need only an API server."""

import base64
import json
from pathlib import Path
from typing import NamedTuple

from cluster.binaries import HERE, PROGRAMS
from cluster.parts.network import SERVICE_RANGE
from support.network.certificates import Authority, Pair


class Keys(NamedTuple):
    """Where the certificates of one cluster are, all of one authority."""

    authority: Path
    authority_key: Path
    server: Pair
    admin: Pair
    service_accounts: Pair

    @classmethod
    def within(cls, folder: Path) -> "Keys":
        """The certificates of the cluster with this folder."""
        pki = folder / "pki"
        server, admin, accounts = (
            Pair(pki / f"{name}.pem", pki / f"{name}.key") for name in ("server", "admin", "service-accounts")
        )
        return cls(pki / "ca.pem", pki / "ca.key", server, admin, accounts)


def make_keys(folder: Path, server_names: str) -> Authority:
    """Make the `Keys` of a cluster anew; `server_names` of the API server as openssl has them: `IP:...,DNS:...`."""
    authority = Authority(folder, "pki")
    authority.sign("server", names=server_names)
    authority.sign("admin", "/O=system:masters/CN=admin")
    authority.sign("service-accounts")
    return authority


def write_kubeconfig(path: Path, server: str, authority: Path, user: Pair) -> None:
    """A kubeconfig that holds all it needs, and that only its owner reads."""

    def embed(file: Path) -> str:
        return base64.b64encode(file.read_bytes()).decode()

    config = {
        "apiVersion": "v1",
        "kind": "Config",
        "clusters": [
            {"name": "tussock", "cluster": {"server": server, "certificate-authority-data": embed(authority)}}
        ],
        "users": [
            {
                "name": "user",
                "user": {
                    "client-certificate-data": embed(user.certificate),
                    "client-key-data": embed(user.key),
                },
            }
        ],
        "contexts": [{"name": "tussock", "context": {"cluster": "tussock", "user": "user"}}],
        "current-context": "tussock",
    }
    path.touch(mode=0o600)
    path.write_text(json.dumps(config, indent=1))  # JSON is YAML


def etcd_command(folder: Path, client_port: int, peer_port: int) -> list[str]:
    """The store of the API server, on loopback, without fsync: its data need not outlive the machine."""
    client, peer = f"http://127.0.0.1:{client_port}", f"http://127.0.0.1:{peer_port}"
    return [
        str(PROGRAMS["etcd"].path),
        f"--data-dir={folder / 'etcd'}",
        f"--listen-client-urls={client}",
        f"--advertise-client-urls={client}",
        f"--listen-peer-urls={peer}",
        f"--initial-advertise-peer-urls={peer}",
        f"--initial-cluster=default={peer}",
        "--unsafe-no-fsync",
    ]


def api_server_command(folder: Path, etcd_port: int, port: int) -> list[str]:
    """kube-apiserver with RBAC, and an audit log of all writes in `folder/audit.log`."""
    keys = Keys.within(folder)
    return [
        str(PROGRAMS["kube-apiserver"].path),
        f"--etcd-servers=http://127.0.0.1:{etcd_port}",
        f"--secure-port={port}",
        f"--cert-dir={folder}",
        f"--tls-cert-file={keys.server.certificate}",
        f"--tls-private-key-file={keys.server.key}",
        f"--client-ca-file={keys.authority}",
        f"--service-account-key-file={keys.service_accounts.certificate}",
        f"--service-account-signing-key-file={keys.service_accounts.key}",
        "--service-account-issuer=https://kubernetes.default.svc",
        f"--service-cluster-ip-range={SERVICE_RANGE}",
        "--authorization-mode=Node,RBAC",
        "--allow-privileged=true",
        f"--audit-policy-file={HERE / 'audit-policy.yaml'}",
        f"--audit-log-path={folder / 'audit.log'}",
    ]
