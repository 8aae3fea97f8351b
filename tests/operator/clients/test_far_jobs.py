"""A job in another namespace than its store: it needs the grant, is told to the nodes, and mixes up with nobody."""

from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from support.operator.computes import DEFAULTS, NOW, World, at, body, compute, store
from tussock.meta.node.auth.clients.file import read_clients
from tussock.operator.manifests.bucket_access import bucket_secret
from tussock.operator.manifests.certificates import certificate_secret, job_certificate
from tussock.operator.manifests.compute.job import compute_manifests
from tussock.operator.manifests.meta_config import clients_file
from tussock.operator.manifests.network import network_policies
from tussock.operator.manifests.transport_security import job_uri, role_patterns
from tussock.operator.planning.clients.declarations import declare, place_of
from tussock.operator.planning.clients.grants import Admission
from tussock.operator.planning.compute.facts import ComputeFacts
from tussock.operator.planning.compute.plan import plan_compute
from tussock.operator.planning.words.model import Apply, Delete, Emit, Hold, Manifest, Observed, Plan, Ref, Release
from tussock.operator.probes.marker import is_of_store
from tussock.operator.resources.common import InvalidResource
from tussock.operator.resources.compute import parse_compute
from tussock.operator.resources.meta import parse_meta
from tussock.operator.resources.store import parse_store

GRANT = {"allowedNamespaces": ["lab"]}
FAR = {"storeRef": {"name": "s", "namespace": "team"}, "metadata": {"namespace": "lab"}}
GCS = {"objectStore": {"gcs": {"bucket": "states", "credentialsSecret": {"name": "gcs", "key": "key.json"}}}}


class FarWorld(World):
    """A job in `lab` of the store `s` in `team`, and the clients file of the store's one Meta."""

    def __init__(self, **store_spec: Any) -> None:
        super().__init__(compute(**FAR), **{**GRANT, **store_spec})
        self.elsewhere: list[Manifest] = []
        self.has_runs = True
        self.file = ""
        self.write()

    @property
    def admission(self) -> Admission:
        found = self.others.get(Ref("StateStore", "s"))
        if found is None:
            return Admission(None)
        try:
            state_store = parse_store(found)
        except InvalidResource:
            return Admission(None)
        jobs = [parse_compute(self.job)]
        if jobs[0].is_being_deleted and not self.pods:
            jobs = []
        return Admission(state_store, declare(state_store, jobs), {"s": self.file})

    def write(self) -> None:
        """What the Meta's plan does: bring its file up to date."""
        entries = tuple(self.admission.declarations.entries.values())
        self.file = clients_file(parse_meta(self.others[Ref("Meta", "s")]), entries)

    def plan(self) -> Plan:
        facts = ComputeFacts(
            DEFAULTS,
            self.application,
            settled=self.settled,
            admission=self.admission,
            elsewhere=self.elsewhere,
        )
        return plan_compute(parse_compute(self.job), Observed(facts, self.children, self.others), self.now)

    def allow(self, *namespaces: str) -> None:
        """The store's owner changes its grants."""
        self.others[Ref("StateStore", "s")]["spec"]["allowedNamespaces"] = list(namespaces)

    def start(self) -> "FarWorld":
        """Let the job run."""
        for _ in range(3):
            self.settle()
            for name in self.pods:
                self.run(name)
        assert self.pods == ["x-driver"]
        assert self.reason() == ("True", "Ready")
        return self


def applied(plan: Plan) -> list[Manifest]:
    return [action.manifest for action in plan.actions if isinstance(action, Apply)]


def test_a_granted_job_runs_in_its_namespace_at_the_store_of_the_other() -> None:
    """All that is made is there; the driver calls the store's nodes, and knows them by the store's name."""
    world = FarWorld()
    made = [one for one in applied(world.plan()) if one["kind"] != "Pod"]
    assert made
    assert {one["metadata"]["namespace"] for one in made} == {"lab"}
    world.start()
    env = {one["name"]: one.get("value") for one in world.driver()["spec"]["containers"][0]["env"]}
    assert env["TUSSOCK_STORE"] == "tussock://s-meta.team.svc:7370"
    assert env["TUSSOCK_TLS_SERVER_NAME"] == "s-meta.team.svc"
    volumes = world.driver()["spec"]["volumes"]
    assert sorted(one["secret"]["secretName"] for one in volumes if "secret" in one) == ["x-driver-tls", "x-spark"]


