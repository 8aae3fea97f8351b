"""Obstacles before a store can begin: each has its own reason, and ends without a restart."""

import io
import json
import time

import pytest
from minio import Minio
from minio.credentials.providers import StaticProvider
from minio.minioadmin import MinioAdmin

from support.buckets.minio import BUCKET, MinioServer, free_port
from support.operator.process import PUT_RIGHT_SECONDS, Body, Objects, OperatorProcess, eventually
from support.operator.stores_in_cluster import serving

pytestmark = [pytest.mark.minio, pytest.mark.usefixtures("operator")]


def client_of(minio: MinioServer) -> Minio:
    return Minio(minio.endpoint.removeprefix("http://"), access_key=minio.user, secret_key=minio.password, secure=False)


def secret(name: str, **values: str) -> Body:
    return {"apiVersion": "v1", "kind": "Secret", "metadata": {"name": name}, "stringData": values}


def expect_nothing_started(shared: Objects, name: str, reason: str, *words: str) -> None:
    shared.await_reason("StateStore", name, reason)
    eventually(
        f"a message with {words}", lambda: all(word in shared.ready("StateStore", name)["message"] for word in words)
    )
    assert shared.ready("StateStore", name)["status"] == "False"
    assert shared.get("Meta", name) is None


def test_each_wrong_secret_and_bucket_has_its_reason(store: Body, shared: Objects, minio: MinioServer) -> None:
    """No secret, no key in it, a wrong password, no bucket: each is mended in turn, then the store begins."""
    name = store["metadata"]["name"]
    keys = f"{name}-keys"
    s3 = store["spec"]["objectStore"]["s3"]
    s3["credentialsSecret"]["name"] = keys
    s3["bucket"] = f"{name}-bucket"
    shared.apply(store)
    expect_nothing_started(shared, name, "SecretNotFound", keys, "access-key-id")
    shared.apply(secret(keys, **{"access-key-id": minio.user}))
    expect_nothing_started(shared, name, "SecretKeyMissing", keys, "secret-access-key")
    wrong = "a-wrong-password-that-nobody-may-see"
    shared.apply(secret(keys, **{"access-key-id": minio.user, "secret-access-key": wrong}))
    expect_nothing_started(shared, name, "BucketAccessDenied", "the secret access key is wrong")
    shared.apply(secret(keys, **{"access-key-id": "nobody", "secret-access-key": minio.password}))
    expect_nothing_started(shared, name, "BucketAccessDenied", "does not know the access key id")
    shared.apply(secret(keys, **{"access-key-id": minio.user, "secret-access-key": minio.password}))
    expect_nothing_started(shared, name, "BucketNotFound", f"{name}-bucket")
    client_of(minio).make_bucket(f"{name}-bucket")
    eventually("meta nodes", lambda: shared.get("Deployment", f"{name}-meta"))
    seen = str([shared.get("StateStore", name), shared.events(name), shared.list("Meta")])
    assert wrong not in seen
    assert minio.password not in seen


def test_a_pair_for_readers_is_checked_and_mounted(
    store: Body, shared: Objects, minio: MinioServer, operator: OperatorProcess
) -> None:
    """No Secret of readers, no key in it, an unknown pair, one that may write: each is reported.

    Then meta nodes mount it, and its content appears nowhere.
    """
    name = store["metadata"]["name"]
    readers, password = f"{name}-readers", f"only-for-reading-{name}"
    store["spec"]["objectStore"]["s3"]["readerCredentialsSecret"] = {"name": readers, "secretAccessKeyKey": "password"}
    shared.apply(store)
    field = "spec.objectStore.s3.readerCredentialsSecret"
    expect_nothing_started(shared, name, "SecretNotFound", readers, "access-key-id, password", field)
    shared.apply(secret(readers, **{"access-key-id": "reader"}))
    expect_nothing_started(shared, name, "SecretKeyMissing", readers, "password", field)
    shared.apply(secret(readers, **{"access-key-id": f"reader-{name}", "password": password}))
    expect_nothing_started(shared, name, "BucketAccessDenied", field, "does not know the access key id")
    shared.apply(secret(readers, **{"access-key-id": minio.user, "password": minio.password}))
    expect_nothing_started(shared, name, "ReadersMayWrite", field, "Limit its policy")
    make_reader(minio, f"reader-{name}", password)
    shared.apply(secret(readers, **{"access-key-id": f"reader-{name}", "password": password}))
    eventually("meta nodes", lambda: shared.get("Deployment", f"{name}-meta"))
    pod = shared.get("Deployment", f"{name}-meta")["spec"]["template"]["spec"]
    (mounted,) = [volume["secret"] for volume in pod["volumes"] if volume["name"] == "readers"]
    assert mounted["secretName"] == readers
    assert {item["key"]: item["path"] for item in mounted["items"]} == {
        "access-key-id": "AWS_ACCESS_KEY_ID",
        "password": "AWS_SECRET_ACCESS_KEY",
    }
    seen = [shared.get("StateStore", name), shared.events(name), shared.list("Meta"), shared.list("ConfigMap"), pod]
    assert password not in str(seen)
    assert password not in operator.log()
    assert minio.password not in str(seen)


