"""What there is of a service: its workloads and their pods."""

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from tussock.operator.manifests.compute.job import TEMPLATE_ANNOTATION
from tussock.operator.manifests.compute.pods import ROLE_LABEL, trial_name
from tussock.operator.manifests.service.names import NODE_ROLE, WORKER_ROLE, service_name, workers_name
from tussock.operator.planning.compute.health import is_ready_pod
from tussock.operator.planning.compute.runs import has_ended
from tussock.operator.planning.words.model import Manifest, Observed, Ref
from tussock.operator.planning.words.ownership import holder_of, own_child
from tussock.operator.resources.compute import Compute

__all__ = ["ServiceParts", "is_leaving", "parts_of"]


class ServiceParts(NamedTuple):
    """The objects of a service, as the API has them."""

    node: Manifest | None
    """The StatefulSet."""
    workers: Manifest | None
    """The Deployment."""
    node_pods: Sequence[Manifest]
    """One, or none; those that end count until they have gone."""
    worker_pods: Sequence[Manifest]
    trial: Manifest | None
    """The pod that tries an image."""

    @property
    def is_serving(self) -> bool:
        """Whether a node is ready, and stays."""
        return any(is_ready_pod(pod) and not is_leaving(pod) for pod in self.node_pods)

    def former_pods(self, template: str) -> list[Manifest]:
        """The node's pods that are not made from the template with that digest."""
        return [pod for pod in self.node_pods if _template(pod) != template]


def parts_of(compute: Compute, observed: Observed[Any]) -> ServiceParts:
    """The service's own workloads, and the pods with its labels."""
    children, holder, node = observed.children, holder_of(compute), service_name(compute.name)
    pods = [pod for pod in observed.pods() if not has_ended(pod)]
    return ServiceParts(
        own_child(children, Ref("StatefulSet", node), holder),
        own_child(children, Ref("Deployment", workers_name(compute.name)), holder),
        # Copies that people make of pods have their labels, too; but no other name is free, and no owner makes them.
        [pod for pod in pods if _role(pod) == NODE_ROLE and pod["metadata"]["name"] == f"{node}-0"],
        [pod for pod in pods if _role(pod) == WORKER_ROLE and _is_of_replica_set(pod)],
        own_child(children, Ref("Pod", trial_name(compute.name)), holder),
    )


def is_leaving(pod: Mapping[str, Any]) -> bool:
    """Whether a pod was deleted, and has not gone yet."""
    return bool(pod["metadata"].get("deletionTimestamp"))


def _is_of_replica_set(pod: Manifest) -> bool:
    return any(one.get("kind") == "ReplicaSet" for one in pod["metadata"].get("ownerReferences") or ())


def _role(pod: Manifest) -> str:
    return str((pod["metadata"].get("labels") or {}).get(ROLE_LABEL, ""))


def _template(pod: Manifest) -> str:
    return str((pod["metadata"].get("annotations") or {}).get(TEMPLATE_ANNOTATION, ""))
