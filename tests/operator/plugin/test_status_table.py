"""The table of `kubectl tussock status`."""

from typing import Any

from support.operator.computes import at, body, compute, store
from tussock.operator.plugin.tables import status_text


def row(text: str, kind: str) -> list[str]:
    """The cells of the row of that kind; the last one is the message."""
    [line] = [line for line in text.splitlines() if line.split()[0] == kind]
    return line.split(maxsplit=6)


def test_the_committed_epoch_is_shown_as_a_time() -> None:
    """An epoch has 18 digits and is unreadable; `epochs` shows it."""
    status: dict[str, Any] = {"committedEpoch": 117659587302195200, "committedTime": at(-5)}
    shop = store()
    shop["status"] |= status
    job = compute(status=status)
    text = status_text([shop], [job])
    assert row(text, "StateStore")[5] == row(text, "Compute")[5] == at(-5)
    assert "117659587302195200" not in text


def test_a_resource_under_deletion_is_shown_as_such() -> None:
    """Story: with the operator gone, a store that waited for it was shown as `True Ready "The store serves"`."""
    shop, meta = store(), body("Meta", "s", {"storeRef": {"name": "s"}})
    shop["metadata"]["deletionTimestamp"] = at(-60)
    text = status_text([shop], [meta])
    assert row(text, "StateStore")[2:4] == ["False", "Deleting"]
    assert "kubectl tussock release" in row(text, "StateStore")[6]
    assert row(text, "Meta")[2:4] == ["True", "Ready"]


def test_a_client_is_shown_at_its_own_store_alone() -> None:
    """And not at the one of that name in its namespace, where it names another one."""
    near = body("StateStoreClient", "near", {"storeRef": {"name": "s"}})
    far = body("StateStoreClient", "far", {"storeRef": {"name": "s", "namespace": "elsewhere"}})
    text = status_text([store()], [near, far])
    assert row(text, "StateStoreClient")[1:4] == ["near", "True", "Ready"]
