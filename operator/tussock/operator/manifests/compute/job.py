"""The children of a job except its pod: account and rights, Service, settings, checkpoint, network policy.

The driver may create, see and delete pods, and nothing else: Spark's settings are such that it needs no more
(`conf.py`). An admission policy limits which pods it may create (`driver_rights.py`).
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

from tussock.operator.manifests.compute.conf import (
    BLOCKS_PORT,
    CONF_FILE,
    EXECUTOR_POD_FILE,
    RPC_PORT,
    STATUS_PORT,
    UI_PORT,
    executor_target,
    properties,
    spark_conf,
)
from tussock.operator.manifests.compute.driver_rights import driver_rights
from tussock.operator.manifests.compute.pods import (
    ROLE_LABEL,
    checkpoint_claim,
    driver_name,
    driver_template,
    executor_template,
    template_text,
)
from tussock.operator.manifests.labels import SPEC_ANNOTATION, Manifest, digest, metadata, revision, selector
from tussock.operator.manifests.network import operator_peer, prometheus_peers
from tussock.operator.manifests.settings import Defaults, spark_image
from tussock.operator.resources.compute import Compute
from tussock.operator.resources.store import StoreResource

__all__ = [
    "EXECUTORS_ANNOTATION",
    "TEMPLATE_ANNOTATION",
    "DriverInputs",
    "Job",
    "compute_manifests",
    "executor_selector",
]

TEMPLATE_ANNOTATION = "tussock.dev/template-hash"
"""On the driver's pod: a digest of what it was made from; another value makes another pod."""
EXECUTORS_ANNOTATION = "tussock.dev/executors"
"""On the driver's pod: the newest number of executors, or bounds and goal. When it changes, the kubelet updates the
pod's files at once."""


class DriverInputs(NamedTuple):
    """What users decide about a driver. If only its template differs, the operator has changed it."""

    specs: str
    """The generations of the store and of the job, and the number of the store's Metas."""
    application: str
    """A digest of the program, if it is in a ConfigMap."""
    secret: str
    """The version of the Secret for Spark."""

    def text(self) -> str:
        """The value of the annotation `SPEC_ANNOTATION`."""
        return "/".join(self)

    @classmethod
    def of_text(cls, text: str) -> "DriverInputs | None":
        """The inputs of which `text()` is this; `None` for another text, such as one that somebody else has written."""
        parts = text.split("/")
        return cls(*parts) if len(parts) == len(cls._fields) else None


@dataclass(frozen=True)
class Job:
    """All parts of a job."""

    manifests: tuple[Manifest, ...]
    """All children except the pod, in the order in which they are made."""
    template: Manifest
    """The driver's pod: its metadata and spec, without a name."""
    template_hash: str
    inputs: DriverInputs
    image: str
    executors: str | None
    """What the driver reads about their number; `None`: Spark decides."""
    kept: tuple[str, ...]
    """Paths in pod templates where our value replaced the user's."""

    def driver_pod(self, compute: Compute, store: str, name: str, annotations: dict[str, str]) -> Manifest:
        """A pod of the driver with that name; `annotations` are those of this start."""
        meta = metadata(compute, name, store, "compute", image=self.image)
        theirs = self.template["metadata"]
        meta["labels"] = {**theirs["labels"], **meta["labels"]}
        made_from = {TEMPLATE_ANNOTATION: self.template_hash, SPEC_ANNOTATION: self.inputs.text()}
        meta["annotations"] = {**theirs.get("annotations", {}), **made_from, **annotations}
        if self.executors is not None:
            meta["annotations"][EXECUTORS_ANNOTATION] = self.executors
        return {"apiVersion": "v1", "kind": "Pod", "metadata": meta, "spec": self.template["spec"]}


def executor_selector(compute: Compute) -> dict[str, str]:
    """The labels that only the executors of a job have."""
    return {**selector(compute, "compute"), ROLE_LABEL: "executor"}


