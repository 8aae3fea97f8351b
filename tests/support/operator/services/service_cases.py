"""Services whose manifests are golden files: name -> the service's store, and the service."""

from typing import Any

from support.operator.compute_cases import ADDRESSES
from support.operator.resources import DEFAULTS, store_with
from tussock.operator.manifests.service.children import ServiceChildren, service_manifests
from tussock.operator.resources.compute import Compute, parse_compute
from tussock.operator.resources.store import StoreResource

__all__ = ["SERVICE_CASES", "children_of", "service_manifests_of", "service_with"]

_TEMPLATE = {
    "metadata": {"labels": {"team": "bank", "tussock.dev/role": "nothing"}},
    "spec": {
        "nodeSelector": {"disk": "fast"},
        "hostNetwork": True,
        "containers": [{"name": "compute", "env": [{"name": "TZ", "value": "UTC"}], "livenessProbe": None}],
    },
}


def service_with(name: str = "bank", **spec: Any) -> Compute:
    """A service of the store `shop` in the namespace `data`; `of` are the other fields of the spec."""
    metadata = {"name": name, "namespace": "data", "uid": f"uid-of-compute-{name}", "generation": 1}
    others = spec.pop("of", {})
    made = {"storeRef": {"name": "shop"}, "service": {"module": "bank:make", **spec}, **others}
    return parse_compute({"apiVersion": "tussock.dev/v1alpha1", "kind": "Compute", "metadata": metadata, "spec": made})


SERVICE_CASES: dict[str, tuple[StoreResource, Compute]] = {
    "procedures": (store_with({"managed": {}}), service_with(configMap={"name": "bank"})),
    "functions": (
        store_with(
            {"s3": {"bucket": "warehouse", "region": "eu-central-1", "credentialsSecret": {"name": "bucket-keys"}}},
            images={"pullPolicy": "Always", "pullSecrets": ["registry"]},
        ),
        service_with(
            module="shop.bank:Parts.make",
            port=443,
            workers=3,
            drainSeconds=60,
            resources={"limits": {"memory": "4Gi"}},
            podTemplate={"spec": {"priorityClassName": "important"}},
            worker={"resources": {"requests": {"cpu": 2}}, "podTemplate": {"spec": {"tolerations": [{"key": "spot"}]}}},
            of={
                "image": "registry.example/bank:7",
                "env": [
                    {"name": "KAFKA_PASSWORD", "valueFrom": {"secretKeyRef": {"name": "kafka", "key": "password"}}},
                    {"name": "TUSSOCK_STORE", "value": "memory://"},
                ],
                "podTemplate": _TEMPLATE,
            },
        ),
    ),
    "suspended": (
        store_with({"volume": {"size": "10Gi"}}, tls={"mode": "none"}, networkPolicy=False),
        service_with(workers=1, of={"suspend": True}),
    ),
    "identity": (
        store_with(
            {"gcs": {"bucket": "warehouse", "serviceAccount": "bucket-user"}},
            tls={"mode": "secret", "secretName": "our-own"},
        ),
        service_with(workers=2),
    ),
}


def children_of(case: str) -> ServiceChildren:
    """The children of a case."""
    store, compute = SERVICE_CASES[case]
    code = "0123456789abcdef" if compute.service.config_map is not None else ""
    return service_manifests(compute, store, ADDRESSES, DEFAULTS, code)


def service_manifests_of(case: str) -> list[dict[str, Any]]:
    """All children of a case, in one list."""
    made = children_of(case)
    return [*made.around, made.node, *([] if made.workers is None else [made.workers])]