PASTED = {
    "both-lines-of-a-file": ("AKIAEXAMPLE\nwJalrXUtnFEMI-THE-SECRET", "has several lines"),
    "header": ("AKIAEXAMPLE\r\nX-Amz-Acl: public\r\nTHE-SECRET", "has several lines"),
    "no-ascii": ("ключ-THE-SECRET", "other than ASCII"),
    "unprintable": ("AKIAEXAMPLE\0THE-SECRET", "unprintable"),
    "empty": ("", "is empty"),
    "blank": (" \n", "is empty"),
}


@pytest.mark.parametrize("of_readers", [False, True], ids=["main", "readers"])
@pytest.mark.parametrize(("value", "words"), PASTED.values(), ids=PASTED)
def test_a_secret_that_holds_no_key_is_named_and_not_shown(
    of_readers: bool, value: str, words: str, store: Body, shared: Objects, operator: OperatorProcess
) -> None:
    """Story: both lines of a key file in one value made a header that could not be sent.

    The error repeated it, with key and signature, in the status and in the log.
    """
    name = store["metadata"]["name"]
    s3 = store["spec"]["objectStore"]["s3"]
    field = "readerCredentialsSecret" if of_readers else "credentialsSecret"
    s3[field] = {"name": f"{name}-pasted", "accessKeyIdKey": "the-id"}
    shared.apply(secret(f"{name}-pasted", **{"the-id": value, "secret-access-key": "another-value"}))
    shared.apply(store)
    expect_nothing_started(shared, name, "SecretValueInvalid", f"the-id in Secret {name}-pasted", words)
    seen = str([shared.get("StateStore", name), shared.events(name), shared.list("Meta"), operator.log()])
    for part in ("THE-SECRET", "AKIAEXAMPLE", "another-value", "Signature="):
        assert part not in seen


def test_blanks_around_a_key_are_no_part_of_it(store: Body, shared: Objects, minio: MinioServer) -> None:
    """As `--from-file` leaves them, and the nodes read them."""
    name = store["metadata"]["name"]
    keys = {"access-key-id": f"{minio.user}\n", "secret-access-key": f" {minio.password}\r\n"}
    shared.apply(secret(f"{name}-bucket", **keys))
    shared.apply(store)
    eventually("meta nodes", lambda: shared.get("Deployment", f"{name}-meta"))


def test_no_secret_is_in_the_log(store: Body, shared: Objects, minio: MinioServer, operator: OperatorProcess) -> None:
    name = serving(shared, store)
    assert name in operator.log()
    assert minio.password not in operator.log()


def test_an_endpoint_without_a_server_is_reported(store: Body, shared: Objects) -> None:
    name, port = store["metadata"]["name"], free_port()
    store["spec"]["objectStore"]["s3"]["endpoint"] = f"http://127.0.0.1:{port}"
    shared.apply(store)
    expect_nothing_started(shared, name, "BucketUnreachable", f"127.0.0.1:{port}", "refused")


def test_a_bucket_that_can_only_be_read_is_reported(store: Body, shared: Objects, minio: MinioServer) -> None:
    """A user with a policy for reading alone: the marker cannot be written."""
    name = store["metadata"]["name"]
    user, password = f"reader-{name}", "only-for-reading"
    make_reader(minio, user, password)
    shared.apply(secret(f"{name}-bucket", **{"access-key-id": user, "secret-access-key": password}))
    shared.apply(store)
    expect_nothing_started(shared, name, "BucketNotWritable", "but not write to it")


def make_reader(minio: MinioServer, user: str, password: str) -> None:
    """Make a user of MinIO that may only read."""
    host = minio.endpoint.removeprefix("http://")
    admin = MinioAdmin(endpoint=host, credentials=StaticProvider(minio.user, minio.password), secure=False)
    admin.user_add(user, password)
    actions = ["s3:GetObject", "s3:ListBucket", "s3:GetBucketLocation"]
    statement = {"Effect": "Allow", "Action": actions, "Resource": ["arn:aws:s3:::*"]}
    admin.policy_add("reads-and-lists", policy={"Version": "2012-10-17", "Statement": [statement]})
    admin.policy_set("reads-and-lists", user)


