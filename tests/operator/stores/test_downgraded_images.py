"""An image of a release that cannot read the store: refused by its tag, or by the end of its first pod."""

from typing import Any

import pytest

from support.operator.process import Body, Objects, eventually
from support.operator.stores_in_cluster import serving
from tussock.meta.log.format import FORMAT_VERSION

pytestmark = [pytest.mark.minio, pytest.mark.usefixtures("operator")]
NEWER = f"written in format version {FORMAT_VERSION + 1}, and this reader knows versions up to {FORMAT_VERSION}"
LAST_LINE = f"error: log/7: offset 4: {NEWER}; open the store with a newer Tussock\n"


def image(objects: Objects, name: str) -> str:
    body: Any = objects.get("Deployment", f"{name}-meta")
    return str(body["spec"]["template"]["spec"]["containers"][0]["image"])


def change_image(objects: Objects, name: str, wanted: str) -> None:
    objects.patch("StateStore", name, {"spec": {"images": {"node": wanted}}})


def test_a_release_that_cannot_read_the_store_gets_no_pod(store: Body, shared: Objects) -> None:
    """Store and Meta say why; the nodes stay as they are, and a newer image is taken."""
    name = serving(shared, store)
    before = image(shared, name)
    shared.patch("Meta", name, {"status": {"logFormat": FORMAT_VERSION + 1}}, "status")
    change_image(shared, name, "localhost/tussock-node:0.1.0")
    told = shared.await_reason("Meta", name, "DowngradeRefused")
    assert told["status"] == "True", "the old nodes serve"
    assert f"The meta nodes keep image {before}." in told["message"]
    assert told["message"] in shared.await_reason("StateStore", name, "DowngradeRefused")["message"]
    assert image(shared, name) == before
    change_image(shared, name, "localhost/tussock-node:newer")
    eventually("the next image", lambda: image(shared, name) == "localhost/tussock-node:newer")


def test_an_unknown_image_is_refused_by_its_first_pod(store: Body, shared: Objects) -> None:
    """What its container said last, its kubelet writes into its status."""
    name = serving(shared, store)
    change_image(shared, name, "localhost/tussock-node:ours")
    eventually("the change", lambda: image(shared, name) == "localhost/tussock-node:ours")
    template: Any = shared.get("Deployment", f"{name}-meta")
    template = template["spec"]["template"]
    spec = {"containers": [{"name": "meta", "image": "localhost/tussock-node:ours"}]}
    metadata = {"name": f"{name}-meta-new", "labels": template["metadata"]["labels"]}
    shared.apply({"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": spec})
    ended = {"exitCode": 1, "reason": "Error", "message": LAST_LINE}
    container = {"name": "meta", "image": spec["containers"][0]["image"], "imageID": "", "ready": False}
    states = {
        "restartCount": 1,
        "state": {"waiting": {"reason": "CrashLoopBackOff"}},
        "lastState": {"terminated": ended},
    }
    status = {"phase": "Running", "containerStatuses": [{**container, **states}]}
    shared.patch("Pod", f"{name}-meta-new", {"status": status}, "status")
    progress = {
        "observedGeneration": 2,
        "replicas": 3,
        "updatedReplicas": 1,
        "readyReplicas": 2,
        "availableReplicas": 2,
    }
    shared.patch("Deployment", f"{name}-meta", {"status": progress}, "status")
    told = shared.await_reason("Meta", name, "DowngradeRefused")
    assert told["status"] == "True"
    assert NEWER in told["message"]
    assert told["message"].endswith("The old pods still serve.")
    assert shared.await_reason("StateStore", name, "DowngradeRefused")["status"] == "True"
