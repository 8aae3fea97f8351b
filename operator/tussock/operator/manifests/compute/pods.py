"""The pods of a job: the driver's, which the operator makes, and the template from which Spark makes executors."""

import json
from collections.abc import Mapping, Sequence
from typing import Any

from tussock.operator.manifests.bucket_access import client_access
from tussock.operator.manifests.compute.conf import (
    BLOCKS_PORT,
    CHECKPOINT_FOLDER,
    COMPUTE_FOLDER,
    CONF_FILE,
    MASTER,
    RPC_PORT,
    STATUS_PORT,
    UI_PORT,
    overhead_bytes,
)
from tussock.operator.manifests.compute.spark_security import spark_secret_volume, start_options
from tussock.operator.manifests.labels import Manifest, metadata
from tussock.operator.manifests.pod.pods import Main, http_probe, node_template, placement_fields, requirements
from tussock.operator.manifests.pod.quantities import bytes_of
from tussock.operator.manifests.pod.reservations import check_shape
from tussock.operator.manifests.pod.security import CONTAINER_SECURITY, POD_SECURITY
from tussock.operator.manifests.pod.strategic_merge import strategic_merge
from tussock.operator.manifests.transport_security import job_identity
from tussock.operator.resources.common import PodTemplate
from tussock.operator.resources.compute import Compute
from tussock.operator.resources.store import StoreResource

__all__ = [
    "DRAIN_SECONDS",
    "ROLE_LABEL",
    "checkpoint_claim",
    "driver_name",
    "driver_template",
    "environment",
    "executor_template",
    "image_trial",
    "template_text",
    "trial_name",
    "users_template",
]

ROLE_LABEL = "tussock.dev/role"
"""`driver` or `executor`; of a service `node` or `worker`; `image` of a pod that tries one."""
DRAIN_SECONDS = 50.0
"""Half of it for a batch to end, the rest for the application and for Spark."""
_EXECUTOR_DRAIN_SECONDS = 60.0

_APPLICATION_FOLDER = "/etc/tussock/application"
_CONFIG_MOUNT = {"name": "compute", "mountPath": COMPUTE_FOLDER, "readOnly": True}
# Spark writes into its working directory, and the root file system is read-only. A container that ends without a
# message, such as a JVM that was killed, leaves the end of its log.
_CONTAINER = {"workingDir": "/tmp", "terminationMessagePolicy": "FallbackToLogsOnError"}  # noqa: S108
_FIELDS = {"POD_IP": "status.podIP", "POD_NAME": "metadata.name"}


def driver_name(compute: str) -> str:
    """The name of the driver's pod, and of everything beside it, for the `Compute` of that name."""
    return f"{compute}-driver"


def checkpoint_claim(compute: Compute) -> str:
    """The claim of the checkpoint; empty if it is on an `emptyDir`."""
    checkpoint = compute.spec.checkpoint
    if checkpoint.empty_dir is not None:
        return ""
    return checkpoint.claim_name or f"{compute.name}-checkpoint"


