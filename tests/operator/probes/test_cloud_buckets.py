"""Buckets of Google, containers of Azure and claims of users are checked before a store starts.

What these clouds answer when something is wrong is canned: there is no server of theirs to ask here. What is done with
a marker and with objects is in `test_prefixes.py`.
"""

from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

import pytest

from support.buckets.canned_cloud import Answer, CannedCloud, azure_target, gcs_key, gcs_target, running_cloud
from support.buckets.minio import free_port
from support.operator.process import Objects, eventually
from tussock.operator.planning.words.conditions import Reason
from tussock.operator.probes.claim import claim_problem
from tussock.operator.probes.cloud import CloudTarget, check_cloud, clean_cloud
from tussock.operator.probes.marker import Owner
from tussock.statestore.base.system import RealSystem

SYSTEM = RealSystem()
OURS = Owner("1", "data", "shop")
Target = Callable[[str], CloudTarget]


@pytest.fixture
def cloud() -> Iterator[CannedCloud]:
    with running_cloud() as found:
        yield found


WRONG: list[tuple[str, Target, Answer, Answer, Reason | None]] = [
    ("gcs-right", gcs_target, Answer(404, "NoSuchKey", "No such object."), Answer(200), None),
    (
        "gcs-no-bucket",
        gcs_target,
        Answer(404, "NoSuchBucket", "The specified bucket does not exist."),
        Answer(200),
        Reason.BUCKET_NOT_FOUND,
    ),
    ("gcs-denied", gcs_target, Answer(403, "AccessDenied", "Denied."), Answer(200), Reason.BUCKET_ACCESS_DENIED),
    (
        "gcs-key-is-gone",
        gcs_target,
        Answer(401, "AuthenticationRequired", "Authentication required."),
        Answer(200),
        Reason.BUCKET_ACCESS_DENIED,
    ),
    (
        "gcs-may-only-read",
        gcs_target,
        Answer(404, "NoSuchKey", "No such object."),
        Answer(403, "AccessDenied", "Denied."),
        Reason.BUCKET_NOT_WRITABLE,
    ),
    ("azure-right", azure_target, Answer(404, "BlobNotFound", "No such blob."), Answer(201), None),
    (
        "azure-no-container",
        azure_target,
        Answer(404, "ContainerNotFound", "The specified container does not exist."),
        Answer(201),
        Reason.BUCKET_NOT_FOUND,
    ),
    (
        "azure-wrong-key",
        azure_target,
        Answer(403, "AuthenticationFailed", "Server failed to authenticate the request."),
        Answer(201),
        Reason.BUCKET_ACCESS_DENIED,
    ),
    (
        "azure-may-only-read",
        azure_target,
        Answer(404, "BlobNotFound", "No such blob."),
        Answer(403, "AuthorizationPermissionMismatch", "Not authorized."),
        Reason.BUCKET_NOT_WRITABLE,
    ),
]


@pytest.mark.parametrize(("target", "read", "write", "reason"), [pytest.param(*case, id=name) for name, *case in WRONG])
def test_each_problem_of_a_bucket_has_its_reason(
    cloud: CannedCloud, target: Target, read: Answer, write: Answer, reason: Reason | None
) -> None:
    """The message names the bucket, and nothing of the secret."""
    cloud.read, cloud.write = read, write
    at = target(cloud.url)
    found = check_cloud(at, OURS, "", SYSTEM, write=True)
    assert found.reason is reason, found.message
    assert reason is None or at.url in found.message
    assert "hush" not in f"{found} {at}"


@pytest.mark.parametrize("target", [gcs_target, azure_target])
def test_an_endpoint_without_a_server_is_unreachable(target: Target) -> None:
    """Clean-up reports it, too, and does not end because of it."""
    at = target(f"http://127.0.0.1:{free_port()}")
    assert check_cloud(at, OURS, "", SYSTEM, write=True).reason is Reason.BUCKET_UNREACHABLE
    emptied = clean_cloud(at, OURS, SYSTEM, delete=True)
    assert (emptied.done, emptied.stuck, emptied.hopeless) == (False, True, False)
    assert at.url in emptied.message


@pytest.mark.parametrize("target", [gcs_target, azure_target])
def test_a_problem_of_a_bucket_has_the_same_text_each_time(target: Target) -> None:
    """Story: the text held the duration of the attempts, so each probe in an outage was a write of the status."""
    at = target(f"http://127.0.0.1:{free_port()}")
    found = set()
    for seconds in (0.02, 0.5, 0.5):  # the first leaves no time for a second attempt, as a busy machine may
        found.add(check_cloud(replace(at, answer_seconds=seconds), OURS, "", SYSTEM, write=True).message)
    assert len(found) == 1, found
    assert "error sending request" in found.pop()


def test_a_missing_bucket_needs_no_clean_up(cloud: CannedCloud) -> None:
    cloud.read = Answer(404, "ContainerNotFound", "The specified container does not exist.")
    assert clean_cloud(azure_target(cloud.url), OURS, SYSTEM, delete=True).done