def test_the_second_of_two_stores_on_one_prefix_is_refused(store: Body, shared: Objects) -> None:
    """The second starts nothing and names the owner; it begins when the first has gone."""
    name = serving(shared, store)
    second = {**store, "metadata": {"name": f"{name}-b"}}
    shared.apply(second)
    expect_nothing_started(shared, f"{name}-b", "PrefixInUse", f"{shared.namespace}/{name}")
    assert shared.ready("StateStore", name)["status"] == "True"
    shared.delete("StateStore", name)
    eventually("the second store's meta nodes", lambda: shared.get("Deployment", f"{name}-b-meta"), 90)


def test_a_store_without_a_key_blocks_no_other(store: Body, shared: Objects, minio: MinioServer) -> None:
    """A StateStore without a key to the bucket blocks no prefix; one that holds its prefix does.

    The keyless one is refused as soon as it has a key. The holder keeps its prefix while its own key is gone.
    """
    name = store["metadata"]["name"]
    s3 = store["spec"]["objectStore"]["s3"]
    s3["prefix"] = f"{name}/inner"
    shapes = {
        f"{name}-all": {**s3, "prefix": name, "credentialsSecret": {"name": f"{name}-none"}},
        f"{name}-wrong": {**s3, "credentialsSecret": {"name": f"{name}-bad"}},
        f"{name}-late": {**s3, "credentialsSecret": {"name": f"{name}-none"}},
    }
    stores = {made: {**store, "metadata": {"name": made}} for made in shapes}
    for made, shape in shapes.items():
        stores[made]["spec"] = {**store["spec"], "objectStore": {"s3": shape}}
    shared.apply(secret(f"{name}-bad", **{"access-key-id": minio.user, "secret-access-key": "a-wrong-one"}))
    shared.apply(stores[f"{name}-all"])
    expect_nothing_started(shared, f"{name}-all", "SecretNotFound", f"{name}-none")
    shared.apply(stores[f"{name}-wrong"])
    expect_nothing_started(shared, f"{name}-wrong", "BucketAccessDenied", "secret access key is wrong")
    assert serving(shared, store) == name
    shared.apply(secret(f"{name}-none", **{"access-key-id": minio.user, "secret-access-key": minio.password}))
    for made in (f"{name}-all", f"{name}-wrong"):
        expect_nothing_started(shared, made, "PrefixInUse", f"{shared.namespace}/{name}")
    keys = s3["credentialsSecret"]["name"]
    shared.delete("Secret", keys)
    shared.await_reason("StateStore", name, "SecretNotFound")
    shared.apply(stores[f"{name}-late"])
    expect_nothing_started(shared, f"{name}-late", "PrefixInUse", f"{shared.namespace}/{name}")


def on_prefix(store: Body, name: str, prefix: str, secret_name: str = "", **spec: object) -> Body:
    """Another store, on a prefix of the same bucket."""
    s3 = {**store["spec"]["objectStore"]["s3"], "prefix": prefix}
    if secret_name:
        s3["credentialsSecret"] = {"name": secret_name}
    return {**store, "metadata": {"name": name}, "spec": {**store["spec"], "objectStore": {"s3": s3}, **spec}}


@pytest.mark.parametrize("paused", [False, True], ids=["refused", "paused"])
def test_a_store_that_waits_without_a_key_keeps_nobody_out(paused: bool, store: Body, shared: Objects) -> None:
    """Story: beside one good store, a keyless one for the whole bucket was `PrefixInUse`, which counted as a claim.

    No later store of the bucket began until the keyless one was deleted.
    """
    name = store["metadata"]["name"]
    serving(shared, on_prefix(store, name, f"{name}/first"))
    everything = on_prefix(store, f"{name}-all", name, f"{name}-none", paused=paused)
    shared.apply(everything)
    shared.await_reason("StateStore", f"{name}-all", "Paused" if paused else "PrefixInUse")
    time.sleep(1.1)  # creation times are in seconds, and the story needs the keyless one to be older
    shared.apply(on_prefix(store, f"{name}-b", f"{name}/second"))
    eventually("the second store's meta nodes", lambda: shared.get("Deployment", f"{name}-b-meta"), 60)
    assert shared.get("Meta", f"{name}-all") is None


