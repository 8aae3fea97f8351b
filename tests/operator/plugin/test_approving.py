"""`kubectl tussock approve`: the image that waits, by its name, at a real API server."""

import pytest

from support.operator.plugin.commands import plugin
from support.operator.process import Objects, OperatorProcess, eventually
from support.operator.stores_in_cluster import serving, unprobed_store
from tussock.operator.planning.words.approvals import APPROVED

pytestmark = pytest.mark.timeout(240)
NEXT, LATER = "localhost/tussock-node:next", "localhost/tussock-node:later"


def image(objects: Objects, workload: str) -> str:
    body = objects.get("Deployment", workload) or {}
    return str(body["spec"]["template"]["spec"]["containers"][0]["image"])


def pending(objects: Objects, name: str) -> str:
    return str((objects.get("StateStore", name) or {})["status"].get("pendingImage", ""))


def test_a_store_changes_to_the_image_that_was_approved(shared: Objects, operator: OperatorProcess) -> None:
    """And waits again for the next one; the store itself says what waits, and since when."""
    name = "approve"
    shared.apply({"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": "buckets"}})
    store = unprobed_store(name)
    store["spec"]["upgrade"] = {"mode": "Approve"}
    serving(shared, store)
    first = image(shared, f"{name}-meta")
    told = plugin(shared, "approve", name)
    assert (told.returncode, told.stderr) == (
        1,
        f"error: no image of StateStore {name} waits for approval; see kubectl tussock status {name}\n",
    )
    shared.patch("StateStore", name, {"spec": {"images": {"node": NEXT}}})
    eventually("what waits", lambda: pending(shared, name) == NEXT)
    message = shared.await_reason("StateStore", name, "WaitingForApproval")["message"]
    assert f"A change to image {NEXT} has waited for approval since 20" in message
    assert image(shared, f"{name}-meta") == first
    told = plugin(shared, "approve", name)
    assert (told.returncode, told.stdout) == (0, f"Approved: {name} changes to {NEXT}.\n")
    assert (shared.get("StateStore", name) or {})["metadata"]["annotations"][APPROVED] == NEXT
    for part in ("meta", "compactor"):
        eventually(f"the {part} nodes", lambda part=part: image(shared, f"{name}-{part}") == NEXT)
        shared.serve("Deployment", f"{name}-{part}")
    shared.await_reason("StateStore", name, "Ready")
    assert pending(shared, name) == ""
    shared.patch("StateStore", name, {"spec": {"images": {"node": LATER}}})
    eventually("the next one", lambda: pending(shared, name) == LATER)
    assert image(shared, f"{name}-meta") == NEXT


def test_a_store_that_is_not_there_is_named(shared: Objects) -> None:
    told = plugin(shared, "approve", "nowhere")
    assert told.returncode == 1
    assert "there is no StateStore nowhere" in told.stderr
