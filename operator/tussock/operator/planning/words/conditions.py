"""The conditions of a status: `Ready`, `Progressing` and `Degraded`, each with a reason from a closed list.

The shape is that of KEP-1623 (type, status, reason, message, lastTransitionTime, observedGeneration). One `Verdict`
says how a resource is, and the three conditions follow from it, so they never contradict each other:

| verdict | Ready | Progressing | Degraded |
|---|---|---|---|
| serves as asked | True | False | False |
| on its way, nothing is wrong | False | True | False |
| serves, and is being changed | True | True | False |
| something is wrong, and what was there still serves | True | False | True |
| something is wrong | False | False | True |
| at rest as requested | False | False | False |

`docs/operator/reconciliation.md` has the table of reasons; a test compares it with `Reason`.
"""

from collections.abc import Mapping, Sequence
from datetime import datetime
from enum import StrEnum
from typing import Any, NamedTuple, TypeAlias

from tussock.operator.planning.words.model import Emit, stamp

__all__ = [
    "CONDITION_TYPES",
    "Condition",
    "Reason",
    "Verdict",
    "conditions",
    "idle_verdict",
    "is_current",
    "is_degraded",
    "is_ready",
    "is_serving",
    "known_reason",
    "problem_verdict",
    "progress_verdict",
    "ready_verdict",
    "transitions",
]

Condition: TypeAlias = dict[str, Any]

CONDITION_TYPES = {"Ready", "Progressing", "Degraded"}
"""Every status has all of them, or none yet."""


class Reason(StrEnum):
    """Why a resource is in its state; part of the API: scripts wait for these words, so none changes its meaning."""

    # At rest.
    READY = "Ready"
    PAUSED = "Paused"
    SUSPENDED = "Suspended"
    COMPLETED = "Completed"
    SCHEDULED = "Scheduled"
    REVOKED = "Revoked"
    EXPIRED = "Expired"
    # On its way.
    RECONCILING = "Reconciling"
    WAITING_FOR_STORE = "WaitingForStore"
    WAITING_FOR_META = "WaitingForMeta"
    WAITING_FOR_COMPACTORS = "WaitingForCompactors"
    WAITING_FOR_ADDRESS = "WaitingForAddress"
    ROLLING_OUT = "RollingOut"
    UPGRADE_STOPPED = "UpgradeStopped"
    WAITING_FOR_APPROVAL = "WaitingForApproval"
    RESTORING = "Restoring"
    RUNNING = "Running"
    BACKING_OFF = "BackingOff"
    DRAINING = "Draining"
    DELETING = "Deleting"
    # The object store.
    BUCKET_UNREACHABLE = "BucketUnreachable"
    BUCKET_NOT_FOUND = "BucketNotFound"
    BUCKET_ACCESS_DENIED = "BucketAccessDenied"
    BUCKET_NOT_WRITABLE = "BucketNotWritable"
    READERS_MAY_WRITE = "ReadersMayWrite"
    SECRET_NOT_FOUND = "SecretNotFound"  # noqa: S105 - the name of a reason
    SECRET_KEY_MISSING = "SecretKeyMissing"  # noqa: S105
    SECRET_VALUE_INVALID = "SecretValueInvalid"  # noqa: S105
    PREFIX_IN_USE = "PrefixInUse"
    CERTIFICATES_NOT_ISSUED = "CertificatesNotIssued"
    # What the cluster says about pods.
    IMAGE_PULL_FAILED = "ImagePullFailed"
    CRASH_LOOPING = "CrashLooping"
    UNSCHEDULABLE = "Unschedulable"
    PROBE_FAILED = "ProbeFailed"
    NO_LEADER = "NoLeader"
    CONTAINER_CONFIG_FAILED = "ContainerConfigFailed"
    POD_REFUSED = "PodRefused"
    DOWNGRADE_REFUSED = "DowngradeRefused"
    APPLY_REFUSED = "ApplyRefused"
    NAME_IN_USE = "NameInUse"
    # The platform.
    WRITER_ID_IN_USE = "WriterIdInUse"
    CLIENT_REFUSED = "ClientRefused"
    STORE_NOT_GRANTED = "StoreNotGranted"
    APPLICATION_IN_USE = "ApplicationInUse"
    FEED_STALLED = "FeedStalled"
    INVALID_SPEC = "InvalidSpec"
    DRIVER_FAILED = "DriverFailed"
    CHECKPOINT_LOST = "CheckpointLost"
    VOLUME_FILLING = "VolumeFilling"
    FAILED = "Failed"
    BACKUP_FAILED = "BackupFailed"
    RESTORE_FAILED = "RestoreFailed"
    STORE_GONE = "StoreGone"
    DELETION_GAVE_UP = "DeletionGaveUp"
    # The operator itself.
    OPERATOR_FAILED = "OperatorFailed"