def test_without_a_grant_nothing_is_started_and_nothing_is_told() -> None:
    """The same with a store that does not allow it as without one."""
    world = FarWorld(allowedNamespaces=["la"])
    plan = world.plan()
    assert plan.actions == (Hold(),)
    world.job["status"] = plan.status
    assert world.reason() == ("False", "StoreNotGranted")
    assert world.reason("Degraded") == ("True", "StoreNotGranted")
    assert "has to add lab to its spec.allowedNamespaces" in world.message()
    del world.others[Ref("StateStore", "s")]
    absent = world.plan()
    assert absent.actions == (Hold(),)
    assert absent.status == plan.status


def test_a_grant_that_is_taken_back_stops_the_driver_at_once() -> None:
    """The status says that the nodes are being told, and then that there is no grant; with one the job goes on."""
    world = FarWorld().start()
    world.allow()
    plan = world.plan()
    assert plan.actions == (Hold(), Delete(Ref("Pod", "x-driver")))
    assert plan.again_seconds == 1.0
    world.settle()
    assert world.reason() == ("False", "Reconciling")
    assert "allows this namespace no more; the operator is telling its nodes of it" in world.message()
    world.others[Ref("StateStore", "s")]["spec"]["paused"] = True
    world.settle()
    assert "but it is paused: until its spec.paused is false, its nodes are not told of it" in world.message()
    world.others[Ref("StateStore", "s")]["spec"]["paused"] = False
    world.write()
    assert "compute/lab/x" not in world.file
    world.settle()
    assert world.reason() == ("False", "StoreNotGranted")
    assert world.pods == []
    world.allow("lab")
    world.settle()
    assert world.pods == []
    world.write()
    world.start()


def test_a_driver_starts_when_the_nodes_know_of_it() -> None:
    """Before, its first call would be refused. One that runs is not stopped while another Meta is told."""
    world = FarWorld()
    known, world.file = world.file, ""
    assert [one for one in applied(world.plan()) if one["kind"] == "Pod"] == []
    assert world.plan().again_seconds == 1.0
    world.settle()
    assert world.reason() == ("False", "Reconciling")
    assert "The operator is telling the nodes of Meta s about this job." in world.message()
    world.file = known
    world.start()
    world.file = ""
    world.settle()
    assert world.pods == ["x-driver"]
    assert world.reason() == ("True", "Ready")


def test_a_store_that_cannot_be_read_stops_no_driver() -> None:
    """Nobody knows whether its grant is gone, and nobody is told that there is such a store."""
    world = FarWorld().start()
    world.others[Ref("StateStore", "s")]["spec"]["objectStore"] = 5
    world.settle()
    assert world.pods == ["x-driver"]
    assert world.reason() == ("False", "StoreNotGranted")


@pytest.mark.parametrize(
    ("spec", "told"),
    [
        ({"tls": {"mode": "none"}}, "spec.tls.mode of StateStore s is none"),
        ({"tls": {"mode": "secret", "secretName": "own"}}, "spec.tls.mode of StateStore s is secret"),
        ({"tls": {"mode": "certManager", "issuerRef": {"name": "i", "kind": "Issuer"}}}, "Use a ClusterIssuer"),
        (
            {"objectStore": {"volume": {"size": "1Gi"}}},
            "is on a volume, which only pods beside it can mount",
        ),
    ],
    ids=["no-tls", "tls-by-the-user", "issuer-of-one-namespace", "volume"],
)
def test_a_store_that_cannot_serve_elsewhere_says_why(spec: dict[str, Any], told: str) -> None:
    """Nothing is started, and nobody waits for what never comes."""
    world = FarWorld(**spec)
    plan = world.plan()
    assert plan.actions == (Hold(),)
    world.job["status"] = plan.status
    assert world.reason() == ("False", "ClientRefused")
    assert told in world.message()


def test_secrets_of_the_bucket_are_not_copied() -> None:
    """Where pods mount one, the job waits until somebody has put it beside it; where nodes hand keys out, for none."""
    world = FarWorld(**GCS)
    assert bucket_secret(parse_store(store(**GCS))) == ("gcs", {"GOOGLE_SERVICE_ACCOUNT_KEY": "key.json"})
    world.settle()
    assert world.reason() == ("False", "SecretNotFound")
    assert "There is no Secret gcs in namespace lab, from which the job takes its credentials" in world.message()
    assert world.plan().again_seconds == 5.0
    assert all(one["kind"] != "Secret" for one in applied(world.plan()))
    world.others[Ref("Secret", "gcs")] = {"kind": "Secret", "metadata": {"name": "gcs"}, "data": {"key": ""}}
    world.settle()
    assert world.reason() == ("False", "SecretKeyMissing")
    world.others[Ref("Secret", "gcs")]["data"] = {"key.json": ""}
    world.start()


