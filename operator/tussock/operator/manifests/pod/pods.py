"""The pod template that all our nodes share: security, probes, an orderly end, and placement.

A user's `podTemplate` is merged over ours; fields that a user cannot change (labels, the command, ports, probes,
security, our volumes and variables) are put back, what a user cannot add is removed (`reservations.py`), and both are
reported.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from tussock.operator.manifests.bucket_access import BucketAccess
from tussock.operator.manifests.labels import (
    RESTARTED_AT,
    STORE_LABEL,
    Component,
    Manifest,
    labels,
    selector,
)
from tussock.operator.manifests.pod.node_loss import leave_lost_nodes
from tussock.operator.manifests.pod.reservations import check_shape, without_reserved
from tussock.operator.manifests.pod.security import CONTAINER_SECURITY, POD_SECURITY, restrict
from tussock.operator.manifests.pod.strategic_merge import insist, strategic_merge
from tussock.operator.manifests.transport_security import Mounted
from tussock.operator.resources.common import PodTemplate, Resource, ResourceRequirements
from tussock.operator.resources.store import StoreResource

__all__ = ["Main", "Rendered", "http_probe", "merge_template", "node_template", "placement_fields", "requirements"]

_GRACE_SECONDS = 5.0
"""Added to the time that a process takes to drain: for the start of its end, and for the kubelet."""


class Rendered(NamedTuple):
    """The children of a resource, and the parts of its pod template that could not hold."""

    manifests: tuple[Manifest, ...]
    kept: tuple[str, ...] = ()
    """Paths in the pod template where our value replaced the user's, for an event."""


@dataclass(frozen=True)
class Main:
    """The container of one component, with what is particular to it."""

    component: Component
    image: str
    args: Sequence[str]
    env: Sequence[Mapping[str, Any]]
    ports: Mapping[str, int]
    probes: Mapping[str, Any]
    resources: Mapping[str, Any]
    drain_seconds: float
    access: BucketAccess
    tls: Mounted
    volumes: Sequence[Mapping[str, Any]] = ()
    mounts: Sequence[Mapping[str, Any]] = ()
    command: Sequence[str] = ()
    annotations: Mapping[str, str] | None = None
    service_account: str = ""
    """Empty: the namespace's default account, without its token."""
    role: Mapping[str, str] = field(default_factory=dict)
    """Labels that tell pods of one component apart."""
    container: Mapping[str, Any] = field(default_factory=dict)
    """Further fields of the container."""
    restart: str = "Always"
    has_token: bool = False
    """Whether the pod calls the API."""
    leaves_lost_nodes: bool = True
    """Whether another pod takes its place as soon as it is deleted, even if nobody can say whether it still runs."""


def node_template(
    owner: Resource, store: StoreResource, main: Main, user: PodTemplate
) -> tuple[Manifest, tuple[str, ...]]:
    """The pod template of one component of `owner`, with the user's merged in, and the paths kept against it."""
    found = {**labels(owner, store.name, main.component), **main.role}
    container = _container(store, main)
    spec: dict[str, Any] = {
        "automountServiceAccountToken": main.has_token,
        "restartPolicy": main.restart,
        # Variables for each Service of the namespace are useless, and grow with it.
        "enableServiceLinks": False,
        "terminationGracePeriodSeconds": math.ceil(main.drain_seconds + _GRACE_SECONDS),
        "containers": [container],
        "volumes": [{"name": "tmp", "emptyDir": {}}, *main.volumes, *main.access.volumes, *main.tls.volumes],
    }
    if main.service_account:
        spec["serviceAccountName"] = main.service_account
    annotations = {**(main.annotations or {}), **_restart(owner)}
    metadata: dict[str, Any] = {"labels": found, **({"annotations": annotations} if annotations else {})}
    # A user may add to the security context what `restrict` allows, and cannot remove anything there.
    soft: dict[str, Any] = {
        "securityContext": POD_SECURITY,
        **_placement(owner, store, main),
    }
    if store.spec.images.pull_secrets:
        soft["imagePullSecrets"] = [{"name": name} for name in store.spec.images.pull_secrets]
    suggested = {"containers": [{"name": container["name"], "resources": dict(main.resources)}]}
    merged, kept = merge_template({"metadata": metadata, "spec": spec}, {"spec": {**soft, **suggested}}, user)
    if main.leaves_lost_nodes:
        merged["spec"] = leave_lost_nodes(merged["spec"])
    return merged, kept


