"""Spark's settings of a job: the user's, overridden by those that must hold.

`spark-defaults.conf` has everything that is the same in each pod of the driver. Its address, its name and the number of
executors differ: the driver adds them when it starts (`tussock.compute.driver`).
"""

from collections.abc import Mapping

from tussock.operator.manifests.compute.spark_security import OVERRULED, security_conf
from tussock.operator.manifests.pod.quantities import bytes_of
from tussock.operator.resources.compute import Compute, ExecutorSpec
from tussock.operator.resources.store import StoreResource

__all__ = [
    "BLOCKS_PORT",
    "CHECKPOINT_FOLDER",
    "COMPUTE_FOLDER",
    "CONF_FILE",
    "EXECUTOR_POD_FILE",
    "MASTER",
    "RPC_PORT",
    "STATUS_PORT",
    "UI_PORT",
    "executor_overhead_bytes",
    "executor_target",
    "overhead_bytes",
    "properties",
    "spark_conf",
]

RPC_PORT = 7078
BLOCKS_PORT = 7079
UI_PORT = 4040
STATUS_PORT = 7372

MASTER = "k8s://https://kubernetes.default.svc"
COMPUTE_FOLDER = "/etc/tussock/compute"
CONF_FILE = "spark-defaults.conf"
EXECUTOR_POD_FILE = "executor-pod.json"
CHECKPOINT_FOLDER = "/var/lib/tussock/checkpoint"

_OVERHEAD_FACTOR = 0.4
_OVERHEAD_BYTES_MIN = 512 << 20
"""Spark's own defaults for Python are 0.4 and 384 MiB; a worker that writes SSTs needs about 300 MiB, plus Arrow."""

_EVENT_LOG = {
    # The driver adds the folder, and takes closed files to the bucket (`tussock.compute.driver.event_log`).
    "spark.eventLog.enabled": "true",
    "spark.eventLog.rolling.enabled": "true",
    # The smallest that Spark accepts: the pod's disk holds two of them.
    "spark.eventLog.rolling.maxFileSize": "10m",
    "spark.eventLog.compress": "true",
    "spark.eventLog.compression.codec": "zstd",
}


def executor_target(spec: ExecutorSpec) -> str | None:
    """What the driver reads about the number of executors (`tussock.compute.driver.scale`); `None` if Spark decides."""
    if spec.max_replicas is None:
        return str(1 if spec.replicas is None else spec.replicas)
    if spec.target_lag_seconds is None:
        return None
    return f"{spec.min_replicas}-{spec.max_replicas} within {spec.target_lag_seconds} s"


def executor_overhead_bytes(spec: ExecutorSpec) -> int:
    """The memory of an executor's pod beside the heap: what its memory limit leaves, or a share of the heap."""
    heap = bytes_of(spec.memory)
    given = spec.resources and (spec.resources.limits.get("memory") or spec.resources.requests.get("memory"))
    if given:
        # At least a little: Spark accepts anything, and the pod's status then shows what it needs.
        return max(bytes_of(given) - heap, 64 << 20)
    return overhead_bytes(heap)


def overhead_bytes(heap: int) -> int:
    """The memory that a pod of Spark and Python needs beside a heap of this size."""
    return max(int(heap * _OVERHEAD_FACTOR), _OVERHEAD_BYTES_MIN)


def spark_conf(compute: Compute, store: StoreResource, image: str) -> dict[str, str]:
    """All settings of the job."""
    suggested = {
        # Executors that leave hand their blocks over, and get some time for their running tasks.
        "spark.decommission.enabled": "true",
        "spark.storage.decommission.enabled": "true",
        "spark.storage.decommission.rddBlocks.enabled": "true",
        "spark.storage.decommission.shuffleBlocks.enabled": "true",
        # An executor leaves after it has looked for blocks once more after its last task; Spark looks every 30 s.
        "spark.storage.decommission.replicationReattemptInterval": "2s",
        "spark.executor.decommission.forceKillTimeout": "60s",
        # The program begins while executors start; its first tasks wait for them, not the program.
        "spark.scheduler.minRegisteredResourcesRatio": "0",
        "spark.sql.streaming.checkpointLocation": f"file://{CHECKPOINT_FOLDER}",
        "spark.sql.session.timeZone": "UTC",
        "spark.ui.showConsoleProgress": "false",
    }
    asked = {key: value for key, value in compute.spec.spark_conf.items() if not key.startswith(OVERRULED)}
    events = {} if compute.spec.event_log is None else _EVENT_LOG
    return {**suggested, **asked, **_fixed_conf(compute, store, image), **events, **security_conf()}


