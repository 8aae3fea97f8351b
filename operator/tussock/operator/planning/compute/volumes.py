"""The verdict on a job whose checkpoint's volume is about to be full.

The driver says how full it is, of bytes or of files. A stream that cannot write its progress ends, and none of its
restarts helps; so the status says it before, while the job goes on. It clears itself when the volume has grown.
"""

from tussock.operator.manifests.compute.pods import checkpoint_claim
from tussock.operator.planning.compute.facts import ComputeFacts
from tussock.operator.planning.disk import FILLING_PERCENT, is_filling
from tussock.operator.planning.words.conditions import Reason, Verdict, problem_verdict
from tussock.operator.resources.compute import Compute

__all__ = ["advice_on_full_disk", "checkpoint_used", "volume_verdict"]

_NO_SPACE = "No space left on device"


def checkpoint_used(compute: Compute, facts: ComputeFacts) -> int | None:
    """How full the volume is, in percent: as the driver says, or as it said last; `None` on an `emptyDir`, a node's."""
    if compute.spec.checkpoint.empty_dir is not None:
        return None
    said = facts.driver.checkpoint_used_percent if facts.driver is not None else None
    return compute.status.get("checkpointUsedPercent") if said is None else said


def volume_verdict(compute: Compute, verdict: Verdict, used: int | None) -> Verdict:
    """The verdict, with a warning in the place of one that all is well."""
    if used is None or verdict.reason not in (Reason.READY, Reason.RUNNING) or not is_filling(compute.status, used):
        return verdict
    told = (
        f"The checkpoint's volume is {used} % full, of bytes or of files; the job ends when it is. {_advice(compute)}"
    )
    told = f"{told} {verdict.message}"
    return problem_verdict(Reason.VOLUME_FILLING, told, serving=verdict.ready, progressing=verdict.progressing)


def advice_on_full_disk(compute: Compute, told: str) -> str:
    """What to do about a failure for lack of room; empty for another one."""
    if _NO_SPACE not in told:
        return ""
    if compute.status.get("checkpointUsedPercent", 0) < FILLING_PERCENT:
        return " A disk of the pod is full: give /tmp more room by a pod template, or write less there."
    return f" The checkpoint's volume is full. {_advice(compute)}"


def _advice(compute: Compute) -> str:
    claim = checkpoint_claim(compute)
    if compute.spec.checkpoint.size:
        return (
            f"Raise spec.checkpoint.size, if the StorageClass of claim {claim} lets volumes grow, or lower "
            "spark.sql.streaming.minBatchesToRetain."
        )
    return f"Make claim {claim} larger, or lower spark.sql.streaming.minBatchesToRetain."
