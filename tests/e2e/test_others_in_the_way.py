"""Foreign objects in a store's place: none of them is harmed, and the store says what to do.

Objects with the names of children, a quota, a second store on one prefix, and the store's own former self.
"""

import time
from collections.abc import Iterator
from typing import Any

import pytest

from cluster.view.client import Cluster
from cluster.view.pods import secret, service
from support.kubernetes.bucket_users import Bucket, bucket_in

WATCHED_SECONDS = 20
WRITES_MAX = 40
"""Within `WATCHED_SECONDS`: the compactor, and ever rarer tries of what is refused. Once there were 814."""


@pytest.fixture(scope="module")
def bucket(cluster: Cluster, operator: str, image_names: dict[str, str]) -> Iterator[Bucket]:
    """A namespace with a MinIO and its bucket."""
    with cluster.namespace("others") as namespace, bucket_in(cluster, namespace, image_names) as found:
        yield found


@pytest.fixture
def stranger(bucket: Bucket) -> Iterator[Bucket]:
    """Another user of the cluster, with stores in the same bucket."""
    with bucket.cluster.namespace("stranger") as namespace:
        found = bucket.elsewhere(namespace)
        yield found
        found.delete_stores()


def of_alice() -> list[dict[str, Any]]:
    """Earlier objects with the names of children of the stores `cart` and `basket`."""
    labels = {"app": "alices"}
    pods = {"metadata": {"labels": labels}, "spec": {"containers": [{"name": "main", "image": "localhost/none"}]}}
    config_map = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "basket-meta"}, "data": {"mine": "1"}}
    account = {"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": "basket-meta"}}
    deployment = {"apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": "basket-meta"}}
    spec = {"replicas": 0, "selector": {"matchLabels": labels}, "template": pods}
    found = [
        secret("cart-ca", {"tls.key": "of Alice alone", "note": "keep"}),
        service("basket-meta", 80),
        config_map,
        account,
        {**deployment, "spec": spec},
    ]
    return [{**one, "metadata": {**one["metadata"], "labels": {"owner": "alice"}}} for one in found]


