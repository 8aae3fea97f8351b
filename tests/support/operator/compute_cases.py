"""Jobs whose manifests are golden files: name -> the job's store, and the job."""

from typing import Any

from support.operator.resources import DEFAULTS, store_with
from tussock.operator.manifests.compute.job import Job, compute_manifests
from tussock.operator.manifests.compute.pods import driver_name
from tussock.operator.resources.compute import Compute, parse_compute
from tussock.operator.resources.store import StoreResource

__all__ = ["ADDRESSES", "CASES", "compute_with", "job_of", "manifests_of"]

ADDRESSES = ["shop-meta.data.svc:7370"]

_KEYS = {"name": "bucket-keys"}
_TEMPLATE = {
    "metadata": {"labels": {"team": "streams", "tussock.dev/role": "nothing"}},
    "spec": {
        "nodeSelector": {"disk": "fast"},
        "hostNetwork": True,
        "containers": [{"name": "compute", "env": [{"name": "TZ", "value": "UTC"}], "livenessProbe": None}],
    },
}


def compute_with(name: str = "totals", namespace: str = "data", **spec: Any) -> Compute:
    """A job of the store `shop` in the namespace `data`."""
    metadata = {"name": name, "namespace": namespace, "uid": f"uid-of-compute-{name}", "generation": 1}
    base = {"storeRef": {"name": "shop"}, "application": {"file": "/opt/app/totals.py"}}
    body = {"apiVersion": "tussock.dev/v1alpha1", "kind": "Compute", "metadata": metadata, "spec": {**base, **spec}}
    return parse_compute(body)


CASES: dict[str, tuple[StoreResource, Compute]] = {
    "minimal": (store_with({"managed": {}}), compute_with()),
    "batch": (
        store_with({"managed": {"ephemeral": True}}, tls={"mode": "none"}, networkPolicy=False),
        compute_with(
            mode="Batch",
            schedule="0 3 * * *",
            application={"configMap": {"name": "program", "key": "job.py"}},
            arguments=["--day", "yesterday"],
            checkpoint={"emptyDir": {"sizeLimit": "1Gi"}},
            executor={"minReplicas": 0, "maxReplicas": 8, "cores": 2, "memory": "2Gi"},
        ),
    ),
    "production": (
        store_with(
            {"s3": {"bucket": "warehouse", "region": "eu-central-1", "credentialsSecret": _KEYS}},
            images={"pullPolicy": "Always", "pullSecrets": ["registry"]},
        ),
        compute_with(
            image="registry.example/totals:7",
            writerId="totals-2",
            sparkConf={
                "spark.sql.shuffle.partitions": "64",
                "spark.sql.session.timeZone": "Europe/Berlin",
                # Refused by the schema, and nothing here either.
                "spark.master": "local[*]",
                "spark.kubernetes.executor.disableConfigMap": "false",
            },
            env=[
                {"name": "KAFKA_PASSWORD", "valueFrom": {"secretKeyRef": {"name": "kafka", "key": "password"}}},
                {"name": "TUSSOCK_STORE", "value": "memory://"},
            ],
            driver={"cores": 2, "memory": "4Gi", "podTemplate": {"spec": {"priorityClassName": "important"}}},
            executor={
                "replicas": 4,
                "cores": 4,
                "memory": "8Gi",
                "resources": {"requests": {"cpu": "3500m", "memory": "12Gi"}, "limits": {"cpu": 4, "memory": "12Gi"}},
            },
            checkpoint={"claimName": "totals"},
            podTemplate=_TEMPLATE,
        ),
    ),
    "elsewhere": (
        store_with({"managed": {}}, allowedNamespaces=["team"]),
        compute_with(
            namespace="team",
            storeRef={"name": "shop", "namespace": "data"},
            application={"object": {"name": "totals.py", "sha256": "0" * 64}},
            eventLog={},
        ),
    ),
    "identity": (
        store_with({"gcs": {"bucket": "warehouse", "serviceAccount": "bucket-user"}}),
        compute_with(checkpoint={"size": "5Gi", "storageClassName": "fast"}),
    ),
    "lag": (
        store_with({"managed": {}}),
        compute_with(executor={"minReplicas": 2, "maxReplicas": 8, "targetLagSeconds": 30}),
    ),
    "volume": (store_with({"volume": {"size": "10Gi"}}, tls={"mode": "none"}), compute_with()),
}


def job_of(case: str) -> Job:
    """The objects of which a case is made."""
    store, compute = CASES[case]
    return compute_manifests(compute, store, ADDRESSES, DEFAULTS)


def manifests_of(case: str) -> list[dict[str, Any]]:
    """All children of a case, with the driver's pod."""
    job, (store, compute) = job_of(case), CASES[case]
    return [*job.manifests, job.driver_pod(compute, store.name, driver_name(compute.name), {})]