def test_a_deleted_store_without_a_key_keeps_nobody_out(store: Body, shared: Objects) -> None:
    """Its user's finalizer keeps it for ever, and it never could use the bucket."""
    name = store["metadata"]["name"]
    everything = on_prefix(store, f"{name}-all", name, f"{name}-none")
    everything["metadata"]["finalizers"] = ["example.org/never"]
    everything["spec"]["deletionDeadlineSeconds"] = 10
    shared.apply(everything)
    shared.await_reason("StateStore", f"{name}-all", "SecretNotFound")
    shared.delete("StateStore", f"{name}-all")
    time.sleep(1.1)  # creation times are in seconds, and the story needs the keyless one to be older
    shared.apply(on_prefix(store, name, f"{name}/second"))
    eventually("meta nodes", lambda: shared.get("Deployment", f"{name}-meta"), 60)
    shared.patch("StateStore", f"{name}-all", {"metadata": {"finalizers": None}})


def test_a_holder_that_was_cleaned_up_holds_no_longer(store: Body, shared: Objects) -> None:
    """A finalizer of somebody else keeps the object; the next store begins, and the deleted one says nothing new."""
    name = store["metadata"]["name"]
    store["metadata"]["finalizers"] = ["example.org/hold"]
    store["spec"]["deletionPolicy"] = "Delete"
    serving(shared, store)
    shared.delete("StateStore", name)

    def is_cleaned_up() -> bool:
        return "cleanup is complete" in shared.ready("StateStore", name).get("message", "")

    eventually("a store that is cleaned up", is_cleaned_up)
    following = on_prefix(store, f"{name}-b", store["spec"]["objectStore"]["s3"]["prefix"])
    shared.apply(following)
    eventually("the next store's meta nodes", lambda: shared.get("Deployment", f"{name}-b-meta"), 60)
    assert "cleanup is complete" in shared.ready("StateStore", name)["message"]
    shared.patch("StateStore", name, {"metadata": {"finalizers": None}})
    eventually("the first store gone", lambda: shared.get("StateStore", name) is None)


def test_a_refused_pair_for_readers_leaves_no_marker(store: Body, shared: Objects, minio: MinioServer) -> None:
    """Story: the marker was put before the pair was tried.

    An older store, whose Secret came late, waited for the marker, and the refused one, once mended, for the older one.
    """
    name = store["metadata"]["name"]
    prefix = store["spec"]["objectStore"]["s3"]["prefix"]
    shared.apply(on_prefix(store, f"{name}-old", prefix, f"{name}-late"))
    shared.await_reason("StateStore", f"{name}-old", "SecretNotFound")
    new = on_prefix(store, f"{name}-new", prefix)
    new["spec"]["objectStore"]["s3"]["readerCredentialsSecret"] = {"name": f"{name}-readers"}
    pair = {"access-key-id": minio.user, "secret-access-key": minio.password}
    shared.apply(secret(f"{name}-readers", **pair))
    shared.apply(new)
    expect_nothing_started(shared, f"{name}-new", "ReadersMayWrite")
    assert list(client_of(minio).list_objects(BUCKET, prefix=f"{prefix}/", recursive=True)) == []
    shared.apply(secret(f"{name}-late", **pair))
    eventually("the old store's meta nodes", lambda: shared.get("Deployment", f"{name}-old-meta"), 60)
    make_reader(minio, f"reader-{name}", "only-for-reading")
    mended = {"access-key-id": f"reader-{name}", "secret-access-key": "only-for-reading"}
    shared.apply(secret(f"{name}-readers", **mended))
    expect_nothing_started(shared, f"{name}-new", "PrefixInUse", f"{shared.namespace}/{name}-old")


def test_a_prefix_below_that_of_another_store_is_refused(store: Body, shared: Objects) -> None:
    name = serving(shared, store)
    second = {**store, "metadata": {"name": f"{name}-b"}, "spec": {**store["spec"]}}
    s3 = store["spec"]["objectStore"]["s3"]
    second["spec"]["objectStore"] = {"s3": {**s3, "prefix": f"{s3['prefix']}/inner"}}
    shared.apply(second)
    expect_nothing_started(shared, f"{name}-b", "PrefixInUse", name)


