"""A service as the API server would have it, with the controllers of Kubernetes, for the tests of planning."""

import copy
from dataclasses import replace
from datetime import timedelta
from typing import Any

from support.operator.computes import DEFAULTS, NOW, at, body, store
from tussock.operator.manifests.certificates import ca_secret, certificate_secret, job_certificate
from tussock.operator.manifests.compute.pods import ROLE_LABEL
from tussock.operator.planning.compute.facts import ComputeFacts
from tussock.operator.planning.compute.plan import plan_compute
from tussock.operator.planning.words.facts import NodeFact
from tussock.operator.planning.words.model import Annotate, Apply, Delete, Emit, Manifest, Observed, Plan, Ref, ref_of
from tussock.operator.resources.compute import parse_compute
from tussock.operator.resources.store import parse_store

__all__ = ["NODE", "WORKERS", "ServiceWorld", "service"]

NODE = Ref("StatefulSet", "x-service")
WORKERS = Ref("Deployment", "x-workers")
SAID = NodeFact(application="bank", layer="functions", version="0.1.0", state="running")


def service(name: str = "x", status: dict[str, Any] | None = None, **spec: Any) -> Manifest:
    """A service of the store `s`; fields of `service` may be given beside those of the spec, and `metadata`."""
    metadata = spec.pop("metadata", {})
    others = {field: spec.pop(field) for field in ("image", "env", "suspend", "podTemplate") if field in spec}
    made = {"storeRef": {"name": "s"}, "service": {"module": "bank:make", **spec}, **others}
    return {**body("Compute", name, made, **metadata), "status": status or {}}