@pytest.mark.parametrize(
    "target",
    [
        CloudTarget("gs://b", {"GOOGLE_SERVICE_ACCOUNT_KEY": "hush-hush, and no JSON"}),
        CloudTarget("gs://b", {"GOOGLE_SERVICE_ACCOUNT_KEY": '{"private_key": "hush-hush"}'}),
        CloudTarget("az://b", {"AZURE_STORAGE_ACCOUNT_NAME": "a", "AZURE_STORAGE_ACCOUNT_KEY": "!hush-hush"}),
    ],
    ids=["gcs-text", "gcs-half-a-key", "azure-text"],
)
def test_a_secret_with_wrong_content_is_reported(target: CloudTarget) -> None:
    found = check_cloud(target, OURS, "", SYSTEM, write=True)
    assert found.reason is Reason.BUCKET_ACCESS_DENIED
    assert "Correct the secret" in found.message
    assert "hush" not in found.message


CLAIMS: dict[str, tuple[dict[str, Any], dict[str, Any], Reason | None]] = {
    "bound": ({}, {"phase": "Bound"}, None),
    "waits for its first pod": ({}, {"phase": "Pending"}, None),
    "shared": ({"accessModes": ["ReadWriteMany", "ReadOnlyMany"]}, {}, None),
    "lost": ({}, {"phase": "Lost"}, Reason.BUCKET_NOT_FOUND),
    "to read": ({"accessModes": ["ReadOnlyMany"]}, {"phase": "Bound"}, Reason.BUCKET_NOT_WRITABLE),
    "of one pod": ({"accessModes": ["ReadWriteOncePod"]}, {"phase": "Bound"}, Reason.BUCKET_NOT_WRITABLE),
}


@pytest.mark.parametrize(("spec", "status", "reason"), CLAIMS.values(), ids=CLAIMS)
def test_a_claim_must_be_writable_from_all_nodes(
    spec: dict[str, Any], status: dict[str, Any], reason: Reason | None
) -> None:
    claim = {"metadata": {"name": "c"}, "spec": {"accessModes": ["ReadWriteOnce"], **spec}, "status": status}
    found = claim_problem(claim)
    assert found.reason is reason
    assert reason is None or "PersistentVolumeClaim c" in found.message


@pytest.mark.usefixtures("operator")
def test_a_bucket_of_google_is_waited_for_until_it_can_be_used(shared: Objects, name: str, cloud: CannedCloud) -> None:
    """No secret, a wrong one, no bucket: each is mended in turn, then the store begins."""
    key = {"name": f"{name}-key"}
    spec = {"objectStore": {"gcs": {"bucket": "warehouse", "prefix": name, "credentialsSecret": key}}}
    apply_store(shared, name, spec)
    shared.await_reason("StateStore", name, "SecretNotFound")
    apply_secret(shared, f"{name}-key", "hush-hush, and no JSON")
    assert "cannot be used" in shared.await_reason("StateStore", name, "BucketAccessDenied")["message"]
    cloud.read = Answer(404, "NoSuchBucket", "The specified bucket does not exist.")
    apply_secret(shared, f"{name}-key", gcs_key(cloud.url))
    assert f"gs://warehouse/{name}" in shared.await_reason("StateStore", name, "BucketNotFound")["message"]
    assert shared.get("Meta", name) is None
    cloud.read, cloud.write = Answer(404, "NoSuchKey", "No such object."), Answer(200)
    eventually("meta nodes", lambda: shared.get("Deployment", f"{name}-meta"))
    assert "hush" not in str([shared.get("StateStore", name), shared.events(name)])


@pytest.mark.usefixtures("operator")
def test_a_claim_that_is_missing_is_waited_for(shared: Objects, name: str) -> None:
    apply_store(shared, name, {"objectStore": {"volume": {"claimName": f"{name}-claim"}}})
    assert f"{name}-claim" in shared.await_reason("StateStore", name, "BucketNotFound")["message"]
    assert shared.get("Meta", name) is None
    claim = {"apiVersion": "v1", "kind": "PersistentVolumeClaim", "metadata": {"name": f"{name}-claim"}}
    asked = {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}}}
    shared.apply({**claim, "spec": asked})
    eventually("meta nodes", lambda: shared.get("Deployment", f"{name}-meta"))


def apply_store(shared: Objects, name: str, spec: dict[str, Any]) -> None:
    """Apply a store with meta nodes."""
    about = {"apiVersion": "tussock.dev/v1alpha1", "kind": "StateStore", "metadata": {"name": name}}
    shared.apply({**about, "spec": {"tls": {"mode": "none"}, "meta": {}, **spec}})


def apply_secret(shared: Objects, name: str, key: str) -> None:
    """Apply the secret of a Google service account."""
    about = {"apiVersion": "v1", "kind": "Secret", "metadata": {"name": name}}
    shared.apply({**about, "stringData": {"credentials.json": key}})
