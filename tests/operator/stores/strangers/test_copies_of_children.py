"""Copies of children, as users make them with `kubectl get -o yaml`: nothing deletes one with the original's owner."""

from typing import Any

import pytest

from support.buckets.minio import MinioServer
from support.operator.kubelet import Kubelet, job
from support.operator.process import Body, Objects, eventually
from support.operator.stores_in_cluster import serving, store_on

pytestmark = [pytest.mark.minio, pytest.mark.usefixtures("operator")]

TWO_LABELS = ("tussock.dev/owner-kind", "tussock.dev/owner")
THREE_LABELS = (*TWO_LABELS, "app.kubernetes.io/managed-by")


def copy_of(original: Body, name: str, labels: tuple[str, ...], owner: Body | None = None, **spec: Any) -> Body:
    """A copy under another name, with some of the labels, and with another owner or none."""
    kept = {label: original["metadata"]["labels"][label] for label in labels}
    metadata: dict[str, Any] = {"name": name, "labels": kept}
    if owner is not None:
        reference = {name: owner[name] for name in ("apiVersion", "kind")}
        reference |= {name: owner["metadata"][name] for name in ("name", "uid")}
        metadata["ownerReferences"] = [reference]
    about = {name: original[name] for name in ("apiVersion", "kind")}
    return {**about, "metadata": metadata, "spec": {**original["spec"], **spec}}


def uid_of(shared: Objects, body: Body) -> str | None:
    found = shared.get(body["kind"], body["metadata"]["name"])
    return found["metadata"]["uid"] if found is not None and not found["metadata"].get("deletionTimestamp") else None


def test_a_stores_deletion_leaves_copies_of_its_parts(
    store: Body, name: str, minio: MinioServer, shared: Objects
) -> None:
    """Story: a Meta of another store with two labels of the deleted one was deleted, and its nodes stopped."""
    serving(shared, store)
    other = shared.apply(store_on(minio, shared, f"{name}-other"))
    copies = [
        copy_of(shared.get(kind, name) or {}, f"{name}-{number}", labels, owner, storeRef={"name": f"{name}-other"})
        for kind in ("Meta", "Compactor")
        for number, (labels, owner) in enumerate(((TWO_LABELS, None), (THREE_LABELS, None), (THREE_LABELS, other)))
    ]
    for copy in copies:
        shared.apply(copy)
    for number in range(3):
        eventually("nodes of the copy", lambda number=number: shared.get("Deployment", f"{name}-{number}-meta"))
    before = [uid_of(shared, copy) for copy in copies]
    shared.delete("StateStore", name)
    eventually("the store gone", lambda: shared.get("StateStore", name) is None)
    eventually("its parts gone", lambda: all(shared.get(kind, name) is None for kind in ("Meta", "Compactor")))
    assert [uid_of(shared, copy) for copy in copies] == before
    assert None not in before


def test_a_jobs_deletion_leaves_a_copy_of_its_driver(store: Body, name: str, shared: Objects) -> None:
    """Nor does the job wait for the copy."""
    serving(shared, store)
    shared.apply(job(name, f"{name}-job"))
    kubelet = Kubelet(shared, f"{name}-job")
    kubelet.uid()
    original = kubelet.pod() or {}
    labels = tuple(original["metadata"]["labels"])
    spec = {"containers": [{"name": "compute", "image": "localhost/none"}], "serviceAccountName": "default"}
    copy = copy_of({**original, "spec": spec}, f"{name}-copy", labels)
    before = shared.apply(copy)["metadata"]["uid"]
    shared.delete("Compute", f"{name}-job")
    eventually("no job", lambda: shared.get("Compute", f"{name}-job") is None)
    assert kubelet.pod() is None
    assert uid_of(shared, copy) == before
