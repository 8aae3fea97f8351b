"""The API of external metrics in the node's cluster, for the time of a test: `cluster.parts.external_metrics`."""

import base64
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from cluster.node import Node
from cluster.parts.configuration import METRICS_SERVICE
from cluster.parts.control_plane import Keys
from cluster.parts.external_metrics import GROUP_VERSION, METRIC, PORT
from cluster.view.client import Cluster

__all__ = ["METRIC", "served_metrics"]

PROGRAM = "cluster.parts.external_metrics"
_GROUP, _, _VERSION = GROUP_VERSION.partition("/")
_NAME = f"{_VERSION}.{_GROUP}"


@contextmanager
def served_metrics(cluster: Cluster, node: Node) -> Iterator[None]:
    """Register the API, and serve it; afterwards the cluster does not know it any more.

    An API that is registered and not served keeps namespaces from going.
    """
    node.start(PROGRAM)
    try:
        cluster.apply(*_objects(node), namespace="kube-system")
        cluster.kubectl("wait", "--for=condition=Available", f"apiservice/{_NAME}", "--timeout=60s")
        yield
    finally:
        cluster.kubectl("delete", f"apiservice/{_NAME}", "--ignore-not-found")
        for kind in ("service", "endpointslice"):
            cluster.kubectl("delete", f"{kind}/{METRICS_SERVICE}", "--namespace=kube-system", "--ignore-not-found")
        node.daemon(PROGRAM).stop()


def _objects(node: Node) -> list[dict[str, Any]]:
    """A service that leads to the program on the node, and the API that it serves."""
    metadata = {"name": METRICS_SERVICE}
    labels = {"kubernetes.io/service-name": METRICS_SERVICE}
    authority = base64.b64encode(Keys.within(node.folder).authority.read_bytes()).decode()
    return [
        {
            "apiVersion": "v1",
            "kind": "Service",
            "metadata": metadata,
            "spec": {"ports": [{"name": "https", "port": 443, "targetPort": PORT}]},
        },
        {
            "apiVersion": "discovery.k8s.io/v1",
            "kind": "EndpointSlice",
            "metadata": {**metadata, "labels": labels},
            "addressType": "IPv4",
            "ports": [{"name": "https", "port": PORT}],
            "endpoints": [{"addresses": [node.network.node_address], "conditions": {"ready": True}}],
        },
        {
            "apiVersion": "apiregistration.k8s.io/v1",
            "kind": "APIService",
            "metadata": {"name": _NAME},
            "spec": {
                "group": _GROUP,
                "version": _VERSION,
                "groupPriorityMinimum": 100,
                "versionPriority": 100,
                "caBundle": authority,
                "service": {"namespace": "kube-system", **metadata},
            },
        },
    ]
