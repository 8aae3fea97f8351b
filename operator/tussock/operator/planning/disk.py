"""The verdict on a managed object store whose disk is about to be full.

Its server says how full it is. A store that cannot write has no leader soon, so the status says it before, while the
store serves. It clears itself when the disk has grown, or when vacuum has deleted enough.
"""

from collections.abc import Mapping
from typing import Any

from tussock.operator.manifests.bucket_access import managed_name
from tussock.operator.planning.words.conditions import Reason, Verdict, problem_verdict
from tussock.operator.planning.words.facts import BucketFact
from tussock.operator.resources.object_store import ManagedStore
from tussock.operator.resources.store import StoreResource

__all__ = ["FILLING_PERCENT", "bucket_verdict", "disk_used", "disk_verdict", "is_filling"]

FILLING_PERCENT = 85
_CLEAR_PERCENT = 80
"""Below it a volume counts as not filling any more: old files are deleted now and then, which is no reason for two
events each time."""


def is_filling(status: Mapping[str, Any], used: int) -> bool:
    """Whether a volume of which `used` percent are used is to be told of; `status` is what its resource has."""
    known = any(found.get("reason") == Reason.VOLUME_FILLING for found in status.get("conditions") or ())
    return used >= (_CLEAR_PERCENT if known else FILLING_PERCENT)


def disk_used(store: StoreResource, said: int | None) -> int | None:
    """How full the disk is, in percent: as the server says, or as it said last; `None` on an `emptyDir`, a node's."""
    backend = store.spec.object_store.backend
    if not isinstance(backend, ManagedStore) or backend.ephemeral:
        return None
    return store.status.get("diskUsedPercent") if said is None else said


def disk_verdict(store: StoreResource, verdict: Verdict, said: int | None) -> Verdict:
    """The verdict, with a warning in the place of one that all is well; `said` is what the server says."""
    used = disk_used(store, said)
    if used is None or verdict.reason is not Reason.READY or not is_filling(store.status, used):
        return verdict
    told = f"The disk of the managed object store is {used} % full; from 99 % on nothing can be committed."
    told = f"{told} {_advice(store)} {verdict.message}"
    return problem_verdict(Reason.VOLUME_FILLING, told, serving=verdict.ready)


def bucket_verdict(store: StoreResource, fact: BucketFact) -> Verdict:
    """The verdict on a bucket that cannot be used; of a managed one that is full also how it gets more room."""
    assert fact.reason is not None
    is_managed = isinstance(store.spec.object_store.backend, ManagedStore)
    advice = f" {_advice(store)}" if is_managed and fact.is_full else ""
    return problem_verdict(fact.reason, fact.message + advice)


def _advice(store: StoreResource) -> str:
    backend = store.spec.object_store.backend
    if isinstance(backend, ManagedStore) and backend.ephemeral:
        return "It is a part of its node's disk: give that room."
    return (
        f"Raise spec.objectStore.managed.size, if the StorageClass of claim {managed_name(store)} lets volumes grow; "
        "or delete backups, end old snapshots or lower spec.retentionSeconds, and wait for vacuum."
    )