def as_they_are(bucket: Bucket, objects: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """The objects as the API server has them, without fields that Kubernetes itself changes."""
    found = [bucket.get(f"{one['kind'].lower()}/{one['metadata']['name']}") for one in objects]
    for one in found:
        one.pop("status", None)
        for field in ("managedFields", "resourceVersion"):
            one["metadata"].pop(field)
    return found


def test_foreign_objects_stay_as_they_are(cluster: Cluster, bucket: Bucket) -> None:
    """Also when the stores whose children have their names are deleted; without them the stores begin."""
    theirs = of_alice()
    cluster.apply(*theirs, namespace=bucket.namespace)
    cluster.wait_ready("deployment/basket-meta", namespace=bucket.namespace)
    before = as_they_are(bucket, theirs)
    stores = [
        bucket.store("cart", deletionPolicy="Delete"),
        bucket.store("basket", tls={"mode": "none"}, deletionPolicy="Delete"),
    ]

    def apply_in_vain() -> None:
        cluster.apply(*stores, namespace=bucket.namespace)
        bucket.await_reason("tss/cart", "NameInUse", "Secret cart-ca", status="False")
        for what in ("tss/basket", "tsm/basket"):
            bucket.await_reason(what, "NameInUse", "basket-meta", status="False")

    with cluster.phase("others: names of children in use, to the messages; deleted"):
        apply_in_vain()
        assert as_they_are(bucket, theirs) == before
        bucket.kubectl("delete", "tss/cart", "tss/basket", "--timeout=120s", seconds=150)
    assert as_they_are(bucket, theirs) == before
    apply_in_vain()
    assert as_they_are(bucket, theirs) == before
    with cluster.phase("others: names free, to two stores that serve"):
        bucket.kubectl("delete", *(f"{one['kind'].lower()}/{one['metadata']['name']}" for one in theirs))
        for store in ("cart", "basket"):
            bucket.await_reason(f"tss/{store}", "Ready", status="True")


def test_a_quota_is_named_and_causes_few_writes(cluster: Cluster, operator: str, stranger: Bucket) -> None:
    """The message names the quota, next to nothing is written meanwhile, and without it the store begins by itself."""
    if cluster.node is None:
        pytest.skip("on another cluster there is no audit log")
    quota = {"apiVersion": "v1", "kind": "ResourceQuota", "metadata": {"name": "few"}}
    cluster.apply({**quota, "spec": {"hard": {"services": "1"}}}, namespace=stranger.namespace)
    cluster.wait_for("a quota that counts", lambda: stranger.get("resourcequota/few").get("status", {}).get("used"))
    cluster.apply(stranger.store("tight", compactor={}), namespace=stranger.namespace)
    for what in ("tss/tight", "tsm/tight"):
        stranger.await_reason(what, "ApplyRefused", "exceeded quota: few", status="False")
    before, reasons = writes(cluster, operator, stranger.namespace), set()
    until = time.monotonic() + WATCHED_SECONDS
    while time.monotonic() < until:
        reasons |= {stranger.condition(what).reason for what in ("tsm/tight", "tss/tight")}
        time.sleep(0.2)
    written = writes(cluster, operator, stranger.namespace)[len(before) :]
    print(f"written in {WATCHED_SECONDS} s:", *written, sep="\n  ")
    assert reasons == {"ApplyRefused"}
    assert len(written) <= WRITES_MAX, written
    with cluster.phase("others: quota lifted, to a store that serves"):
        stranger.kubectl("delete", "resourcequota/few")
        stranger.await_reason("tss/tight", "Ready", status="True")


def writes(cluster: Cluster, operator: str, namespace: str) -> list[str]:
    """The operator's writes in a namespace until now, each with its verb."""
    found = [line for line in cluster.audited_writes() if line["objectRef"].get("namespace") == namespace]
    ours = [line for line in found if line["user"]["username"].startswith(f"system:serviceaccount:{operator}:")]
    return [f"{line['verb']} {line['requestURI']}" for line in ours]


def test_the_deletion_of_a_refused_store_touches_nothing(cluster: Cluster, bucket: Bucket, stranger: Bucket) -> None:
    """A store with `deletionPolicy: Delete` on the prefix of another, whose marker is gone, is deleted.

    Story: everything that the first one had in the bucket went with it.
    """
    cluster.apply(bucket.store("first"), namespace=bucket.namespace)
    bucket.await_reason("tss/first", "Ready", status="True")
    kept = bucket.rows("first", to=3)
    marker = "first/tussock-owner"
    before = bucket.objects(remove=marker)
    with cluster.phase("others: a second store on one prefix, to its message; deleted"):
        cluster.apply(stranger.store("first", deletionPolicy="Delete"), namespace=stranger.namespace)
        stranger.await_reason("tss/first", "PrefixInUse", f"{bucket.namespace}/first", status="False")
        # Its owner may have put it back meanwhile, since it looks after it.
        bucket.objects(remove=marker)
        stranger.kubectl("delete", "tss/first", "--timeout=120s", seconds=150)
    data = {name for name in before if name.startswith(("first/log/", "first/sst/", "first/snapshot/"))}
    assert any(name.endswith(".delta") for name in data)
    assert data <= bucket.objects()
    assert bucket.rows("first") == kept
    bucket.await_reason("tss/first", "Ready", status="True")
    assert bucket.rows("first", to=4) != kept
    cluster.wait_for("its marker again", lambda: marker in bucket.objects())


def test_a_lost_namespace_applied_again_has_its_data(cluster: Cluster, bucket: Bucket) -> None:
    """The marker of the former store is in the way, and the message says what to write.

    Its secret goes first, as it may in a namespace that is deleted: then the marker cannot be removed any more.
    """
    with cluster.namespace("lost") as namespace:
        lost = bucket.elsewhere(namespace)
        cluster.apply(lost.store("shop"), namespace=namespace)
        lost.await_reason("tss/shop", "Ready", status="True")
        kept = lost.rows("shop", to=3)
        former = lost.get("tss/shop")["metadata"]["uid"]
        with cluster.phase("others: namespace with a store deleted"):
            lost.kubectl("delete", "secret/keys")
            cluster.kubectl("delete", "namespace", namespace, "--timeout=120s", seconds=150)
        cluster.make_namespace(namespace)
        bucket.elsewhere(namespace)
        with cluster.phase("others: the same manifests again, to the message; adopted, to a store that serves"):
            cluster.apply(lost.store("shop"), namespace=namespace)
            lost.await_reason("tss/shop", "PrefixInUse", f'set spec.adopt: "{former}"', status="False")
            cluster.apply(lost.store("shop", adopt=former), namespace=namespace)
            lost.await_reason("tss/shop", "Ready", status="True")
        assert lost.rows("shop") == kept
        assert lost.rows("shop", to=4) != kept
        lost.delete_stores()