def test_equal_names_of_different_buckets_are_no_prefix_in_use(name: str, shared: Objects) -> None:
    """Azure's containers are named within an account; a bucket of Amazon is one, whatever its endpoint."""

    def apply(number: int, **store: Body) -> str:
        spec = {"objectStore": store, "tls": {"mode": "none"}, "meta": {}}
        about = {"apiVersion": "tussock.dev/v1alpha1", "kind": "StateStore", "metadata": {"name": f"{name}-{number}"}}
        shared.apply({**about, "spec": spec})
        return f"{name}-{number}"

    azure = {"container": f"container-{name}", "prefix": "p", "serviceAccount": "nodes"}
    for number, account in enumerate(("first", "second")):
        found = apply(number, azure={**azure, "account": f"account{account}"})
        eventually("meta nodes", lambda found=found: shared.get("Deployment", f"{found}-meta"))
    # In the second of the first one, as a rule: their uids alone must not put them before a store that has begun.
    for late in [apply(number, azure={**azure, "account": "accountfirst"}) for number in range(5, 10)]:
        shared.await_reason("StateStore", late, "PrefixInUse")
    assert shared.ready("StateStore", f"{name}-0")["reason"] != "PrefixInUse"
    s3 = {"bucket": f"bucket-{name}", "serviceAccount": "nodes", "region": "eu-west-1"}
    apply(3, s3=s3)
    eventually("meta nodes", lambda: shared.get("Deployment", f"{name}-3-meta"))
    endpoint = "https://s3.eu-west-1.amazonaws.com"
    shared.await_reason("StateStore", apply(4, s3={**s3, "endpoint": endpoint}), "PrefixInUse")


def test_a_prefix_of_a_store_of_another_cluster_is_refused(store: Body, shared: Objects, minio: MinioServer) -> None:
    """Only the marker in the bucket shows it, and the message says what to write if that cluster is gone for good.

    The manifest is the one with which the store began, from a backup that is not there any more either.
    """
    name = store["metadata"]["name"]
    path = f"shared/{name}/tussock-owner"
    put(minio, path, b'{"uid": "42-a", "namespace": "far", "name": "away"}')
    put(minio, f"shared/{name}/log/{1:020d}.delta", b"x")
    store["spec"]["restoreFrom"] = {"backup": "long-gone"}
    shared.apply(store)
    expect_nothing_started(shared, name, "PrefixInUse", "far/away", path, 'set spec.adopt: "42-a"')
    store["spec"]["adopt"] = "42-a"
    shared.apply(store)
    eventually("meta nodes", lambda: shared.get("Deployment", f"{name}-meta"))
    body = shared.get("StateStore", name)
    assert body is not None
    marker = json.loads(client_of(minio).get_object(BUCKET, path).read())
    assert (marker["uid"], marker["found"]) == (body["metadata"]["uid"], "adopted")


def put(minio: MinioServer, path: str, data: bytes) -> None:
    client_of(minio).put_object(BUCKET, path, io.BytesIO(data), len(data))


def test_certificates_are_issued_before_anything_starts(store: Body, shared: Objects) -> None:
    """By default nodes speak TLS with certificates of the operator, none of which is issued twice."""
    name = store["metadata"]["name"]
    store["spec"]["tls"] = {}
    shared.apply(store)
    eventually("meta nodes", lambda: shared.get("Deployment", f"{name}-meta"))
    issued = {f"{name}-{part}" for part in ("ca", "meta-tls", "compactor-tls", "client-reader-tls", "client-admin-tls")}
    secrets = {body["metadata"]["name"]: body["metadata"]["resourceVersion"] for body in shared.list("Secret")}
    assert issued <= secrets.keys()
    eventually("when they end", lambda: (shared.get("StateStore", name) or {})["status"].get("certificatesExpireTime"))
    shared.delete("Secret", f"{name}-meta-tls")
    eventually("a new certificate", lambda: shared.get("Secret", f"{name}-meta-tls"), PUT_RIGHT_SECONDS)
    kept = {body["metadata"]["name"]: body["metadata"]["resourceVersion"] for body in shared.list("Secret")}
    assert kept[f"{name}-ca"] == secrets[f"{name}-ca"]


def test_a_managed_object_store_is_started_first(shared: Objects, name: str) -> None:
    """User and password are drawn once; meta nodes wait until the server runs."""
    shared.apply(
        {
            "apiVersion": "tussock.dev/v1alpha1",
            "kind": "StateStore",
            "metadata": {"name": name},
            "spec": {"objectStore": {"managed": {"size": "1Gi"}}, "tls": {"mode": "none"}, "meta": {}},
        }
    )
    eventually("the server", lambda: shared.get("StatefulSet", f"{name}-minio"))
    found = shared.await_reason("StateStore", name, "RollingOut")
    assert "object store" in found["message"]
    first = shared.get("Secret", f"{name}-minio")
    assert first is not None
    shared.serve("StatefulSet", f"{name}-minio")
    # Its Service leads nowhere here, since no pod runs.
    shared.await_reason("StateStore", name, "BucketUnreachable")
    again = shared.get("Secret", f"{name}-minio")
    assert again is not None
    assert again["data"] == first["data"]
    assert shared.get("Meta", name) is None
