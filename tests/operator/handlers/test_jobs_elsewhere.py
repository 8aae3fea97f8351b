"""What the operator sees of a job in another namespace than its store, beside stores and jobs of the same names."""

from typing import Any

from support.operator.clients import client_body
from support.operator.cluster_in_memory import ClusterInMemory
from support.operator.computes import at, body, compute, store
from tussock.operator.cluster.seen import Key
from tussock.operator.handlers.clients.admissions import admission_of, declarations_of, surroundings
from tussock.operator.handlers.compute import COMPUTE
from tussock.operator.handlers.passes.wakeups import concerned_keys
from tussock.operator.handlers.store import STATE_STORE
from tussock.operator.manifests.compute.job import compute_manifests
from tussock.operator.planning.words.model import Manifest, Ref
from tussock.operator.resources.compute import parse_compute
from tussock.operator.resources.store import parse_store

FAR = {"storeRef": {"name": "s", "namespace": "team"}}


class Cluster(ClusterInMemory):
    """The store `s` in `team`, which allows `lab`, another store `s` in `lab`, and jobs."""

    def __init__(self) -> None:
        super().__init__(1)
        self.put_at("team", store(allowedNamespaces=["lab"]))
        self.put_at("lab", store())
        for namespace in ("team", "lab"):
            self.put_at(namespace, body("Meta", "s", {"storeRef": {"name": "s"}}))
            for secret in ("s-ca", "x-spark"):
                self.put_at(namespace, {"kind": "Secret", "metadata": {"name": secret, "labels": {"at": namespace}}})

    def put_at(self, namespace: str, made: Manifest, **metadata: Any) -> Manifest:
        """Write an object into a namespace."""
        about = {**made["metadata"], "namespace": namespace, "uid": f"{namespace}-{made['metadata']['name']}"}
        found = {**made, "metadata": {**about, "resourceVersion": str(next(self._versions)), **metadata}}
        self.seen.put(made["kind"], found)
        return found

    def job(self, namespace: str, name: str = "x", **spec: Any) -> Manifest:
        """Write a job."""
        return self.put_at(namespace, compute(name, **spec))

    def driver_of(self, job: Manifest) -> Manifest:
        """Write its driver's pod."""
        parsed, state_store = parse_compute(job), parse_store(store(allowedNamespaces=["lab", "attic"]))
        made = compute_manifests(parsed, state_store, ["s:1"], self.world.defaults)
        return self.put_at(parsed.namespace, made.driver_pod(parsed, "s", f"{parsed.name}-driver", {}))

    def pods_of_store(self, namespace: str) -> set[str]:
        """The pods for which a store waits when it is deleted."""
        found = self.seen.get("StateStore", namespace, "s")
        assert found is not None
        gone = {**found, "metadata": {**found["metadata"], "deletionTimestamp": at(0)}}
        gone["spec"] = {**gone["spec"], "deletionPolicy": "Delete"}
        facts = STATE_STORE.observe(self.world, parse_store(gone), gone).facts
        return {f"{pod['metadata']['namespace']}/{pod['metadata']['name']}" for pod in facts.pods}

    def entries(self, namespace: str = "team") -> set[str]:
        """Namespaces of those whom the nodes of the store `s` there are told of."""
        found = self.seen.get("StateStore", namespace, "s")
        assert found is not None
        return {
            f"{kind} {place}/{name}" for kind, place, name in declarations_of(self.world, parse_store(found)).entries
        }


def test_a_job_sees_its_store_and_its_own_secrets() -> None:
    """And the CA of its store in place of one beside it, where a store has the same name."""
    cluster = Cluster()
    found = surroundings(cluster.world, parse_compute(cluster.job("lab", **FAR)), "Compute")
    assert found[Ref("StateStore", "s")]["metadata"]["namespace"] == "team"
    assert found[Ref("Meta", "s")]["metadata"]["namespace"] == "team"
    assert found[Ref("Secret", "s-ca")]["metadata"]["labels"] == {"at": "team"}
    assert found[Ref("Secret", "x-spark")]["metadata"]["labels"] == {"at": "lab"}
    near = surroundings(cluster.world, parse_compute(cluster.job("lab", "near")))
    assert near[Ref("StateStore", "s")]["metadata"]["namespace"] == "lab"
    assert near[Ref("Secret", "s-ca")]["metadata"]["labels"] == {"at": "lab"}