class ServiceWorld:
    """The platform, the service's children, and what the controllers and the kubelet make of them."""

    def __init__(self, job: Manifest, **store_spec: Any) -> None:
        self.job = job
        self.now = NOW
        bodies = [
            store(**store_spec),
            body("Meta", "s", {"storeRef": {"name": "s"}}),
            body("Compactor", "s", {"storeRef": {"name": "s"}}),
        ]
        self.others = {ref_of(found): found for found in bodies}
        owner, state_store = parse_compute(job), parse_store(bodies[0])
        files = dict.fromkeys(("ca.crt", "tls.crt", "tls.key"), "")
        for secret in (
            certificate_secret(owner, "s", job_certificate(owner, state_store), files),
            body("Secret", ca_secret(state_store), {}),
        ):
            self.others[ref_of(secret)] = secret
        self.children: dict[Ref, Manifest] = {}
        self.facts = ComputeFacts(DEFAULTS, settled={Ref("Meta", "s"): True, Ref("Compactor", "s"): True})
        self.said: NodeFact | None = None
        self.events: list[str] = []

    # --- The operator ------------------------------------------------------------------------------------------------

    def plan(self) -> Plan:
        """The plan of this moment."""
        node = self.said if self.pod("x-service-0") is not None else None
        observed = Observed(replace(self.facts, node=node), self.children, self.others)
        return plan_compute(parse_compute(self.job), observed, self.now)

    def step(self) -> Plan:
        """One pass of the operator."""
        plan = self.plan()
        for action in plan.actions:
            if isinstance(action, Apply):
                old = self.children.get(ref_of(action.manifest), {})
                self.children[ref_of(action.manifest)] = {**old, **copy.deepcopy(action.manifest)}
            elif isinstance(action, Delete):
                del self.children[action.ref]
            elif isinstance(action, Annotate):
                self.children[action.ref]["metadata"].setdefault("annotations", {}).update(action.annotations)
            elif isinstance(action, Emit):
                self.events.append(action.reason)
        self.job["status"] = plan.status
        return plan

    def settle(self) -> Plan:
        """Passes and controllers until nothing changes; pods that are to end do not go by themselves."""
        for _ in range(20):
            before = copy.deepcopy((self.children, self.job))
            plan = self.step()
            self.control()
            if before == (self.children, self.job):
                return plan
        raise AssertionError("the plan never comes to rest")

    # --- Kubernetes --------------------------------------------------------------------------------------------------

    def control(self) -> None:
        """What the controllers of StatefulSets and Deployments do at once."""
        self._control_node()
        self._control_workers()

    def _control_node(self) -> None:
        wanted, pod = self.children.get(NODE), self.pod("x-service-0")
        if wanted is None or wanted["spec"]["replicas"] == 0:
            if pod is not None:
                self.leave(pod)
        elif pod is None:
            self._make("x-service-0", wanted)
        elif pod["made-from"] != wanted["spec"]["template"]:
            self.leave(pod)

    def _control_workers(self) -> None:
        wanted = self.children.get(WORKERS)
        template = None if wanted is None else wanted["spec"]["template"]
        replicas = 0 if wanted is None else wanted["spec"]["replicas"]
        for name in [*self.workers]:
            if self.children[Ref("Pod", name)]["made-from"] != template:
                del self.children[Ref("Pod", name)]
        for name in self.workers[replicas:]:
            del self.children[Ref("Pod", name)]
        for number in range(len(self.workers), replicas):
            assert wanted is not None
            self._make(f"x-workers-{number}", wanted)
            self.run(f"x-workers-{number}")

    def _make(self, name: str, owner: Manifest) -> None:
        template = copy.deepcopy(owner["spec"]["template"])
        about = {**template["metadata"], "name": name, "namespace": "team", "creationTimestamp": self._stamp()}
        if owner["kind"] == "Deployment":
            about["ownerReferences"] = [{"kind": "ReplicaSet", "name": "x-workers-1", "uid": "r", "controller": True}]
        found = {"kind": "Pod", "metadata": about, "spec": template["spec"]}
        self.children[Ref("Pod", name)] = {**found, "made-from": copy.deepcopy(owner["spec"]["template"])}

    def leave(self, pod: Manifest) -> None:
        """Somebody deletes a pod, which ends in its own time."""
        pod["metadata"].setdefault("deletionTimestamp", (self.now + timedelta(seconds=65)).isoformat())

    def run(self, name: str = "x-service-0", *, ready: bool = True, **container: Any) -> None:
        """A pod runs, as the kubelet says; `container` is what it says of its container beside that."""
        state = {"running": {"startedAt": self._stamp()}}
        self.children[Ref("Pod", name)]["status"] = {
            "phase": "Running",
            "podIP": "10.0.0.7",
            "conditions": [{"type": "Ready", "status": str(ready)}],
            "containerStatuses": [{"name": "compute", "ready": ready, "state": state, **container}],
        }

    def gone(self, name: str = "x-service-0") -> None:
        """A pod has ended."""
        del self.children[Ref("Pod", name)]

    def say(self, **found: Any) -> None:
        """What the node says from now on."""
        self.said = (self.said or SAID)._replace(**found)

    def serve(self, workers: int = 0) -> "ServiceWorld":
        """A service that has come up."""
        self.settle()
        self.run()
        self.say(workers=workers, workers_joined=workers)
        self.settle()
        return self

    # --- For tests ---------------------------------------------------------------------------------------------------

    def pod(self, name: str) -> Manifest | None:
        """A pod of that name."""
        return self.children.get(Ref("Pod", name))

    @property
    def workers(self) -> list[str]:
        """The names of the workers' pods."""
        found = [body for ref, body in self.children.items() if ref.kind == "Pod"]
        return sorted(one["metadata"]["name"] for one in found if one["metadata"]["labels"][ROLE_LABEL] == "worker")

    def after(self, seconds: float) -> "ServiceWorld":
        """The world after some seconds."""
        self.now += timedelta(seconds=seconds)
        return self

    def set(self, **spec: Any) -> None:
        """Change the spec, as a user does; fields of `service` by `service=`."""
        self.job["spec"]["service"].update(spec.pop("service", {}))
        self.job["spec"].update(spec)
        self.job["metadata"]["generation"] += 1

    def delete(self) -> None:
        """Somebody deletes the Compute."""
        self.job["metadata"]["deletionTimestamp"] = self._stamp()

    def ready(self) -> tuple[str, str]:
        """Status and reason of the condition `Ready`."""
        found = self.job["status"]["conditions"][0]
        return found["status"], found["reason"]

    def degraded(self) -> bool:
        """Whether the condition `Degraded` holds."""
        return bool(self.job["status"]["conditions"][2]["status"] == "True")

    def message(self) -> str:
        """Of the condition `Ready`."""
        return str(self.job["status"]["conditions"][0]["message"])

    def _stamp(self) -> str:
        return at((self.now - NOW).total_seconds())
