"""A store with its platform and a job, as the API server would have them, for the tests of planning."""

from datetime import UTC, datetime, timedelta
from typing import Any

from tussock.operator.manifests.certificates import ca_secret, certificate_secret, job_certificate
from tussock.operator.manifests.compute.job import TEMPLATE_ANNOTATION, compute_manifests
from tussock.operator.manifests.compute.spark_security import spark_secret
from tussock.operator.manifests.meta import meta_address
from tussock.operator.manifests.settings import Defaults
from tussock.operator.planning.compute.facts import ComputeFacts
from tussock.operator.planning.compute.plan import plan_compute
from tussock.operator.planning.compute.runs import FAILURES_ANNOTATION, RESTARTS_ANNOTATION, SCHEDULED_ANNOTATION
from tussock.operator.planning.words.facts import DriverFact
from tussock.operator.planning.words.model import Annotate, Apply, Delete, Manifest, Observed, Plan, Ref, ref_of
from tussock.operator.resources.compute import parse_compute
from tussock.operator.resources.store import parse_store

SECRET_UID = "uid-of-secret"
NOW = datetime(2026, 11, 21, 12, 0, 0, tzinfo=UTC)
DEFAULTS = Defaults(node_image="localhost/tussock-node:dev", spark_image="localhost/tussock-spark:dev", namespace="ops")


def at(seconds: float) -> str:
    """The time `seconds` after NOW, as the API writes it."""
    return (NOW + timedelta(seconds=seconds)).strftime("%Y-%m-%dT%H:%M:%SZ")


def conditions(*, ready: bool = True, reason: str = "Ready") -> list[dict[str, Any]]:
    """Conditions of another resource."""
    values = {"Ready": ready, "Progressing": not ready, "Degraded": False}
    return [{"type": type_, "status": str(value), "reason": reason, "message": "so"} for type_, value in values.items()]


def body(kind: str, name: str, spec: dict[str, Any], **metadata: Any) -> Manifest:
    """One of Tussock's custom resources, ready."""
    about = {
        "name": name,
        "namespace": "team",
        "uid": f"{kind}-{name}",
        "generation": 1,
        "creationTimestamp": at(-9000),
    }
    return {
        "apiVersion": "tussock.dev/v1alpha1",
        "kind": kind,
        "metadata": {**about, **metadata},
        "spec": spec,
        "status": {"observedGeneration": 1, "conditions": conditions()},
    }


def store(**spec: Any) -> Manifest:
    """The store `s` on a managed MinIO."""
    found = body("StateStore", "s", {"objectStore": {"managed": {}}, **spec})
    found["status"]["obstacle"] = ""
    return found


def compute(name: str = "x", status: dict[str, Any] | None = None, **spec: Any) -> Manifest:
    """A job of the store `s`; `metadata` may be given in the spec."""
    metadata = spec.pop("metadata", {})
    base = {"storeRef": {"name": "s"}, "application": {"file": "/opt/app.py"}, "executor": {"replicas": 2}}
    return {**body("Compute", name, {**base, **spec}, **metadata), "status": status or {}}


