"""Compactor nodes: a Deployment whose pods get the store, and the bucket's credentials, from the meta service."""

from collections.abc import Sequence
from typing import Any

from tussock.operator.manifests.bucket_access import client_access
from tussock.operator.manifests.labels import SPEC_ANNOTATION, generations
from tussock.operator.manifests.pod.deployments import deployment, service_account
from tussock.operator.manifests.pod.disruption import disruption_budget
from tussock.operator.manifests.pod.pods import Main, Rendered, http_probe, node_template, requirements
from tussock.operator.manifests.pod.quantities import bytes_of
from tussock.operator.manifests.settings import Defaults, image_note, node_image
from tussock.operator.manifests.transport_security import client_identity
from tussock.operator.resources.compactor import Compactor
from tussock.operator.resources.store import StoreResource

__all__ = ["HEALTH_PORT", "compactor_manifests", "compactor_name"]

HEALTH_PORT = 7372
_DRAIN_SECONDS = 20.0
_NODE_BYTES = 256 << 20
"""What a node needs beside its slots."""
_SLOT_BYTES = 640 << 20
"""What a slot needs to write outputs of full size (`docs/compactor-nodes.md`), with a margin."""


def compactor_name(compactor: str) -> str:
    """The name of the children of the `Compactor` of that name."""
    return f"{compactor}-compactor"


def compactor_manifests(
    compactor: Compactor, store: StoreResource, addresses: Sequence[str], defaults: Defaults, metas: str = ""
) -> Rendered:
    """The children of `compactor`; `addresses` are those of the store's meta nodes (`meta_address`).

    `metas` is a digest of what these are made from: compactors follow a change of them without another turn.
    """
    name, image = compactor_name(compactor.name), node_image(compactor, store, defaults)
    access = client_access(store)
    resources = requirements(compactor.spec.resources, _default_resources(compactor))
    values = {
        "TUSSOCK_COMPACTOR_META": ",".join(addresses),
        "TUSSOCK_COMPACTOR_SLOTS": str(compactor.spec.slots),
        "TUSSOCK_COMPACTOR_MEMORY_MIB": str(_slots_bytes(compactor, resources) >> 20),
        "TUSSOCK_COMPACTOR_DRAIN": str(int(_DRAIN_SECONDS)),
        "TUSSOCK_COMPACTOR_HEALTH_LISTEN": f"0.0.0.0:{HEALTH_PORT}",
    }
    main = Main(
        component="compactor",
        image=image,
        args=("compactor",),
        # Not its name: a node takes its name from its pod, and another one after a kill if its old session still lives.
        env=tuple({"name": variable, "value": value} for variable, value in values.items()),
        ports={"health": HEALTH_PORT},
        probes=_probes(),
        resources=resources,
        drain_seconds=_DRAIN_SECONDS,
        access=access,
        tls=client_identity(store, "compactor"),
        service_account=access.service_account or name,
    )
    template, kept = node_template(compactor, store, main, compactor.spec.pod_template)
    budget = disruption_budget(compactor, name, store.name, "compactor")
    # Not on the Deployment, whose generation grows with each change of an annotation. It is applied after that, so
    # that a Deployment never seems made from a spec that came later.
    made_from = f"{generations(store, compactor)}/{metas}"
    budget["metadata"]["annotations"] = {SPEC_ANNOTATION: made_from, **image_note(store, defaults, image)}
    nodes = deployment(compactor, name, store.name, "compactor", image, compactor.spec.replicas, template)
    found = [nodes, budget]
    if not access.service_account:
        found.insert(0, service_account(compactor, name, store.name, "compactor"))
    return Rendered(tuple(found), kept)


def _default_resources(compactor: Compactor) -> dict[str, Any]:
    """Derived from what its slots may use; requests little CPU for a node that is often idle."""
    slots = compactor.spec.memory_bytes or compactor.spec.slots * _SLOT_BYTES
    memory = f"{(slots + _NODE_BYTES) >> 20}Mi"
    return {"requests": {"cpu": f"{100 * compactor.spec.slots}m", "memory": memory}, "limits": {"memory": memory}}


def _slots_bytes(compactor: Compactor, resources: dict[str, Any]) -> int:
    """What all slots together may use, so that they stay below the container's limit; 0 for no bound."""
    if compactor.spec.memory_bytes:
        return compactor.spec.memory_bytes
    limit = resources.get("limits", {}).get("memory")
    # Never 0, which would mean no bound: the node itself refuses too little, and says what it needs.
    return max(bytes_of(limit) - _NODE_BYTES, 1 << 20) if limit is not None else 0


def _probes() -> dict[str, Any]:
    def probe(path: str, period: int, failures: int) -> dict[str, Any]:
        return http_probe(path, tls=False, period=period, failures=failures, port="health")

    return {
        # A node answers from its start on, even while it waits for a meta service.
        "startupProbe": probe("/healthz", 1, 60),
        "readinessProbe": probe("/readyz", 5, 3),
        "livenessProbe": probe("/healthz", 10, 6),
    }