def compute_manifests(
    compute: Compute,
    store: StoreResource,
    addresses: Sequence[str],
    defaults: Defaults,
    application: str = "",
    secret: str = "",
) -> Job:
    """The job as manifests; `addresses` are those of the store's meta nodes (`meta_address`).

    `application` is a digest of the program if it is in a ConfigMap: another program makes another pod. So does another
    `secret`, the version of the Secret for Spark (`spark_security.py`). Raises `InvalidResource` if spec and store do
    not fit together.
    """
    image = spark_image(compute, store, defaults)
    driver, kept = driver_template(compute, store, addresses, image)
    executor, kept_too = executor_template(compute, store, addresses, image)
    conf = spark_conf(compute, store, image)
    files = {CONF_FILE: properties(conf), EXECUTOR_POD_FILE: template_text(executor)}
    executors = executor_target(compute.spec.executor)
    # Without the number of executors, which a running driver follows.
    found = digest(template_text(driver), files, application, secret)
    if executors is not None:
        files["executors"] = f"{executors}\n"
    name = driver_name(compute.name)
    manifests = [*driver_rights(compute, store, executor, conf), _service(compute, store, name)]
    if store.spec.network_policy:
        manifests.append(_network_policy(compute, store, name, defaults))
    if compute.spec.checkpoint.size:
        manifests.append(_claim(compute, store))
    manifests.append(
        {
            "apiVersion": "v1",
            "kind": "ConfigMap",
            "metadata": metadata(compute, name, store.name, "compute"),
            "data": files,
        }
    )
    told = (*(f"driver: {path}" for path in kept), *(f"executor: {path}" for path in kept_too))
    specs = f"{store.metadata.generation}.{revision(compute)}.{len(addresses)}"
    return Job(tuple(manifests), driver, found, DriverInputs(specs, application, secret), image, executors, told)


def _service(compute: Compute, store: StoreResource, name: str) -> Manifest:
    """A name for the driver, for people and scrapers; executors use its address, which no cache can have wrong."""
    ports = {"rpc": RPC_PORT, "blocks": BLOCKS_PORT, "ui": UI_PORT, "status": STATUS_PORT}
    return {
        "apiVersion": "v1",
        "kind": "Service",
        "metadata": metadata(compute, name, store.name, "compute"),
        "spec": {
            "type": "ClusterIP",
            "clusterIP": "None",
            "publishNotReadyAddresses": True,
            "selector": {**selector(compute, "compute"), ROLE_LABEL: "driver"},
            "ports": [
                {"name": port, "port": number, "targetPort": port, "protocol": "TCP"} for port, number in ports.items()
            ],
        },
    }


def _claim(compute: Compute, store: StoreResource) -> Manifest:
    checkpoint = compute.spec.checkpoint
    spec: dict[str, Any] = {
        "accessModes": ["ReadWriteOnce"],
        "resources": {"requests": {"storage": checkpoint.size}},
    }
    if checkpoint.storage_class_name is not None:
        spec["storageClassName"] = checkpoint.storage_class_name
    return {
        "apiVersion": "v1",
        "kind": "PersistentVolumeClaim",
        "metadata": metadata(compute, checkpoint_claim(compute), store.name, "compute"),
        "spec": spec,
    }


def _network_policy(compute: Compute, store: StoreResource, name: str, defaults: Defaults) -> Manifest:
    """Lets driver and executors reach each other, operator and Prometheus the status port, and no pod the web page."""
    own = {"podSelector": {"matchLabels": selector(compute, "compute")}}
    among = [{"protocol": "TCP", "port": port} for port in (RPC_PORT, BLOCKS_PORT)]
    shown = [{"protocol": "TCP", "port": STATUS_PORT}]
    others = [operator_peer(defaults), *prometheus_peers(defaults)]
    return {
        "apiVersion": "networking.k8s.io/v1",
        "kind": "NetworkPolicy",
        "metadata": metadata(compute, name, store.name, "compute"),
        "spec": {
            "podSelector": {"matchLabels": selector(compute, "compute")},
            "policyTypes": ["Ingress"],
            "ingress": [{"from": [own], "ports": among}, {"from": others, "ports": shown}],
        },
    }