class World:
    """The platform, the job's children, and the status by their plan."""

    def __init__(self, job: Manifest, **store_spec: Any) -> None:
        self.job = job
        self.now = NOW
        bodies = [
            store(**store_spec),
            body("Meta", "s", {"storeRef": {"name": "s"}}),
            body("Compactor", "s", {"storeRef": {"name": "s"}}),
            body("Meta", "other", {"storeRef": {"name": "t"}}),
        ]
        self.others = {ref_of(found): found for found in bodies}
        self.draw_secret()
        self.issue_certificate()
        self.children: dict[Ref, Manifest] = {}
        self.settled = {Ref("Meta", "s"): True, Ref("Compactor", "s"): True}
        self.application: str | None = ""
        self.reported: DriverFact | None = None
        self.missing = ""
        self.has_cert_manager = False

    def draw_secret(self) -> None:
        """Make Spark's secret, as an operator does when the plan asks for it."""
        secret = spark_secret(parse_compute(self.job), "drawn")
        secret["metadata"]["uid"] = SECRET_UID
        self.others[ref_of(secret)] = secret

    def issue_certificate(self) -> None:
        """Issue certificates of the store's CA and of the job; with `managed` an operator does it when asked."""
        owner = parse_compute(self.job)
        state_store = parse_store(self.others[Ref("StateStore", "s")])
        files = dict.fromkeys(("ca.crt", "tls.crt", "tls.key"), "")
        secret = certificate_secret(owner, "s", job_certificate(owner, state_store), files)
        self.others[ref_of(secret)] = secret
        ca = body("Secret", ca_secret(state_store), {})
        self.others[ref_of(ca)] = ca

    def plan(self) -> Plan:
        """The plan of this moment."""
        facts = ComputeFacts(
            DEFAULTS,
            self.application,
            self.missing,
            self.reported,
            self.settled,
            has_cert_manager=self.has_cert_manager,
        )
        return plan_compute(parse_compute(self.job), Observed(facts, self.children, self.others), self.now)

    def settle(self) -> Plan:
        """Carry out plans as an API server would, until one has nothing more to do; deleted pods are gone."""
        for _ in range(10):
            plan = self.plan()
            changed = False
            for action in plan.actions:
                if isinstance(action, Apply):
                    self.children[ref_of(action.manifest)] = action.manifest
                    changed = True
                elif isinstance(action, Delete) and action.ref in self.children:
                    del self.children[action.ref]
                    changed = True
                elif isinstance(action, Annotate):
                    self.children[action.ref]["metadata"].setdefault("annotations", {}).update(action.annotations)
                    changed = True
            self.job["status"] = plan.status
            if not changed:
                return plan
        raise AssertionError("the plan never comes to rest")

    def after(self, seconds: float) -> "World":
        """The world after some seconds."""
        self.now += timedelta(seconds=seconds)
        return self

    @property
    def pods(self) -> list[str]:
        """The names of the pods there are."""
        return sorted(ref.name for ref in self.children if ref.kind == "Pod")

    def driver(self, name: str = "") -> Manifest:
        """The driver's pod; without a name `x-driver`, or by a schedule that of the newest run."""
        names = [name] if name else [one for one in self.pods if one == "x-driver"] or self.pods[-1:]
        return self.children[Ref("Pod", names[0])]

    def run(self, name: str = "", *, ready: bool = True) -> None:
        """Start the driver, as the kubelet does."""
        stamp = self.now.strftime("%Y-%m-%dT%H:%M:%SZ")
        pod = self.driver(name)
        pod["metadata"].setdefault("creationTimestamp", stamp)
        pod["status"] = {
            "phase": "Running",
            "startTime": stamp,
            "conditions": [{"type": "Ready", "status": str(ready)}],
            "containerStatuses": [{"name": "compute", "ready": ready, "state": {"running": {"startedAt": stamp}}}],
        }

    def end(self, code: int, name: str = "", message: str = "", reason: str = "") -> None:
        """The driver's container ends with a code."""
        stamp = self.now.strftime("%Y-%m-%dT%H:%M:%SZ")
        status = self.driver(name).setdefault("status", {})
        started = status.get("startTime", stamp)
        told = {"exitCode": code, "startedAt": started, "finishedAt": stamp, "message": message, "reason": reason}
        status["phase"] = "Failed" if code else "Succeeded"
        status["conditions"] = [{"type": "Ready", "status": "False"}]
        status["containerStatuses"] = [{"name": "compute", "state": {"terminated": told}}]

    def set(self, **spec: Any) -> None:
        """Change the job's spec, as a user does."""
        self.job["spec"].update(spec)
        self.job["metadata"]["generation"] += 1

    def reason(self, type_: str = "Ready") -> tuple[str, str]:
        """Status and reason of a condition, as last written."""
        [found] = [found for found in self.job["status"]["conditions"] if found["type"] == type_]
        return found["status"], found["reason"]

    def message(self) -> str:
        """Of the condition `Ready`."""
        return str(self.job["status"]["conditions"][0]["message"])


def current_hash(world: World) -> str:
    """The template hash that the job's spec asks for."""
    found = compute_manifests(
        parse_compute(world.job),
        parse_store(world.others[Ref("StateStore", "s")]),
        [meta_address("s", "team")],
        DEFAULTS,
        secret=SECRET_UID,
    )
    return found.template_hash


__all__ = [
    "DEFAULTS",
    "FAILURES_ANNOTATION",
    "NOW",
    "RESTARTS_ANNOTATION",
    "SCHEDULED_ANNOTATION",
    "SECRET_UID",
    "TEMPLATE_ANNOTATION",
    "World",
    "at",
    "body",
    "compute",
    "conditions",
    "current_hash",
    "store",
]
