"""Statuses match the schema: a plan writes no key that the schema lacks, and writes each of its keys.

The API server refuses a whole status for one unknown key, and a key that is never written is an empty promise to
users.
"""

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest
import yaml

from support.operator.backups.copy_case import CopyCase
from support.operator.cluster_in_memory import cluster_of
from support.operator.computes import DEFAULTS, NOW, World, at, body, compute, conditions, store
from support.operator.process import Objects, with_api
from support.operator.services.service_world import ServiceWorld, service
from tussock.operator.cluster.api import Api
from tussock.operator.cluster.errors import ApiRefused
from tussock.operator.manifests.meta import meta_manifests
from tussock.operator.planning.backup import BackupFacts, backup_id, backup_name, plan_backup
from tussock.operator.planning.clients.plan import ClientFacts, plan_client
from tussock.operator.planning.compactor import CompactorFacts, plan_compactor
from tussock.operator.planning.compute.facts import ComputeFacts
from tussock.operator.planning.compute.plan import plan_compute
from tussock.operator.planning.meta import MetaFacts, plan_meta
from tussock.operator.planning.store import StoreFacts, plan_store
from tussock.operator.planning.words.facts import BackupsFact, BucketFact, DriverFact, HeldBackup, PlatformFact
from tussock.operator.planning.words.model import Observed, Ref, ref_of
from tussock.operator.resources.backup import parse_backup
from tussock.operator.resources.client import parse_client
from tussock.operator.resources.compactor import parse_compactor
from tussock.operator.resources.compute import parse_compute
from tussock.operator.resources.meta import parse_meta
from tussock.operator.resources.store import parse_store

CRDS = Path(__file__).resolve().parents[3] / "crds"
LED = PlatformFact(
    "", "0.1.0", "10.0.0.2:7370", 4, 17, 1763725000000, slots=2, tasks=1, quarantined_ssts=1, lost_rows=5, log_format=7
)
Status = Mapping[str, Any]


def status_schema(kind: str) -> dict[str, Any]:
    """The schema of a kind's status."""
    crd = yaml.safe_load((CRDS / f"{kind.lower()}s.yaml").read_text(encoding="utf-8"))
    (version,) = crd["spec"]["versions"]
    found: dict[str, Any] = version["schema"]["openAPIV3Schema"]["properties"]["status"]
    return found


def keys_of_schema(schema: Mapping[str, Any], path: str = "") -> Iterator[str]:
    for name, part in schema.get("properties", {}).items():
        yield f"{path}.{name}"
        yield from keys_of_schema(part.get("items", part), f"{path}.{name}")


def keys_of(value: Any, path: str = "") -> Iterator[str]:
    if isinstance(value, list | tuple):
        for entry in value:
            yield from keys_of(entry, path)
    elif isinstance(value, Mapping):
        for name, part in value.items():
            yield f"{path}.{name}"
            yield from keys_of(part, f"{path}.{name}")


def statuses_of_stores() -> Iterator[Status]:
    """Statuses of a store that serves, and of one that began with a backup."""
    meta = body("Meta", "s", {"storeRef": {"name": "s"}})
    told = {"version": "0.1.0", "leader": "s-meta-1", "committedEpoch": 7, "committedTime": at(0), "replicas": 2}
    told |= {"quarantinedSsts": 1, "lostRows": 5, "outsideEndpoint": "tussock://meta.example:7370"}
    meta["status"].update(told)
    one = store(objectStore={"s3": {"bucket": "b", "region": "x"}}, restoreFrom={"backup": "nightly"})
    one["status"] = {"restoredFrom": "nightly-1", "clonedFrom": "t"}
    facts = StoreFacts(DEFAULTS, {"Meta": {}}, bucket=BucketFact(None), holds_prefix=True, certificates_expire=at(9000))
    own = parse_store(store(objectStore={"managed": {"image": "minio:1"}}))
    yield plan_store(own, Observed(StoreFacts(DEFAULTS, {}, disk_used_percent=12), {}, {}), NOW).status
    yield plan_store(parse_store(one), Observed(facts, {}, {ref_of(meta): meta}), NOW).status
    meta["status"]["pendingImage"] = "registry.example/tussock-node:next"
    yield plan_store(parse_store(one), Observed(facts, {}, {ref_of(meta): meta}), NOW).status


def statuses_of_metas() -> Iterator[Status]:
    """Statuses of a Meta with a leader, and of one that cannot be asked any more."""
    outside = {"type": "NodePort", "host": "nodes.example"}
    spec = {"storeRef": {"name": "s"}, "replicas": 2, "outside": outside}
    parent, one = parse_store(store(tls={"mode": "managed"})), body("Meta", "s", spec)
    made = meta_manifests(parse_meta(one), parent, DEFAULTS).manifests
    for one_made in made:
        if one_made["metadata"]["name"] == "s-meta-outside-0":
            one_made["spec"]["ports"][0]["nodePort"] = 30400
    pod = {"kind": "Pod", "metadata": {"name": "s-meta-1"}, "status": {"podIP": "10.0.0.2"}}
    children = {ref_of(manifest): manifest for manifest in [*made, pod]}
    others = {Ref("StateStore", "s"): store()}
    for platform in (LED, PlatformFact("no route.")):
        observed = Observed(MetaFacts(parent, DEFAULTS, platform), children, others)
        one["status"] = plan_meta(parse_meta(one), observed, NOW).status
        yield one["status"]
    yield status_that_waits("Meta")


