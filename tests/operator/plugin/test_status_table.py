"""The table of `kubectl tussock status`."""

from typing import Any

from support.operator.computes import at, body, compute, store
from tussock.operator.plugin.tables import status_text


def row(text: str, kind: str) -> list[str]:
    """The cells of the line of that kind; the last one is the message."""
    [line] = [line for line in text.splitlines() if line.split()[0] == kind]
    return line.split(maxsplit=6)


def test_what_was_committed_is_told_by_its_time() -> None:
    """An epoch is a number of 18 digits, which nobody can read; `epochs` has these."""
    status: dict[str, Any] = {"committedEpoch": 117659587302195200, "committedTime": at(-5)}
    shop = store()
    shop["status"] |= status
    job = compute(status=status)
    text = status_text([shop], [job])
    assert row(text, "StateStore")[5] == row(text, "Compute")[5] == at(-5)
    assert "117659587302195200" not in text


def test_what_is_to_be_deleted_says_so_though_its_status_is_from_before() -> None:
    """Story: with the operator gone, a store that waited for it was `True Ready "The store serves"`."""
    shop, meta = store(), body("Meta", "s", {"storeRef": {"name": "s"}})
    shop["metadata"]["deletionTimestamp"] = at(-60)
    text = status_text([shop], [meta])
    assert row(text, "StateStore")[2:4] == ["False", "Deleting"]
    assert "kubectl tussock release" in row(text, "StateStore")[6]
    assert row(text, "Meta")[2:4] == ["True", "Ready"]