class Verdict(NamedTuple):
    """The state of a resource, as a reason and a sentence."""

    reason: Reason
    message: str
    """What the state of which object is and, if something is wrong, what to do."""
    ready: bool
    progressing: bool
    degraded: bool


def known_reason(text: str, otherwise: Reason) -> Reason:
    """The reason in a condition; `otherwise` for one that this release does not know, from another one or by hand."""
    return Reason(text) if text in list(Reason) else otherwise


def ready_verdict(message: str) -> Verdict:
    """It serves, as its spec asks."""
    return Verdict(Reason.READY, message, ready=True, progressing=False, degraded=False)


def progress_verdict(reason: Reason, message: str, *, serving: bool = False) -> Verdict:
    """It is on its way and nothing is wrong; `serving`: it serves meanwhile."""
    return Verdict(reason, message, ready=serving, progressing=True, degraded=False)


def problem_verdict(reason: Reason, message: str, *, serving: bool = False, progressing: bool = False) -> Verdict:
    """A problem; `serving`: the old pods still serve."""
    return Verdict(reason, message, ready=serving, progressing=progressing, degraded=True)


def idle_verdict(reason: Reason, message: str) -> Verdict:
    """It does nothing, as requested."""
    return Verdict(reason, message, ready=False, progressing=False, degraded=False)


def conditions(old: Sequence[Mapping[str, Any]], verdict: Verdict, generation: int, now: datetime) -> list[Condition]:
    """The three conditions of a verdict, `Ready` first.

    `old` are those of the current status: a condition whose status stays keeps its `lastTransitionTime`, as the API's
    conventions require, so an unchanged status is the same to the byte.
    """
    before = {condition["type"]: condition for condition in old}
    values = {"Ready": verdict.ready, "Progressing": verdict.progressing, "Degraded": verdict.degraded}
    return [_condition(before.get(type_), type_, value, verdict, generation, now) for type_, value in values.items()]


def _condition(
    old: Mapping[str, Any] | None, type_: str, value: bool, verdict: Verdict, generation: int, now: datetime
) -> Condition:
    status = "True" if value else "False"
    stays = old is not None and old.get("status") == status and old.get("lastTransitionTime")
    return {
        "type": type_,
        "status": status,
        "reason": str(verdict.reason),
        "message": verdict.message,
        "lastTransitionTime": old["lastTransitionTime"] if old and stays else stamp(now),
        "observedGeneration": generation,
    }


def transitions(old: Sequence[Mapping[str, Any]], new: Sequence[Mapping[str, Any]]) -> tuple[Emit, ...]:
    """The event for a change of conditions: at most one, and none if only messages changed.

    A transition is another reason or another status. Messages hold counts and names that change while a state lasts, so
    they are not compared: too many events would bury those that matter.
    """
    if not new or _kernel(old) == _kernel(new):
        return ()
    by_type = {condition["type"]: condition for condition in new}
    head = by_type["Ready"]
    return (Emit("Warning" if by_type["Degraded"]["status"] == "True" else "Normal", head["reason"], head["message"]),)


def _kernel(found: Sequence[Mapping[str, Any]]) -> dict[str, tuple[Any, Any]]:
    return {condition["type"]: (condition["status"], condition.get("reason")) for condition in found}


def is_current(body: Mapping[str, Any]) -> bool:
    """Whether a resource's status is about its current spec, not about an older one."""
    return bool((body.get("status") or {}).get("observedGeneration") == body["metadata"].get("generation"))


def is_ready(body: Mapping[str, Any]) -> bool:
    """Whether a resource's status says `Ready` about its current spec, not about an older one."""
    return is_current(body) and is_serving(body)


def is_serving(body: Mapping[str, Any]) -> bool:
    """Whether a resource's condition `Ready` is true, for any spec."""
    return _is_true("Ready", body.get("status"))


def is_degraded(status: Mapping[str, Any] | None) -> bool:
    """Whether a status says that something is wrong, with any spec."""
    return _is_true("Degraded", status)


def _is_true(type_: str, status: Mapping[str, Any] | None) -> bool:
    found = (status or {}).get("conditions") or ()
    return any(condition["type"] == type_ and condition["status"] == "True" for condition in found)
