"""cert-manager's own controllers against an API server, and issuers for them; `cluster.binaries` builds it before."""

import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from cluster.binaries import PROGRAMS
from support.operator.process import Body

__all__ = ["ca_issuer", "running_cert_manager"]


@contextmanager
def running_cert_manager(kubeconfig: Path, folder: Path) -> Iterator[Path]:
    """Run cert-manager meanwhile, with an administrator's rights; yields its log."""
    log = folder / "cert-manager.log"
    with log.open("ab") as output:
        command = [str(PROGRAMS["cert-manager"].path), "-kubeconfig", str(kubeconfig)]
        process = subprocess.Popen(command, stdout=output, stderr=output, stdin=subprocess.DEVNULL)
    try:
        yield log
    finally:
        process.kill()
        process.wait()


def ca_issuer(name: str) -> list[Body]:
    """An `Issuer` with a new CA, and the objects that make that CA."""
    certificate = {
        "isCA": True,
        "commonName": f"{name} CA",
        "secretName": f"{name}-ca",
        "privateKey": {"algorithm": "ECDSA", "size": 256},
        "issuerRef": {"name": f"{name}-root", "kind": "Issuer"},
    }
    api_version = "cert-manager.io/v1"
    return [
        {"apiVersion": api_version, "kind": kind, "metadata": {"name": of}, "spec": spec}
        for kind, of, spec in (
            ("Issuer", f"{name}-root", {"selfSigned": {}}),
            ("Certificate", f"{name}-ca", certificate),
            ("Issuer", name, {"ca": {"secretName": f"{name}-ca"}}),
        )
    ]
