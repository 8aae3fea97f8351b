"""Checks whether the claim of a volume that a user brings can hold a store, as far as the API knows."""

from tussock.operator.planning.words.conditions import Reason
from tussock.operator.planning.words.facts import BucketFact
from tussock.operator.planning.words.model import Manifest

__all__ = ["claim_problem"]


def claim_problem(claim: Manifest) -> BucketFact:
    """The problem of a claim; one that waits for its first pod is in order."""
    name, modes = claim["metadata"]["name"], claim["spec"].get("accessModes") or []
    if claim["metadata"].get("deletionTimestamp"):
        told = f"PersistentVolumeClaim {name} is being deleted. Create another claim, and another StateStore on it."
        return BucketFact(Reason.BUCKET_NOT_FOUND, told)
    if (claim.get("status") or {}).get("phase") == "Lost":
        told = f"PersistentVolumeClaim {name} has lost its volume. Restore the volume, or start with another claim."
        return BucketFact(Reason.BUCKET_NOT_FOUND, told)
    if not {"ReadWriteOnce", "ReadWriteMany"} & set(modes):
        return BucketFact(
            Reason.BUCKET_NOT_WRITABLE,
            f"PersistentVolumeClaim {name} has the access modes {', '.join(modes)}, but all nodes of a store mount it "
            "and write to it. Use one with ReadWriteMany, or with ReadWriteOnce, which keeps them on one node.",
        )
    return BucketFact(None)
