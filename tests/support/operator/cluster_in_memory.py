"""A cluster in memory: the operator's controllers make passes over it, and nothing happens beside them by itself.

What a kubelet and Kubernetes' controllers do, a test does step by step with `advance`. Several passes may plan before
the first of them acts, as they do in the operator.
"""

from collections.abc import Iterable, Mapping
from datetime import UTC, datetime, timedelta
from itertools import count
from typing import Any

from support.operator.resources import DEFAULTS
from tussock.operator.cluster.kinds import KINDS
from tussock.operator.cluster.seen import Key, Seen, key_of
from tussock.operator.handlers.components import COMPACTOR, META
from tussock.operator.handlers.compute import COMPUTE
from tussock.operator.handlers.world import World
from tussock.operator.manifests.compute.pods import ROLE_LABEL
from tussock.operator.manifests.compute.spark_security import spark_secret
from tussock.operator.manifests.settings import Defaults
from tussock.operator.planning.words.allowances import Allowance
from tussock.operator.planning.words.model import Action, Annotate, Apply, Delete, Manifest, Plan, stamp
from tussock.operator.resources.compute import parse_compute

__all__ = ["NAMESPACE", "ClusterInMemory", "Program", "cluster_of"]

NAMESPACE = "data"
Program = tuple[str, str]
"""The digest of a program in a ConfigMap, and what is missing of it."""
_CONTROLLERS: dict[str, Any] = {"Meta": META, "Compactor": COMPACTOR, "Compute": COMPUTE}


class _Programs:
    """The probes of an operator that reads programs from ConfigMaps, and nothing else."""

    def __init__(self, programs: Mapping[str, Program]) -> None:
        self._programs = programs

    def fact(self, owner: Key, about: Any, run: Any, every_seconds: float) -> Any:
        del run, every_seconds
        return self.latest_fact(owner, about)

    def latest_fact(self, owner: Key, about: Any) -> Any:
        return self._programs.get(owner.name) if about[0] == "application" else None