def driver_template(
    compute: Compute, store: StoreResource, addresses: Sequence[str], image: str
) -> tuple[Manifest, tuple[str, ...]]:
    """The pod of the driver, without what differs from start to start, and the paths kept against the user's template.

    `addresses` are those of the store's meta nodes.
    """
    access = client_access(store)
    values = {
        **_store_values(compute, addresses),
        # Spark's web page listens there and asks for no password; `kubectl port-forward` connects from there.
        "SPARK_LOCAL_IP": "127.0.0.1",
        "TUSSOCK_CHECKPOINT": CHECKPOINT_FOLDER,
        "TUSSOCK_COMPUTE_MODE": compute.spec.mode,
        "TUSSOCK_DRAIN_SECONDS": f"{DRAIN_SECONDS:g}",
        "TUSSOCK_EXECUTORS_FILE": f"{COMPUTE_FOLDER}/executors",
        "TUSSOCK_SPARK_CONF": f"{COMPUTE_FOLDER}/{CONF_FILE}",
        "TUSSOCK_STATUS_PORT": str(STATUS_PORT),
        "TUSSOCK_TERMINATION_FILE": "/dev/termination-log",
        **_program_values(compute),
        **_event_log_values(compute),
    }
    fields = [{"name": name, "valueFrom": {"fieldRef": {"fieldPath": path}}} for name, path in _FIELDS.items()]
    volumes, mounts, application = _application(compute)
    secret, secret_mount = spark_secret_volume(compute.name)
    main = Main(
        component="compute",
        image=image,
        # The entrypoint of the image runs any command; no `spark-submit`, since the driver starts the JVM itself.
        args=("python", "-m", "tussock.compute.driver", application, *compute.spec.arguments),
        env=environment(compute, values, fields),
        ports={"rpc": RPC_PORT, "blocks": BLOCKS_PORT, "ui": UI_PORT, "status": STATUS_PORT},
        probes=_probes(),
        resources=requirements(compute.spec.driver.resources, _driver_resources(compute)),
        drain_seconds=DRAIN_SECONDS,
        access=access,
        tls=job_identity(store, compute.name),
        volumes=(
            {"name": "compute", "configMap": {"name": driver_name(compute.name)}},
            {"name": "checkpoint", **_checkpoint_volume(compute)},
            secret,
            *volumes,
        ),
        mounts=(_CONFIG_MOUNT, {"name": "checkpoint", "mountPath": CHECKPOINT_FOLDER}, secret_mount, *mounts),
        service_account=access.service_account or driver_name(compute.name),
        role={ROLE_LABEL: "driver"},
        container=_CONTAINER,
        restart="Never",
        # Spark in the driver makes executors, so only this pod has a token.
        has_token=True,
    )
    user = users_template(compute, compute.spec.driver.pod_template)
    return node_template(compute, store, main, user)


def executor_template(
    compute: Compute, store: StoreResource, addresses: Sequence[str], image: str
) -> tuple[Manifest, tuple[str, ...]]:
    """The template from which Spark makes executors: it adds command, resources, ports and its own variables."""
    access = client_access(store)
    secret, secret_mount = spark_secret_volume(compute.name)
    main = Main(
        component="compute",
        image=image,
        # Spark adds `executor` to these arguments.
        args=(),
        env=environment(compute, {**_store_values(compute, addresses), **start_options(MASTER)}),
        ports={},
        probes={},
        resources={},
        drain_seconds=_EXECUTOR_DRAIN_SECONDS,
        access=access,
        tls=job_identity(store, compute.name),
        volumes=(secret,),
        mounts=(secret_mount,),
        service_account=access.service_account,
        role={ROLE_LABEL: "executor"},
        container=_CONTAINER,
        restart="Never",
    )
    user = users_template(compute, compute.spec.executor.pod_template)
    template, kept = node_template(compute, store, main, user)
    return {"apiVersion": "v1", "kind": "Pod", **template}, kept


def users_template(compute: Compute, part: PodTemplate) -> Manifest:
    """The user's template for all pods of a `Compute`, with that for one part of them merged over it."""
    check_shape(compute.spec.pod_template)
    check_shape(part)
    return strategic_merge(compute.spec.pod_template, part)


def _store_values(compute: Compute, addresses: Sequence[str]) -> dict[str, str]:
    return {"TUSSOCK_STORE": f"tussock://{','.join(addresses)}", "TUSSOCK_WRITER_ID": compute.writer_id}


def _program_values(compute: Compute) -> dict[str, str]:
    """Where a program in the store's bucket is. It is fetched as the job, whose session has the right to."""
    asked = None if compute.is_service else compute.program.object
    if asked is None:
        return {}
    path = f"applications/{compute.folder}/program/{asked.name}"
    return {"TUSSOCK_PROGRAM": path, "TUSSOCK_PROGRAM_SHA256": asked.sha256}


