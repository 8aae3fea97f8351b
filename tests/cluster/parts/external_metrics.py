"""Serves the metric by which an autoscaler scales compactors: the smallest that does what prometheus-adapter does.

A cluster elsewhere has Prometheus and an adapter, with the rule of `examples/kubernetes/autoscaling`. This program
reads the metrics of a store's meta nodes when an autoscaler asks, as that Prometheus does: from each pod, by its
address, with the store's certificate for readers. It answers what that rule does: the tasks that wait or run.

Run as `python -m cluster.parts.external_metrics KUBECONFIG ADDRESS CERTIFICATE KEY` in the network of a node.
"""

import base64
import json
import re
import ssl
import sys
import tempfile
from collections.abc import Mapping
from datetime import UTC, datetime
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlsplit

import urllib3
from kubernetes import client, config
from kubernetes.client.exceptions import ApiException
from prometheus_client.parser import text_string_to_metric_families

GROUP_VERSION = "external.metrics.k8s.io/v1beta1"
METRIC = "tussock_compaction_tasks_wanted"
SUMMED = ("tussock_meta_compaction_backlog_tasks", "tussock_meta_compaction_tasks")
PORT = 6444
META_PORT = 7371
SECONDS_MAX = 3.0


class Unknown(Exception):
    """There is no such metric, or nobody to ask for it."""


def tasks_wanted(text: str) -> float:
    """The sum in a meta node's metrics; a follower's is 0."""
    samples = (sample for family in text_string_to_metric_families(text) for sample in family.samples)
    return sum(sample.value for sample in samples if sample.name in SUMMED)


def answer(path: str, api: client.CoreV1Api) -> dict[str, Any]:
    """The answer to a request; raises `Unknown`."""
    parts = urlsplit(path)
    if parts.path == f"/apis/{GROUP_VERSION}":
        resource = {"name": METRIC, "namespaced": True, "kind": "ExternalMetricValueList", "verbs": ["get"]}
        resource["singularName"] = ""
        return {"kind": "APIResourceList", "apiVersion": "v1", "groupVersion": GROUP_VERSION, "resources": [resource]}
    asked = re.fullmatch(rf"/apis/{GROUP_VERSION}/namespaces/([^/]+)/{METRIC}", parts.path)
    labels = re.fullmatch(r"store=([^,=]+)", parse_qs(parts.query).get("labelSelector", [""])[0])
    if not asked or not labels:
        raise Unknown(f"this serves {METRIC} of a namespace, with the label store=NAME")
    value = {
        "metricName": METRIC,
        "metricLabels": {"store": labels[1]},
        "timestamp": datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ"),
        "value": str(round(_ask_all(api, asked[1], labels[1]))),
    }
    return {"kind": "ExternalMetricValueList", "apiVersion": GROUP_VERSION, "metadata": {}, "items": [value]}


def _ask_all(api: client.CoreV1Api, namespace: str, store: str) -> float:
    """The sum over all meta nodes that answer."""
    selector = f"app.kubernetes.io/component=meta,tussock.dev/store={store}"
    pods = api.list_namespaced_pod(namespace, label_selector=selector).items
    secret = api.read_namespaced_secret(f"{store}-client-reader-tls", namespace).data
    trust, name = _trust(secret), f"{store}-meta.{namespace}.svc"
    found = []
    for pod in pods:
        if not pod.status.pod_ip or pod.status.phase != "Running":
            continue
        try:
            with urllib3.HTTPSConnectionPool(
                pod.status.pod_ip, META_PORT, ssl_context=trust, server_hostname=name, assert_hostname=name
            ) as pool:
                told = pool.request("GET", "/metrics", timeout=SECONDS_MAX, retries=False)
        except urllib3.exceptions.HTTPError as error:  # of a pod that ends, or whose node is lost
            print(f"{pod.metadata.name}: {error}", flush=True)
            continue
        if told.status == 200:
            found.append(tasks_wanted(told.data.decode()))
    if not found:
        raise Unknown(f"no meta node of store {store} in {namespace} answers")
    return sum(found)


def _trust(secret: Mapping[str, str]) -> ssl.SSLContext:
    """Certificate and authority of a secret of Kubernetes; `ssl` reads certificates from files only."""
    with tempfile.TemporaryDirectory() as folder:
        files = {name: Path(folder, name) for name in ("ca.crt", "tls.crt", "tls.key")}
        for name, file in files.items():
            file.touch(mode=0o600)
            file.write_bytes(base64.b64decode(secret[name]))
        trust = ssl.create_default_context(cafile=files["ca.crt"])
        trust.load_cert_chain(files["tls.crt"], files["tls.key"])
        return trust


class Handler(BaseHTTPRequestHandler):
    """One connection of the API server, which has asked who may ask."""

    api: client.CoreV1Api
    protocol_version = "HTTP/1.1"

    def do_GET(self) -> None:
        """Answer with JSON."""
        try:
            status, told = 200, answer(self.path, self.api)
        except (Unknown, ApiException, urllib3.exceptions.HTTPError) as error:
            status, told = 404, {"kind": "Status", "apiVersion": "v1", "status": "Failure", "message": str(error)}
            told |= {"reason": "NotFound", "code": status}
        body = json.dumps(told).encode()
        self.send_response(status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *arguments: Any) -> None:  # noqa: A002
        """Nothing: an autoscaler asks every two seconds."""


def main() -> None:
    """Serve until the process is ended."""
    kubeconfig, address, certificate, key = sys.argv[1:]
    config.load_kube_config(kubeconfig)
    Handler.api = client.CoreV1Api()
    own = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    own.load_cert_chain(certificate, key)
    server = ThreadingHTTPServer((address, PORT), Handler)
    server.daemon_threads = True
    server.socket = own.wrap_socket(server.socket, server_side=True)
    server.serve_forever()


if __name__ == "__main__":
    main()