def merge_template(insisted: Manifest, suggested: Manifest, user: PodTemplate) -> tuple[Manifest, tuple[str, ...]]:
    """Merge a user's template over `insisted` and `suggested`; it can change only what is suggested.

    The result fits the restricted security profile, whatever the user asked for. Raises `InvalidResource` for a
    template that cannot be merged.
    """
    ours = strategic_merge(suggested, insisted)
    if not user:
        return ours, ()
    check_shape(user)
    merged, kept = insist(strategic_merge(ours, user), insisted)
    merged["spec"], removed = without_reserved(merged["spec"], ours["spec"])
    merged["spec"], forbidden = restrict(merged["spec"])
    # A field under a path that was put back already is not reported twice.
    told = [*kept, *removed, *(path for path in forbidden if not any(path.startswith(already) for already in kept))]
    return merged, tuple(told)


_PLACING = (
    "affinity",
    "dnsConfig",
    "dnsPolicy",
    "hostAliases",
    "imagePullSecrets",
    "nodeSelector",
    "priorityClassName",
    "runtimeClassName",
    "schedulerName",
    "tolerations",
    "topologySpreadConstraints",
)


def placement_fields(spec: Mapping[str, Any]) -> Manifest:
    """The part of a pod's spec that decides on which node it runs, and whether that node may pull its image."""
    return {name: spec[name] for name in _PLACING if name in spec}


def http_probe(path: str, *, tls: bool, period: int, failures: int, timeout: int = 5, port: str = "http") -> Manifest:
    """A probe of an HTTP port every `period` seconds, which fails after `failures` failures in a row.

    Kubelets do not check the certificate, which is for the service's names and not for a pod's address.
    """
    return {
        "httpGet": {"path": path, "port": port, "scheme": "HTTPS" if tls else "HTTP"},
        "periodSeconds": period,
        "timeoutSeconds": timeout,
        "failureThreshold": failures,
    }


def requirements(given: ResourceRequirements | None, default: Mapping[str, Any]) -> Manifest:
    """The user's requirements as a whole, or the component's default."""
    if given is None:
        return dict(default)
    # As text, which is how the API server keeps numbers that users write.
    found = {"requests": given.requests, "limits": given.limits}
    return {kind: {name: str(value) for name, value in asked.items()} for kind, asked in found.items() if asked}


def _restart(owner: Resource) -> dict[str, str]:
    """The restart that users of a component have asked for. Of a store's own pods one restores, and runs once."""
    asked = owner.metadata.annotations.get(RESTARTED_AT)
    return {RESTARTED_AT: asked} if asked is not None and owner.kind != StoreResource.kind else {}


def _container(store: StoreResource, main: Main) -> Manifest:
    container: dict[str, Any] = {
        "name": main.component,
        "image": main.image,
        "imagePullPolicy": store.spec.images.pull_policy,
        "args": list(main.args),
        # The root file system is read-only, and libraries look for a home.
        "env": [*main.env, *main.access.env, *main.tls.env, {"name": "HOME", "value": "/tmp"}],  # noqa: S108 - the pod's own
        "ports": [{"name": name, "containerPort": port, "protocol": "TCP"} for name, port in main.ports.items()],
        "securityContext": CONTAINER_SECURITY,
        "volumeMounts": [{"name": "tmp", "mountPath": "/tmp"}, *main.mounts, *main.access.mounts, *main.tls.mounts],  # noqa: S108
        **main.probes,
        **main.container,
    }
    if main.command:
        container["command"] = list(main.command)
    return container


def _placement(owner: Resource, store: StoreResource, main: Main) -> Manifest:
    """Spread over nodes and then zones; all on one node if they share a volume that only one node can mount."""
    if main.component == "minio":
        return {}  # there is only one
    found = {"matchLabels": selector(owner, main.component)}
    if main.access.one_node:
        own_pods = {"matchLabels": {STORE_LABEL: store.name}}
        term = {"labelSelector": own_pods, "topologyKey": "kubernetes.io/hostname"}
        return {"affinity": {"podAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [term]}}}
    apart = {"weight": 100, "podAffinityTerm": {"labelSelector": found, "topologyKey": "kubernetes.io/hostname"}}
    spread = {
        "maxSkew": 1,
        "topologyKey": "topology.kubernetes.io/zone",
        "whenUnsatisfiable": "ScheduleAnyway",
        "labelSelector": found,
    }
    return {
        "affinity": {"podAntiAffinity": {"preferredDuringSchedulingIgnoredDuringExecution": [apart]}},
        "topologySpreadConstraints": [spread],
    }