def test_nodes_are_told_of_granted_jobs_elsewhere_and_of_no_others() -> None:
    """Beside the clients; a client and a job of one name are two."""
    cluster = Cluster()
    cluster.put_at("lab", client_body("x", storeRef={"name": "s", "namespace": "team"}))
    for namespace in ("lab", "attic"):
        cluster.job(namespace, **FAR)
    cluster.job("team", "near")
    cluster.job("lab", "near")
    assert cluster.entries() == {"StateStoreClient lab/x", "Compute lab/x"}
    assert cluster.entries("lab") == set()
    admission = admission_of(cluster.world, parse_compute(cluster.job("attic", **FAR)))
    assert admission.store is not None
    assert set(admission.files) == {"s"}


def test_a_deleted_job_is_declared_until_its_driver_is_gone() -> None:
    cluster = Cluster()
    job = cluster.job("lab", **FAR)
    pod = cluster.driver_of(job)
    cluster.put_at("lab", job, deletionTimestamp=at(0))
    assert cluster.entries() == {"Compute lab/x"}
    cluster.seen.drop("Pod", pod)
    assert cluster.entries() == set()


def test_pods_of_namespaces_without_a_grant_keep_no_store() -> None:
    """A store waits for the pods of its jobs, wherever they are, and for nobody else's."""
    cluster = Cluster()
    for namespace in ("lab", "attic"):
        cluster.driver_of(cluster.job(namespace, **FAR))
    cluster.driver_of(cluster.job("lab", "near"))
    cluster.driver_of(cluster.job("team", "near"))
    assert cluster.pods_of_store("team") == {"lab/x-driver", "team/near-driver"}
    assert cluster.pods_of_store("lab") == {"lab/near-driver"}


def test_a_store_counts_its_jobs_elsewhere() -> None:
    cluster = Cluster()
    for namespace in ("lab", "attic"):
        cluster.job(namespace, **FAR)
    cluster.job("team", "near")
    found = cluster.seen.get("StateStore", "team", "s")
    assert found is not None
    paused = {**found, "spec": {**found["spec"], "paused": True}}
    state_store = parse_store(paused)
    plan = STATE_STORE.plan(state_store, STATE_STORE.observe(cluster.world, state_store, paused), cluster.now)
    assert plan.status["compute"]["total"] == 2


def test_a_job_and_its_store_wake_each_other() -> None:
    """And not the store of that name beside the job."""
    cluster = Cluster()
    job, key = cluster.job("lab", **FAR), Key("Compute", "lab", "x")
    found = cluster.seen.get("StateStore", "team", "s")
    assert found is not None
    assert key in concerned_keys(cluster.seen, "StateStore", found)
    assert Key("Meta", "team", "s") in concerned_keys(cluster.seen, "Compute", job)
    assert Key("StateStore", "lab", "s") not in concerned_keys(cluster.seen, "Compute", job)
    other = cluster.seen.get("StateStore", "lab", "s")
    assert other is not None
    assert key not in concerned_keys(cluster.seen, "StateStore", other)


def test_jobs_of_one_store_know_each_other_across_namespaces() -> None:
    """As far as the store lets them in."""
    cluster = Cluster()
    jobs = [cluster.job("lab", **FAR), cluster.job("attic", **FAR), cluster.job("team", "near")]
    cluster.job("lab", "near")
    seen = []
    for job in jobs:
        facts = COMPUTE.observe(cluster.world, parse_compute(job), job).facts
        seen.append({f"{one['metadata']['namespace']}/{one['metadata']['name']}" for one in facts.elsewhere})
    assert seen == [{"team/near"}, set(), {"lab/x"}]