def test_a_deleted_job_goes_when_it_has_ended_and_no_node_lets_it_in() -> None:
    """Its last batch still commits, so its declaration stays until its driver is gone."""
    world = FarWorld().start()
    world.job["metadata"]["deletionTimestamp"] = at(0)
    world.write()
    assert "compute/lab/x" in world.file
    assert Delete(Ref("Pod", "x-driver")) in world.plan().actions
    assert Release() not in world.plan().actions
    world.children = {ref: one for ref, one in world.children.items() if ref.kind != "Pod"}
    plan = world.plan()
    assert plan.actions == ()
    assert plan.again_seconds == 1.0
    assert "are told that compute/lab/x is let in no more" in plan.status["conditions"][0]["message"]
    world.write()
    assert world.plan().actions == (Release(),)


def test_a_deleted_job_waits_for_nodes_up_to_the_deadline() -> None:
    """As of a paused store, whose file nobody may change; and for nothing of a store that goes, or is gone."""
    world = FarWorld()
    world.job["metadata"]["deletionTimestamp"] = at(0)
    world.others[Ref("StateStore", "s")]["spec"]["paused"] = True
    assert world.plan().actions == ()
    later = world.now + timedelta(seconds=181)
    world.now = later
    event, end = world.plan().actions
    assert isinstance(event, Emit)
    assert (event.type, event.reason, end) == ("Warning", "DeletionGaveUp", Release())
    world.now = NOW
    world.others[Ref("StateStore", "s")]["metadata"]["deletionTimestamp"] = at(0)
    assert world.plan().actions == (Release(),)
    del world.others[Ref("StateStore", "s")]
    assert world.plan().actions == (Release(),)


def test_a_store_that_is_deleted_stops_its_jobs_elsewhere() -> None:
    world = FarWorld().start()
    world.others[Ref("StateStore", "s")]["metadata"]["deletionTimestamp"] = at(0)
    assert Delete(Ref("Pod", "x-driver")) in world.plan().actions


def test_the_service_lets_a_job_in_by_its_declaration_alone(tmp_path: Path) -> None:
    """No pattern of a role fits its certificate, and its namespace is in it; a job beside the store is not declared."""
    state_store, far = parse_store(store(**GRANT)), parse_compute(compute(**FAR))
    near = parse_compute(compute(storeRef={"name": "s", "namespace": "team"}))
    (uri,) = job_certificate(far, state_store).uris
    assert uri == job_uri(state_store, far) == "tussock://team/s/job/lab/x"
    assert job_uri(state_store, near) == "tussock://team/s/writer/x"
    patterns = [one.removeprefix("URI:") for names in role_patterns(state_store).values() for one in names]
    assert not any(uri == one or (one.endswith("*") and uri.startswith(one[:-1])) for one in patterns)
    file = tmp_path / "clients.toml"
    entries = declare(state_store, [far]).entries
    assert list(entries) == [place_of(far)]
    file.write_text(clients_file(parse_meta(body("Meta", "s", {"storeRef": {"name": "s"}})), tuple(entries.values())))
    (client,) = read_clients([str(file)]).all().values()
    assert (client.name, client.certificates) == ("compute/lab/x", (f"URI:{uri}",))


def test_names_of_the_longest_kind_are_still_names(tmp_path: Path) -> None:
    """Of the client, of the folder in the bucket, and of the objects there when the store is deleted."""
    longest = {"namespace": "y" * 63}
    far = parse_compute(compute("x" * 40, **{**FAR, "metadata": longest}))
    state_store = parse_store(store(allowedNamespaces=["y" * 63]))
    file = tmp_path / "clients.toml"
    entries = declare(state_store, [far]).entries
    file.write_text(clients_file(parse_meta(body("Meta", "s", {"storeRef": {"name": "s"}})), tuple(entries.values())))
    assert len(read_clients([str(file)]).all()) == 1
    for path in ("program/app.py", "events/eventlog_v2_app/appstatus_app"):
        assert is_of_store(f"applications/{far.folder}/{path}")


