"""Stores whose manifests are golden files, each with one Meta and one Compactor, by name."""

from typing import Any

from support.operator.resources import DEFAULTS, compactor_with, meta_with, store_with
from tussock.operator.manifests.compactor import compactor_manifests
from tussock.operator.manifests.meta import meta_address, meta_manifests
from tussock.operator.manifests.store import store_manifests
from tussock.operator.resources import Compactor, Meta, StoreResource

__all__ = ["CASES", "manifests_of", "pod_templates"]

_PRODUCTION: dict[str, Any] = {
    "endpoint": "https://s3.example:9000",
    "bucket": "warehouse",
    "prefix": "stores/shop",
    "region": "eu-central-1",
    "credentialsSecret": {"name": "bucket-keys", "accessKeyIdKey": "user", "secretAccessKeyKey": "password"},
    "readerCredentialsSecret": {"name": "bucket-readers"},
}
_RESOURCES = {"requests": {"cpu": 2, "memory": "4Gi"}, "limits": {"memory": "4Gi"}}
_TEMPLATE = {
    "metadata": {"labels": {"team": "streams"}, "annotations": {"example.org/reviewed": "yes"}},
    "spec": {
        "nodeSelector": {"disk": "fast"},
        "tolerations": [{"key": "streams", "operator": "Exists"}],
        "containers": [
            {"name": "meta", "env": [{"name": "TZ", "value": "UTC"}]},
            {"name": "shipper", "image": "registry.example/shipper:1"},
        ],
    },
}

Case = tuple[StoreResource, Meta, Compactor]

CASES: dict[str, Case] = {
    "minimal": (store_with({"managed": {}}), meta_with(), compactor_with()),
    "ephemeral": (
        store_with({"managed": {"ephemeral": True}}, tls={"mode": "none"}),
        meta_with(),
        compactor_with(replicas=0),
    ),
    "production": (
        store_with(
            {"s3": _PRODUCTION},
            retentionSeconds=7200,
            gcGraceSeconds=1800,
            maxClockAheadSeconds=600,
            compaction={"tasksPerTable": 8, "l0StallRuns": 256},
            images={"node": "registry.example/node@sha256:" + "0" * 64, "pullSecrets": ["registry"]},
        ),
        meta_with(
            replicas=3,
            resources=_RESOURCES,
            config={"drain_seconds": 20, "leader": {"lease_seconds": 5}, "log": {"level": "debug"}},
            podTemplate=_TEMPLATE,
            outside={
                "type": "LoadBalancer",
                "host": "meta-{replica}.shop.example",
                "annotations": {"external-dns.alpha.kubernetes.io/hostname": "meta-{replica}.shop.example"},
                "loadBalancerSourceRanges": ["203.0.113.0/24"],
            },
            console={
                "namespace": "ingress-nginx",
                "ingress": {
                    "className": "nginx",
                    "host": "console.shop.example",
                    "tlsSecret": "console-tls",
                    "annotations": {"nginx.ingress.kubernetes.io/backend-protocol": "HTTPS"},
                },
            },
        ),
        compactor_with(replicas=4, slots=4, resources=_RESOURCES),
    ),
    "identity": (
        store_with(
            {"s3": {"bucket": "warehouse", "region": "eu-central-1", "serviceAccount": "bucket-user"}},
            networkPolicy=False,
            tls={"mode": "certManager", "issuerRef": {"name": "nodes", "kind": "ClusterIssuer"}},
        ),
        meta_with(replicas=2, outside={"type": "NodePort", "host": "nodes.example"}, console={"namespace": "gateways"}),
        compactor_with(memoryBytes=1 << 30),
    ),
    "gcs": (
        store_with({"gcs": {"bucket": "warehouse", "prefix": "shop", "credentialsSecret": {"name": "gcs-key"}}}),
        meta_with(),
        compactor_with(),
    ),
    "azure": (
        store_with(
            {"azure": {"container": "shop", "account": "warehouse", "credentialsSecret": {"name": "azure-key"}}},
            tls={"mode": "secret", "secretName": "our-certificate"},
        ),
        meta_with(),
        compactor_with(),
    ),
    "volume": (
        store_with({"volume": {"size": "5Gi", "storageClassName": "local"}}, deletionPolicy="Delete"),
        meta_with(),
        compactor_with(),
    ),
}


def manifests_of(case: str) -> list[dict[str, Any]]:
    """The manifests of a case, in order; of secrets only the names."""
    store, meta, compactor = CASES[case]
    addresses = [meta_address(meta.name, store.namespace)]
    return [
        *store_manifests(store, [meta.name], DEFAULTS, "7").manifests,
        *meta_manifests(meta, store, DEFAULTS).manifests,
        *compactor_manifests(compactor, store, addresses, DEFAULTS).manifests,
    ]


def pod_templates(case: str) -> dict[str, dict[str, Any]]:
    """The pod templates of a case by kind and name of their workload."""
    return {
        f"{manifest['kind']}/{manifest['metadata']['name']}": manifest["spec"]["template"]
        for manifest in manifests_of(case)
        if manifest["kind"] in ("Deployment", "StatefulSet")
    }