def statuses_of_compactors() -> Iterator[Status]:
    """Statuses of a compactor without a workload, and with one."""
    others = {Ref("StateStore", "s"): store()}
    facts = CompactorFacts(parse_store(store()), DEFAULTS, {"s": True}, LED)
    one = parse_compactor(body("Compactor", "s", {"storeRef": {"name": "s"}}))
    first = plan_compactor(one, Observed(facts, {}, others), NOW)
    yield first.status
    children = {ref_of(found.manifest): found.manifest for found in first.actions if hasattr(found, "manifest")}
    yield plan_compactor(one, Observed(facts, children, others), NOW).status
    yield status_that_waits("Compactor")


def statuses_of_computes() -> Iterator[Status]:
    """Statuses of a stream that runs, has committed and fails; of a batch by schedule; and of a service in trouble."""
    stream = World(compute(executor={"minReplicas": 1, "maxReplicas": 3, "targetLagSeconds": 9}))
    yield stream.settle().status
    stream.run()
    facts = ComputeFacts(
        DEFAULTS,
        driver=DriverFact(7, 3, 1763725000000, "a" * 64, 12, 2, "Streams are late."),
        settled=stream.settled,
        certificate_expires=at(9000),
    )
    yield plan_compute(parse_compute(stream.job), Observed(facts, stream.children, stream.others), NOW).status
    stream.after(10).end(1, message="Boom\n\nTraceback")
    yield stream.settle().status
    batch = World(compute(mode="Batch", schedule="0 * * * *", metadata={"creationTimestamp": at(-60)}))
    yield batch.settle().status
    batch.job["spec"]["restartPolicy"] = {"type": "Never"}
    batch.run()
    batch.after(10).end(1, message="Boom\n\nTraceback\ncommitted epoch=7 batch=3 ms=1763725000000")
    yield batch.settle().status
    served = ServiceWorld(service(workers=1)).serve(1)
    served.say(trouble="no broker")
    yield served.settle().status


def statuses_of_backups() -> Iterator[Status]:
    """Statuses of a backup by schedule, with a backup of the last time, and of one that was copied and read."""
    made = body("StateStoreBackup", "nightly", {"storeRef": {"name": "s"}, "schedule": "0 * * * *"})
    backup = parse_backup(made)
    name = backup_name(backup, NOW)
    held = HeldBackup(name, backup_id(backup, name), 7, 1000, int(NOW.timestamp() * 1000))
    facts = BackupFacts(parse_store(store()), True, BackupsFact((held,)))
    yield plan_backup(backup, Observed(facts, {}, {Ref("StateStore", "s"): store()}), NOW).status
    copied = CopyCase(verify=True)
    copied.settle()
    yield copied.succeed().status


def status_that_waits(kind: str) -> Status:
    """The status where another image waits for approval."""
    cluster = cluster_of("a", 1, meta_image="")
    cluster.edit("StateStore", "a", upgrade={"mode": "Approve"})
    for image in (None, "registry.example/tussock-node:next"):
        if image is not None:
            cluster.begin(cluster.world.defaults._replace(node_image=image))
        for _ in range(8):
            cluster.look(cluster.keys())
            for found in list(cluster.seen.all_of("Deployment")):
                cluster.advance("Deployment", found["metadata"]["name"])
        cluster.look(cluster.keys())
    status: Status = cluster.get(kind, "a")["status"]
    return status


def statuses_of_clients() -> Iterator[Status]:
    """The status of a client that may call."""
    client = parse_client(
        body("StateStoreClient", "x", {"storeRef": {"name": "s"}, "role": "reader", "serviceAccounts": ["x"]})
    )
    secret = {"kind": "Secret", "metadata": {"name": "x-client-tls", "ownerReferences": [{"uid": client.metadata.uid}]}}
    facts = ClientFacts(parse_store(store()), files={"s": ""}, certificate_expires=at(9000))
    others = {Ref("StateStore", "s"): store(), Ref("Meta", "s"): body("Meta", "s", {}), ref_of(secret): secret}
    yield plan_client(client, Observed(facts, {}, others), NOW).status


WRITTEN = {
    "StateStore": statuses_of_stores,
    "Meta": statuses_of_metas,
    "Compactor": statuses_of_compactors,
    "Compute": statuses_of_computes,
    "StateStoreBackup": statuses_of_backups,
    "StateStoreClient": statuses_of_clients,
}


@pytest.mark.parametrize("kind", WRITTEN)
def test_plans_write_exactly_the_keys_of_the_schema(kind: str) -> None:
    written = {key for status in WRITTEN[kind]() for key in keys_of(status)}
    assert written == set(keys_of_schema(status_schema(kind)))


def test_a_status_with_an_unknown_key_is_refused(objects: Objects, monkeypatch: pytest.MonkeyPatch) -> None:
    """With definitions older than the operator, the message says what to do, and does not blame the server.

    So no test of a real API server passes over such a key.
    """
    objects.apply({**store(), "metadata": {"name": "s"}, "status": {}})
    status = {"url": "s3://b", "conditions": conditions(), "nextKey": 1}

    async def test(api: Api) -> None:
        manifest = {"apiVersion": "tussock.dev/v1alpha1", "kind": "StateStore", "metadata": {"name": "s"}}
        with pytest.raises(ApiRefused, match=r"\.status\.nextKey: field not declared in schema.*apply crds/"):
            await api.apply({**manifest, "status": status}, objects.namespace, "status")

    with_api(objects, monkeypatch, test)
    assert "url" not in (objects.get("StateStore", "s") or {}).get("status", {})
