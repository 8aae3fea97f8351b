"""The part of a `Compute` about an application that `tussock serve` runs, and that clients ask."""

import re

from msgspec import field

from tussock.operator.resources.common import CamelStruct, InvalidResource, PodTemplate, ResourceRequirements

__all__ = ["PAGE_PORT", "WORKERS_MAX", "ProgramFolder", "ServiceSpec", "WorkerSpec", "check_service"]

PAGE_PORT = 7381
"""Of the page, the metrics and the probes of a node."""
WORKERS_MAX = 64
_NAMES = r"[A-Za-z_][A-Za-z0-9_]*([.][A-Za-z_][A-Za-z0-9_]*)*"
_MODULE = re.compile(f"{_NAMES}:{_NAMES}")


class ProgramFolder(CamelStruct, frozen=True, kw_only=True):
    """A ConfigMap of the same namespace, whose keys are files; one is the module."""

    name: str


class WorkerSpec(CamelStruct, frozen=True, kw_only=True):
    """The pods of workers."""

    resources: ResourceRequirements | None = None
    pod_template: PodTemplate = field(default_factory=dict)


class ServiceSpec(CamelStruct, frozen=True, kw_only=True):
    """The application, its node and its workers."""

    module: str
    """`MODULE:APP`."""
    config_map: ProgramFolder | None = None
    """Where the module is; none: installed in the image."""
    port: int = 7380
    """Of the Service, for clients."""
    workers: int = 0
    """0: the node runs the program itself."""
    drain_seconds: int = 30
    """For requests taken, and again for the state."""
    resources: ResourceRequirements | None = None
    pod_template: PodTemplate = field(default_factory=dict)
    worker: WorkerSpec = WorkerSpec()

    @property
    def module_file(self) -> str:
        """The key of the ConfigMap that has the module."""
        return f"{self.module.partition(':')[0]}.py"


def check_service(about: str, service: ServiceSpec) -> None:
    """What the definition of the resource checks, for a body that was stored under another one; `InvalidResource`."""
    wrong: dict[str, str] = {}
    if not _MODULE.fullmatch(service.module):
        wrong["module"] = f"{service.module!r:.100} is not MODULE:APP, such as bank:make"
    elif service.config_map is not None and "." in service.module.partition(":")[0]:
        wrong["module"] = f"{service.module!r:.100} is in a folder, which a ConfigMap does not have"
    if not 1 <= service.port <= 65535 or service.port == PAGE_PORT:
        wrong["port"] = f"{service.port} is not from 1 to 65535, or is {PAGE_PORT}, the port of the page"
    if not 0 <= service.workers <= WORKERS_MAX:
        wrong["workers"] = f"{service.workers} is not from 0 to {WORKERS_MAX}"
    if not 1 <= service.drain_seconds <= 3600:
        wrong["drainSeconds"] = f"{service.drain_seconds} is not from 1 to 3600"
    if wrong:
        told = "; ".join(f"spec.service.{name}: {one}" for name, one in wrong.items())
        raise InvalidResource(f"{about}: {told}. Apply it again with that corrected")
