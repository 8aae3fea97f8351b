"""`Compute`: a Spark job that keeps its state in a store, or an application that `tussock serve` runs."""

from collections.abc import Mapping
from typing import Any, ClassVar, Literal

from msgspec import field

from tussock.operator.resources.common import (
    CamelStruct,
    InvalidResource,
    PodTemplate,
    ResourceRequirements,
    StoreUser,
    StoreUserSpec,
    parse,
)
from tussock.operator.resources.service import ServiceSpec, check_service

__all__ = [
    "Application",
    "CheckpointVolume",
    "Compute",
    "ComputeSpec",
    "ConfigMapKey",
    "DriverSpec",
    "EventLogSpec",
    "ExecutorSpec",
    "ProgramObject",
    "RestartPolicy",
    "parse_compute",
]


class ConfigMapKey(CamelStruct, frozen=True, kw_only=True):
    """One file of a ConfigMap of the same namespace."""

    name: str
    key: str


class ProgramObject(CamelStruct, frozen=True, kw_only=True):
    """One file of the store's bucket, below `applications/JOB/program/`."""

    name: str
    sha256: str
    """The driver runs no other file."""


class Application(CamelStruct, frozen=True, kw_only=True):
    """The program: exactly one of these."""

    file: str = ""
    """A path in the image."""
    config_map: ConfigMapKey | None = None
    object: ProgramObject | None = None


class DriverSpec(CamelStruct, frozen=True, kw_only=True):
    """The pod that runs the program."""

    cores: int = 1
    memory: str = "1Gi"
    """For the JVM; the pod gets more, for Python and for what Spark keeps outside the heap."""
    resources: ResourceRequirements | None = None
    pod_template: PodTemplate = field(default_factory=dict)


class ExecutorSpec(CamelStruct, frozen=True, kw_only=True):
    """The pods that Spark makes."""

    replicas: int | None = None
    min_replicas: int | None = None
    """With `max_replicas`: Spark asks for as many as it has work for."""
    max_replicas: int | None = None
    target_lag_seconds: int | None = None
    """With both: the driver keeps streams no further behind, with as few as that takes."""
    cores: int = 1
    memory: str = "1Gi"
    resources: ResourceRequirements | None = None
    pod_template: PodTemplate = field(default_factory=dict)


class CheckpointVolume(CamelStruct, frozen=True, kw_only=True):
    """Where Spark keeps its progress: exactly one of an existing claim, a new one of `size`, and an `emptyDir`."""

    claim_name: str = ""
    size: str = ""
    storage_class_name: str | None = None
    empty_dir: dict[str, Any] | None = None
    """Gone with the driver's pod: for trials."""


class EventLogSpec(CamelStruct, frozen=True, kw_only=True):
    """Spark's event log in the store's bucket."""

    count: int = 10
    """Logs of the job that are kept."""
    size: str = "256Mi"
    """Of each log."""


class RestartPolicy(CamelStruct, frozen=True, kw_only=True):
    """What happens when the driver ends."""

    type: Literal["Always", "OnFailure", "Never"] | None = None
    """None: `Always` for a stream, `OnFailure` for a batch."""
    backoff_seconds: float = 10.0
    """Before the first restart; doubles for each further failure."""
    max_backoff_seconds: float = 300.0
    max_restarts: int | None = None
    """None: no limit."""


class ComputeSpec(StoreUserSpec, frozen=True, kw_only=True):
    """The job, or the service: exactly one of `application` and `service`."""

    application: Application | None = None
    service: ServiceSpec | None = None
    mode: Literal["Streaming", "Batch"] = "Streaming"
    image: str = ""
    """Empty: the store's for Spark, of a service that for nodes; or the operator's."""
    arguments: tuple[str, ...] = ()
    spark_conf: dict[str, str] = field(default_factory=dict)
    event_log: EventLogSpec | None = None
    """None: there is none, or one by `spark_conf`."""
    env: tuple[dict[str, Any], ...] = ()
    """As in a container; a secret only by reference."""
    writer_id: str = ""
    """Empty: the object's name."""
    driver: DriverSpec = DriverSpec()
    executor: ExecutorSpec = ExecutorSpec(replicas=1)
    checkpoint: CheckpointVolume = CheckpointVolume(size="1Gi")
    restart_policy: RestartPolicy = RestartPolicy()
    suspend: bool = False
    schedule: str = ""
    """Five fields of cron; only for a batch."""
    concurrency_policy: Literal["Forbid", "Replace"] = "Forbid"
    time_zone: str = "UTC"
    """Time zone of the schedule, by its name in the IANA database."""
    successful_run_history_limit: int = 3
    """Runs by the schedule of which the status has a record, and whose pods stay for their logs."""
    failed_run_history_limit: int = 1
    ttl_seconds_after_finished: int | None = None
    """After this time the pod of a run that is over goes; None: with its record, or with the job."""
    pod_template: PodTemplate = field(default_factory=dict)
    """For driver and executors; their own override it."""


class Compute(StoreUser, frozen=True, kw_only=True):
    """A Spark job, or a service."""

    kind: ClassVar[str] = "Compute"

    spec: ComputeSpec

    @property
    def program(self) -> Application:
        """The program of a job."""
        assert self.spec.application is not None, "a service has none"
        return self.spec.application

    @property
    def service(self) -> ServiceSpec:
        """What a service serves."""
        assert self.spec.service is not None, "a job serves nothing"
        return self.spec.service

    @property
    def is_service(self) -> bool:
        """Whether it is a service, and not a job."""
        return self.spec.service is not None

    @property
    def folder(self) -> str:
        """The folder of a job below `applications/` in the store's bucket, which no other job of the store has."""
        # No name of an object has a low line, so it ends the job's name.
        return f"{self.name}_{self.namespace}" if self.is_far else self.name

    @property
    def writer_id(self) -> str:
        """The name under which the job commits; unique in its store."""
        return self.spec.writer_id or self.name


def parse_compute(body: Mapping[str, Any]) -> Compute:
    """The body of a `Compute`; `InvalidResource` if it does not fit."""
    found = parse(body, Compute)
    about = f"Compute {found.namespace}/{found.name}"
    if (found.spec.application is None) == (found.spec.service is None):
        given = "neither" if found.spec.service is None else "both"
        raise InvalidResource(
            f"{about} has {given} of spec.application (a Spark job) and spec.service; apply it again with one of them"
        )
    if found.spec.service is not None:
        if found.is_far:
            raise InvalidResource(
                f"{about} is a service of a store in namespace {found.store_namespace}; a service knows its clients by "
                "certificates that are beside the store, so create it there, without spec.storeRef.namespace"
            )
        check_service(about, found.spec.service)
    return found