def _fixed_conf(compute: Compute, store: StoreResource, image: str) -> dict[str, str]:
    driver, executor = compute.spec.driver, compute.spec.executor
    conf = {
        "spark.master": MASTER,
        "spark.submit.deployMode": "client",
        "spark.app.name": compute.name,
        "spark.driver.bindAddress": "0.0.0.0",  # noqa: S104 - a pod's own address is not known here
        "spark.driver.port": str(RPC_PORT),
        "spark.driver.blockManager.port": str(BLOCKS_PORT),
        "spark.blockManager.port": str(BLOCKS_PORT),
        "spark.ui.port": str(UI_PORT),
        "spark.driver.cores": str(driver.cores),
        "spark.driver.memory": _mebibytes(bytes_of(driver.memory)),
        "spark.executor.cores": str(executor.cores),
        "spark.executor.memory": _mebibytes(bytes_of(executor.memory)),
        "spark.executor.memoryOverhead": _mebibytes(executor_overhead_bytes(executor)),
        "spark.kubernetes.namespace": compute.namespace,
        # Otherwise executors would be sent to the address that the driver binds to, which is not reachable.
        "spark.kubernetes.executor.useDriverPodIP": "false",
        "spark.kubernetes.container.image": image,
        "spark.kubernetes.container.image.pullPolicy": store.spec.images.pull_policy,
        "spark.kubernetes.executor.podTemplateFile": f"{COMPUTE_FOLDER}/{EXECUTOR_POD_FILE}",
        "spark.kubernetes.executor.podTemplateContainerName": "compute",
        # These would need rights over all services, claims and ConfigMaps of the namespace, for nothing: there are no
        # services to delete and no claims to share, and executors get their settings from the driver anyway.
        "spark.kubernetes.driver.service.deleteOnTermination": "false",
        "spark.kubernetes.driver.ownPersistentVolumeClaim": "false",
        "spark.kubernetes.driver.reusePersistentVolumeClaim": "false",
        "spark.kubernetes.executor.disableConfigMap": "true",
    }
    if store.spec.images.pull_secrets:
        conf["spark.kubernetes.container.image.pullSecrets"] = ",".join(store.spec.images.pull_secrets)
    return {**conf, **_cores(executor), **_allocation(executor)}


def _cores(executor: ExecutorSpec) -> dict[str, str]:
    """The CPU request and limit of an executor's pod, if they differ from its cores."""
    if executor.resources is None:
        return {}
    asked, most = executor.resources.requests.get("cpu"), executor.resources.limits.get("cpu")
    conf = {"spark.kubernetes.executor.request.cores": asked, "spark.kubernetes.executor.limit.cores": most}
    return {key: str(value) for key, value in conf.items() if value is not None}


def _allocation(executor: ExecutorSpec) -> dict[str, str]:
    if executor_target(executor) is not None:
        # Otherwise two would decide: Spark by its work, and the driver by what the operator asks for.
        return {"spark.dynamicAllocation.enabled": "false"}
    least = str(executor.min_replicas or 0)
    return {
        "spark.dynamicAllocation.enabled": "true",
        # There is no shuffle service here: an executor stays while its shuffle files may still be needed.
        "spark.dynamicAllocation.shuffleTracking.enabled": "true",
        "spark.dynamicAllocation.minExecutors": least,
        "spark.dynamicAllocation.initialExecutors": least,
        "spark.dynamicAllocation.maxExecutors": str(executor.max_replicas),
    }


def properties(conf: Mapping[str, str]) -> str:
    """The settings as a Java properties file, sorted."""
    return "".join(f"{_escape(key, ' =:#!')}={_escape(conf[key], '')}\n" for key in sorted(conf))


def _escape(text: str, special: str) -> str:
    shown = text.replace("\\", "\\\\").replace("\n", "\\n").replace("\r", "\\r").replace("\t", "\\t")
    for sign in special:
        shown = shown.replace(sign, "\\" + sign)
    # Leading blanks of a value would be skipped.
    return "\\" + shown if shown.startswith(" ") else shown


def _mebibytes(size: int) -> str:
    """A size as Spark writes it: it knows `m` for MiB, and no `Mi`."""
    return f"{max(1, -(-size >> 20))}m"
