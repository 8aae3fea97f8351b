"""Foreign secrets, at a real API server, do not fill the operator's memory."""

from pathlib import Path

import pytest

from support.buckets.minio import MinioServer
from support.memory import peak_bytes
from support.operator.process import Objects, OperatorProcess, eventually
from support.operator.stores_in_cluster import store_on

pytestmark = [pytest.mark.minio, pytest.mark.slow]

MEBIBYTE = 1 << 20
HELM, OTHERS = 120, 80
PEAK_BYTES_MAX = 320 * MEBIBYTE
"""Measured: 237 MiB, and 836 MiB with all secrets in one answer; an idle operator has 120 MiB."""


def test_a_cluster_full_of_secrets_is_listed_in_parts(objects: Objects, minio: MinioServer, tmp_path: Path) -> None:
    """Story: all Secrets of the cluster came in one answer, and Helm's alone killed the operator at its start."""
    text = "x" * (700 << 10)
    kinds = {"helm.sh/release.v1": HELM, "Opaque": OTHERS}
    names = [(f"{kind[:4].lower()}-{number}", kind) for kind, many in kinds.items() for number in range(many)]
    for name, kind in names:
        body = {"apiVersion": "v1", "kind": "Secret", "metadata": {"name": name}, "type": kind}
        objects.apply({**body, "stringData": {"a": text}})
    process = OperatorProcess(objects.kubeconfig, tmp_path, objects.namespace, lease=objects.namespace)
    process.start()
    objects.apply(store_on(minio, objects, "s"))
    eventually("meta nodes", lambda: objects.get("Deployment", "s-meta"))
    peak = peak_bytes(process.pid)
    assert process.stop() == 0
    for name, _ in names:
        objects.delete("Secret", name)
    assert peak < PEAK_BYTES_MAX, peak >> 20