def _event_log_values(compute: Compute) -> dict[str, str]:
    asked = compute.spec.event_log
    if asked is None:
        return {}
    size = str(bytes_of(asked.size))
    return {
        "TUSSOCK_EVENT_LOG": compute.folder,
        "TUSSOCK_EVENT_LOG_BYTES": size,
        "TUSSOCK_EVENT_LOG_COUNT": str(asked.count),
    }


def environment(
    compute: Compute, values: Mapping[str, str], fields: Sequence[dict[str, Any]] = ()
) -> tuple[dict[str, Any], ...]:
    """The environment of a container: the user's variables, then `fields` of the pod and our `values`.

    The user's are first, so that none of them can refer to ours, and ours win if names are the same.
    """
    ours = [*fields, *({"name": name, "value": value} for name, value in values.items())]
    names = {entry["name"] for entry in ours}
    return (*(entry for entry in compute.spec.env if entry["name"] not in names), *ours)


def _application(compute: Compute) -> tuple[tuple[dict[str, Any], ...], tuple[dict[str, Any], ...], str]:
    """Volumes, mounts and the path of the program; of one in the store's bucket its name."""
    source = compute.program.config_map
    if compute.program.object is not None:
        return (), (), compute.program.object.name
    if source is None:
        return (), (), compute.program.file
    volume = {"name": "application", "configMap": {"name": source.name}}
    mount = {"name": "application", "mountPath": _APPLICATION_FOLDER, "readOnly": True}
    return (volume,), (mount,), f"{_APPLICATION_FOLDER}/{source.key}"


def _checkpoint_volume(compute: Compute) -> dict[str, Any]:
    claim = checkpoint_claim(compute)
    return {"persistentVolumeClaim": {"claimName": claim}} if claim else {"emptyDir": compute.spec.checkpoint.empty_dir}


def _driver_resources(compute: Compute) -> dict[str, Any]:
    heap = bytes_of(compute.spec.driver.memory)
    memory = f"{(heap + overhead_bytes(heap)) >> 20}Mi"
    return {"requests": {"cpu": str(compute.spec.driver.cores), "memory": memory}, "limits": {"memory": memory}}


def _probes() -> dict[str, Any]:
    def probe(path: str, period: int, failures: int) -> dict[str, Any]:
        return http_probe(path, tls=False, period=period, failures=failures, port="status")

    return {
        "startupProbe": probe("/healthz", 1, 120),
        "readinessProbe": probe("/readyz", 2, 3),
        "livenessProbe": probe("/healthz", 10, 6),
    }


def trial_name(compute: str) -> str:
    """The name of the pod that tries an image for the `Compute` of that name."""
    return f"{compute}-image"


def image_trial(compute: Compute, store: StoreResource, template: Manifest, image: str) -> Manifest:
    """A pod that shows whether an image can be pulled where a driver of `template` will run.

    It requests next to nothing, and ends at once.
    """
    meta = metadata(compute, trial_name(compute.name), store.name, "compute", image=image)
    meta["labels"][ROLE_LABEL] = "image"
    spec: dict[str, Any] = {
        **placement_fields(template["spec"]),
        **({"serviceAccountName": account} if (account := template["spec"].get("serviceAccountName")) else {}),
        "restartPolicy": "Never",
        "automountServiceAccountToken": False,
        "enableServiceLinks": False,
        "securityContext": POD_SECURITY,
        "containers": [
            {
                "name": "compute",
                "image": image,
                "imagePullPolicy": store.spec.images.pull_policy,
                "command": ["true"],
                "resources": {"requests": {"cpu": "10m", "memory": "16Mi"}, "limits": {"memory": "64Mi"}},
                "securityContext": CONTAINER_SECURITY,
            }
        ],
    }
    return {"apiVersion": "v1", "kind": "Pod", "metadata": meta, "spec": spec}


def template_text(template: Manifest) -> str:
    """A pod template as a file: JSON, which Spark reads as YAML."""
    return json.dumps(template, indent=1, sort_keys=True) + "\n"