class ClusterInMemory:
    """Objects of one namespace, and an operator with some defaults that changes that many stores or jobs at a time."""

    def __init__(self, parallel: int) -> None:
        self.now = datetime(2026, 11, 24, tzinfo=UTC)
        self.programs: dict[str, Program] = {}
        self._versions = count(1)
        self._parallel = parallel
        self.seen = Seen()
        self.begin(DEFAULTS)

    def begin(self, defaults: Defaults) -> None:
        """Start an operator with these defaults in place of the one before, which has forgotten everything."""
        before, self.seen = self.seen, Seen()
        for kind in KINDS:
            for body in before.all_of(kind):
                self.seen.put(kind, body)
        made: Any = World
        self.world: World = made(
            **dict.fromkeys(("api", "wake", "metrics")),
            identity="one",
            seen=self.seen,
            probes=_Programs(self.programs),
            system=self,
            has_cert_manager=False,
            defaults=defaults,
            max_unavailable=Allowance(self._parallel),
        )

    def now_ms(self) -> int:
        """The time; it moves with `after` alone."""
        return int(self.now.timestamp() * 1000)

    def monotonic(self) -> float:
        """The same in seconds."""
        return self.now.timestamp()

    def random_bytes(self, count: int) -> bytes:
        """Always the same."""
        return bytes(count)

    def after(self, seconds: float) -> None:
        """Let some time pass."""
        self.now += timedelta(seconds=seconds)

    def stamp(self) -> str:
        """The time as the API writes it."""
        return stamp(self.now)

    def make(self, kind: str, name: str, spec: Mapping[str, Any]) -> None:
        """Create one of Tussock's resources; a store is ready at once, a job has its secret."""
        metadata = {"name": name, "generation": 1, "creationTimestamp": self.stamp()}
        status = {"obstacle": "", "conditions": [_condition("Ready", True)]} if kind == "StateStore" else {}
        body = {
            "apiVersion": "tussock.dev/v1alpha1",
            "kind": kind,
            "metadata": metadata,
            "spec": spec,
            "status": status,
        }
        self.put(kind, body)
        if kind == "Compute":
            self.put("Secret", spark_secret(parse_compute(self.get(kind, name)), "drawn"))

    def edit(self, kind: str, name: str, **spec: Any) -> None:
        """Change fields of a spec, as a user does."""
        body = self.get(kind, name)
        metadata = {**body["metadata"], "generation": body["metadata"]["generation"] + 1}
        self.put(kind, {**body, "metadata": metadata, "spec": {**body["spec"], **spec}})

    def put(self, kind: str, body: Manifest) -> None:
        """Write an object; its uid stays, if it is there."""
        known = self.seen.get(kind, NAMESPACE, body["metadata"]["name"])
        version = next(self._versions)
        uid = known["metadata"]["uid"] if known is not None else f"{kind}-{version}"
        metadata = {**body["metadata"], "namespace": NAMESPACE, "uid": uid, "resourceVersion": str(version)}
        self.seen.put(kind, {**body, "metadata": metadata})

    def get(self, kind: str, name: str) -> Manifest:
        """An object, which has to be there."""
        found = self.seen.get(kind, NAMESPACE, name)
        assert found is not None, (kind, name)
        return found

    def find(self, kind: str, name: str) -> Manifest | None:
        """An object, if it is there."""
        return self.seen.get(kind, NAMESPACE, name)

    def remove(self, kind: str, name: str) -> None:
        """Delete an object for good."""
        body = self.get(kind, name)
        version = str(next(self._versions))
        self.seen.drop(kind, {**body, "metadata": {**body["metadata"], "resourceVersion": version}})

    def look(self, keys: Iterable[Key]) -> None:
        """Make passes side by side: all of them plan, then each acts and writes its status."""
        plans = [(body, self._plan(body)) for key in keys if (body := self.seen.get(*key)) is not None]
        for body, plan in plans:
            for action in plan.actions:
                self.act(action)
            now = self.get(body["kind"], body["metadata"]["name"])
            self.put(body["kind"], {**now, "status": plan.status})

    def keys(self) -> list[Key]:
        """All resources that passes are made over."""
        return [key_of(body) for kind in _CONTROLLERS for body in self.seen.all_of(kind)]

    def message(self, kind: str, name: str) -> str:
        """Of the condition `Ready`."""
        return str(self.get(kind, name)["status"]["conditions"][0]["message"])

    def _plan(self, body: Manifest) -> Plan:
        controller = _CONTROLLERS[body["kind"]]
        resource = controller.parse(body)
        plan: Plan = controller.plan(resource, controller.observe(self.world, resource, body), self.now)
        return plan

    def act(self, action: Action) -> None:
        """Carry out an action of a plan; events go nowhere."""
        match action:
            case Apply(manifest):
                known = self.find(manifest["kind"], manifest["metadata"]["name"]) or {"metadata": {}}
                generation = known["metadata"].get("generation", 0) + (known.get("spec") != manifest.get("spec"))
                born = known["metadata"].get("creationTimestamp", self.stamp())
                metadata = {**manifest["metadata"], "generation": generation, "creationTimestamp": born}
                # What others have noted there stays, as with server-side apply.
                notes = {**(known["metadata"].get("annotations") or {}), **(metadata.get("annotations") or {})}
                metadata["annotations"] = notes
                self.put(manifest["kind"], {**manifest, "metadata": metadata, "status": known.get("status", {})})
            case Delete(ref) if ref.kind == "Pod" and (known := self.find(*ref)) is not None:
                metadata = {**known["metadata"], "deletionTimestamp": self.stamp()}
                self.put(ref.kind, {**known, "metadata": metadata})
            case Delete(ref) if self.find(*ref) is not None:
                self.remove(*ref)
            case Annotate(ref, annotations) if (known := self.find(*ref)) is not None:
                metadata = {**known["metadata"]}
                merged = {**(metadata.get("annotations") or {}), **annotations}
                metadata["annotations"] = {name: value for name, value in merged.items() if value is not None}
                self.put(ref.kind, {**known, "metadata": metadata})

    def advance(self, kind: str, name: str) -> None:
        """One step of a cluster with a Deployment or a pod: it is seen, its pods are replaced, it runs, it is gone."""
        body = self.get(kind, name)
        if kind == "Deployment":
            self._roll(body)
        elif body["metadata"].get("deletionTimestamp"):
            self.remove(kind, name)
        elif body["metadata"]["labels"][ROLE_LABEL] == "image":
            self.report(name, phase="Succeeded")
        else:
            self.run(name)

    def run(self, pod: str) -> None:
        """Let a pod run and be ready."""
        container = {"name": "compute", "ready": True, "state": {"running": {"startedAt": self.stamp()}}}
        self.report(pod, phase="Running", conditions=[_condition("Ready", True)], containerStatuses=[container])

    def report(self, pod: str, **status: Any) -> None:
        """Write the status of a pod, as its kubelet does."""
        self.put("Pod", {**self.get("Pod", pod), "status": status})

    def _roll(self, body: Manifest) -> None:
        generation, wanted = body["metadata"]["generation"], body["spec"]["replicas"]
        held = body["status"]
        # First the controller sees it, then its new pods are ready.
        is_seen = held.get("observedGeneration") == generation
        numbers = {"replicas": wanted, "readyReplicas": wanted, "updatedReplicas": wanted if is_seen else 0}
        self.put("Deployment", {**body, "status": {"observedGeneration": generation, **numbers}})


def _condition(type_: str, value: bool) -> dict[str, Any]:
    return {"type": type_, "status": str(value), "reason": "Ready", "message": ""}


def cluster_of(names: str, parallel: int, meta_image: str = "registry.example/pinned:1") -> ClusterInMemory:
    """Stores whose nodes serve; the image of their meta nodes is in their specs, so an upgrade leaves those alone."""
    cluster = ClusterInMemory(parallel)
    for name in names:
        ref = {"storeRef": {"name": name}}
        cluster.make("StateStore", name, {"objectStore": {"managed": {}}, "tls": {"mode": "none"}})
        cluster.make("Meta", name, {**ref, "image": meta_image})
        cluster.make("Compactor", name, {**ref, "replicas": 2})
    for _ in range(4):
        cluster.look(cluster.keys())
        for found in list(cluster.seen.all_of("Deployment")):
            cluster.advance("Deployment", found["metadata"]["name"])
    assert all("2 compactors serve" in cluster.message("Compactor", name) for name in names)
    return cluster