def labels_of(manifests: tuple[Manifest, ...]) -> list[dict[str, str]]:
    return [one["metadata"]["labels"] for one in manifests]


def test_the_labels_of_a_job_elsewhere_fit_no_store_of_its_namespace() -> None:
    """Neither a selector nor a network policy of a store of the same name there, and each of the other store's."""
    far = parse_compute(compute(**FAR))
    state_store = parse_store(store(**GRANT))
    job = compute_manifests(far, state_store, ["s-meta.team.svc:7370"], DEFAULTS)
    for found in [*labels_of(job.manifests), job.template["metadata"]["labels"]]:
        assert not found.keys() & {"tussock.dev/store", "app.kubernetes.io/instance", "tussock.dev/client"}
        assert found["tussock.dev/far-store"] == "s"
        assert found["tussock.dev/far-store-namespace"] == "team"
    files = dict.fromkeys(("ca.crt", "tls.crt", "tls.key"), "")
    secret = certificate_secret(far, "s", job_certificate(far, state_store), files)
    assert "tussock.dev/store" not in secret["metadata"]["labels"]
    near = parse_compute(compute(storeRef={"name": "s", "namespace": "team"}))
    for found in labels_of(compute_manifests(near, state_store, ["s-meta.team.svc:7370"], DEFAULTS).manifests):
        assert found["tussock.dev/store"] == "s"


@pytest.mark.parametrize("allowed", [[], ["lab"]])
def test_network_policies_let_jobs_of_allowed_namespaces_in(allowed: list[str]) -> None:
    """To the service and a managed bucket, and not to the page; without a grant nobody of elsewhere."""
    pods = {"matchLabels": {"tussock.dev/far-store": "s", "tussock.dev/far-store-namespace": "team"}}
    names = {"key": "kubernetes.io/metadata.name", "operator": "In", "values": ["lab"]}
    far = {"namespaceSelector": {"matchExpressions": [names]}, "podSelector": pods}
    rules = {
        (policy["metadata"]["name"], rule["ports"][0]["port"]): rule["from"]
        for policy in network_policies(parse_store(store(allowedNamespaces=allowed)), DEFAULTS)
        for rule in policy["spec"]["ingress"]
    }
    assert {place for place, peers in rules.items() if far in peers} == (
        {("s-meta", 7370), ("s-minio", 9000)} if allowed else set()
    )


def test_two_jobs_of_one_store_have_their_own_folders_in_its_bucket() -> None:
    """Though they have one name: the event logs of one are not the other's to delete."""
    asked = {"eventLog": {}, "application": {"object": {"name": "a.py", "sha256": "0" * 64}}}
    folders = []
    for spec in ({}, FAR):
        job = parse_compute(compute(**{**asked, **spec}))
        template = compute_manifests(job, parse_store(store(**GRANT)), ["s:1"], DEFAULTS).template
        env = {one["name"]: one.get("value") for one in template["spec"]["containers"][0]["env"]}
        assert env["TUSSOCK_PROGRAM"] == f"applications/{env['TUSSOCK_EVENT_LOG']}/program/a.py"
        folders.append(env["TUSSOCK_EVENT_LOG"])
    assert folders == ["x", "x_lab"]


@pytest.mark.parametrize("older", ["here", "there"])
def test_a_writer_id_is_one_of_the_store_wherever_the_jobs_are(older: str) -> None:
    """The older job keeps it; a job of this namespace that writes to another store of the same name has its own."""
    world = FarWorld()
    world.others[Ref("Compute", "y")] = compute("y", writerId="x", metadata={"namespace": "lab"})
    rival = compute("x", metadata={"creationTimestamp": at(-10000 if older == "there" else -8000)})
    world.elsewhere = [rival]
    world.settle()
    if older == "here":
        assert world.pods
        return
    assert world.reason() == ("False", "WriterIdInUse")
    assert "Compute team/x commits to StateStore s as 'x'" in world.message()
    assert world.pods == []


def test_a_service_stays_beside_its_store() -> None:
    """It knows its clients by certificates that are there."""
    spec = {**FAR, "service": {"module": "bank:make"}, "application": None}
    with pytest.raises(InvalidResource, match=r"Compute lab/x is a service of a store in namespace team; .*create it"):
        parse_compute(compute(**spec))
    beside = {**spec, "storeRef": {"name": "s", "namespace": "lab"}}
    assert not parse_compute(compute(**beside)).is_far
