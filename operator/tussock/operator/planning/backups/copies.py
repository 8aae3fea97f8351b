"""The copies of backups in a destination, and the drills: one pod at a time for each `StateStoreBackup`.

The status remembers which backups have a copy, or were read whole. If it is lost, a copy is made again, which finds
everything there; so a crash at any point does no harm. Copies that go by retention go first, with the pod of the next
copy, and then their backups in the store: a name that the store has forgotten could no longer be deleted elsewhere.
With a retention of the destination's, a copy outlives its backup, or goes before it: then the pod chooses by the
destination's catalogue, once it has made its copy (and read it), and a backup leaves the store when it is copied.
"""

from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from typing import NamedTuple

from tussock.operator.manifests.backup.copy import CopyTask, copy_manifests, copy_name, destination_of, task_in
from tussock.operator.manifests.bucket_access import bucket_secret
from tussock.operator.manifests.settings import Defaults
from tussock.operator.planning.backups.expiry import expired_backups
from tussock.operator.planning.words.comparison import APPLIED, mark
from tussock.operator.planning.words.components import missing_secret
from tussock.operator.planning.words.conditions import Reason, Verdict, problem_verdict, progress_verdict
from tussock.operator.planning.words.facts import HeldBackup
from tussock.operator.planning.words.model import Action, Apply, Manifest, Ref, stamp
from tussock.operator.planning.words.ownership import deletes, holder_of, own_child
from tussock.operator.planning.words.rollout import last_message, pod_problem
from tussock.operator.resources.backup import StateStoreBackup
from tussock.operator.resources.object_store import AzureStore, Backend, GcsStore, S3Store, bucket_url
from tussock.operator.resources.store import StoreResource

__all__ = ["Copies", "Mark", "known_copies", "place_of_copies", "plan_copies"]


FAILURES_MAX = 5
"""Of a pod that waits to be started once more: after that many, some minutes of them, another backup has its turn."""


class Mark(NamedTuple):
    """What the status says of one backup."""

    copied: bool | None = None
    """`False`: its copy was deleted; `None`: it was not copied yet."""
    verified: str = ""
    """When it was read whole; empty: it was not."""


class Copies(NamedTuple):
    """What to do about copies, and what is known of them."""

    marks: Mapping[str, Mark]
    """By the name of the backup."""
    gone: tuple[HeldBackup, ...]
    """Expired backups that may be deleted in the store: nothing of them is left elsewhere."""
    verdict: Verdict | None = None
    """What is under way or wrong; `None`: nothing."""
    actions: tuple[Action, ...] = ()
    copied: str = ""
    """When a copy was finished, if this pass sees it."""
    verified: str = ""


def place_of_copies(backup: StateStoreBackup) -> str:
    """Where copies are, for people and for the status: other marks are of another place. Empty without destination."""
    destination = destination_of(backup)
    if destination is None:
        return ""
    backend, url = destination.spec.object_store.backend, bucket_url(destination.spec.object_store)
    match backend:
        case S3Store(endpoint=endpoint) if endpoint:
            return f"{url} at {endpoint}"
        case AzureStore(account=account):
            return f"{url} of account {account}"
    return url


def known_copies(backup: StateStoreBackup) -> Copies:
    """What the status says, and nothing to do."""
    return Copies(_marks(backup), ())


def plan_copies(
    backup: StateStoreBackup,
    store: StoreResource | None,
    own: Sequence[HeldBackup] | None,
    gone: Sequence[HeldBackup],
    children: Mapping[Ref, Manifest],
    others: Mapping[Ref, Manifest],
    defaults: Defaults,
    now: datetime,
    *,
    may_start: bool,
) -> Copies:
    """The next step.

    Args:
        backup: the object.
        store: its store; nothing is begun without one.
        own: its backups in the store, the newest first; `None` before they were listed.
        gone: those of them that have expired.
        children: the object's own.
        others: with the secrets of the namespace.
        defaults: the operator's.
        now: the time.
        may_start: no rest, pause or obstacle is in the way of a pod.
    """
    holder, marks = holder_of(backup), _marks(backup)
    if own is None:
        return known_copies(backup)
    refs = Ref("Pod", copy_name(backup)), Ref("ConfigMap", copy_name(backup))
    pod, begun = own_child(children, refs[0], holder), task_in(own_child(children, refs[1], holder))
    ended = ""
    if pod is not None and begun is not None and (pod.get("status") or {}).get("phase") == "Succeeded":
        ended = _end_of(pod, now)
        marks = _after(marks, begun, ended, is_copied=backup.spec.destination is not None)
    apart = _expired_there(backup, own, now)
    found = Copies(marks, _deletable(backup, marks, own, gone, apart, begun if pod is not None else None))
    if ended and begun is not None:
        # The next pass deletes the pod: until the status has it, the pod is what tells of its end.
        named = {begun.backup, *begun.drops} & {one.name for one in own}
        is_noted = all(_marks(backup).get(name) == marks.get(name) for name in named)
        return found._replace(
            actions=deletes(children, refs, holder) if is_noted else (),
            copied=ended if backup.spec.destination is not None else "",
            verified=ended if begun.verifies else "",
        )
    if apart is None:
        kept = [one for one in own if one not in gone]
        drops = [one.name for one in gone if _is_elsewhere(backup, marks, one)]
    else:
        kept = [one for one in own if one.name not in apart]
        drops = [one.name for one in own if one.name in apart and _mark_of(marks, one.name).copied]
    task = _next_task(backup, marks, kept, drops)
    if task is None:
        return found._replace(actions=deletes(children, refs, holder))
    if store is None or not (may_start or pod is not None):
        return found
    if wrong := _overlap(backup, store) or _gap(backup, store, others):
        return found._replace(verdict=wrong)
    if pod is None:
        made = copy_manifests(backup, store, task, defaults)
        verdict = progress_verdict(Reason.RUNNING, f"The operator is starting to {_work_text(backup, task)}.")
        return found._replace(verdict=verdict, actions=tuple(Apply(mark(manifest)) for manifest in made))
    # A backup that has expired meanwhile is copied to the end: else a slow copy might never come to one.
    if begun is not None and begun.backup in {one.name for one in own} and not _stands_in_the_way(pod, begun, task):
        verdict_on_pod = _watch(backup, begun, pod, now)
        if verdict_on_pod is not None and _is_as_wanted(backup, store, begun, pod, defaults):
            return found._replace(verdict=verdict_on_pod)
    # Its node was lost, or its settings or its backup; or it would be made otherwise now: another one goes on.
    told = f"Pod {refs[0].name} is replaced, to {_work_text(backup, task)}."
    return found._replace(verdict=progress_verdict(Reason.RUNNING, told), actions=deletes(children, refs, holder))


def _expired_there(backup: StateStoreBackup, own: Sequence[HeldBackup], now: datetime) -> set[str] | None:
    """The backups whose copies the destination's own retention does not keep; `None` without one."""
    rule = backup.spec.destination.retention if backup.spec.destination is not None else None
    return None if rule is None else {one.name for one in expired_backups(own, rule, now)}


def _deletable(
    backup: StateStoreBackup,
    marks: Mapping[str, Mark],
    own: Sequence[HeldBackup],
    gone: Sequence[HeldBackup],
    apart: set[str] | None,
    begun: CopyTask | None,
) -> tuple[HeldBackup, ...]:
    """The expired backups that may leave the store: nothing of them is left elsewhere, or what is stays there."""
    if apart is None:
        return tuple(one for one in gone if not _is_elsewhere(backup, marks, one))
    # One that the destination still waits for stays, unless there are more of them than the status can remember.
    waiting = {one.name for one in own if one.name not in apart and _mark_of(marks, one.name).copied is None}
    waiting |= {begun.backup} if begun is not None else set()
    return tuple(one for one in gone if one.name not in waiting)


def _stands_in_the_way(pod: Manifest, begun: CopyTask, task: CopyTask) -> bool:
    """Whether a pod fails again and again, as with a damaged SST, while another backup waits, which may be whole."""
    return begun.backup != task.backup and any(
        one.get("restartCount", 0) >= FAILURES_MAX and (one.get("state") or {}).get("waiting")
        for one in (pod.get("status") or {}).get("containerStatuses") or ()
    )


def _watch(backup: StateStoreBackup, begun: CopyTask, pod: Manifest, now: datetime) -> Verdict | None:
    """The verdict on the pod; `None` if it was lost."""
    name, status = pod["metadata"]["name"], pod.get("status") or {}
    if status.get("phase") == "Failed":
        # The kubelet restarts its container, so the pod as a whole was lost, as with its node.
        return None
    work = _work_text(backup, begun)
    if said := last_message(status):
        told = f"Pod {name} could not {work}: {said} It tries again."
        return problem_verdict(Reason.BACKUP_FAILED, told, progressing=True)
    problem = pod_problem(pod, now)
    if problem is not None and problem.reason is not Reason.PROBE_FAILED:
        return problem_verdict(problem.reason, problem.message, progressing=True)
    return progress_verdict(Reason.RUNNING, f"Pod {name} is running to {work}.")


def _is_as_wanted(
    backup: StateStoreBackup, store: StoreResource, begun: CopyTask, pod: Manifest, defaults: Defaults
) -> bool:
    """Whether the pod is what it would be made as now: a corrected secret or image must not wait for the old one."""
    wanted = mark(copy_manifests(backup, store, begun, defaults)[1])
    return bool((pod["metadata"].get("annotations") or {}).get(APPLIED) == wanted["metadata"]["annotations"][APPLIED])


def _next_task(
    backup: StateStoreBackup, marks: Mapping[str, Mark], kept: Sequence[HeldBackup], drops: Sequence[str]
) -> CopyTask | None:
    """What is missing; the newest backup is worth the most."""
    verifies = backup.spec.verify
    if not kept:
        return None
    newest = kept[0].name
    unread = verifies and not _mark_of(marks, newest).verified
    if backup.spec.destination is None:
        return CopyTask(newest, verifies=True) if unread else None
    missing = next((one.name for one in kept if _mark_of(marks, one.name).copied is not True), None)
    if missing is not None:
        return CopyTask(missing, tuple(drops), verifies)
    return CopyTask(newest, tuple(drops), unread) if drops or unread else None


def _is_elsewhere(backup: StateStoreBackup, marks: Mapping[str, Mark], one: HeldBackup) -> bool:
    """Whether a copy of it may be in the destination: also one that was begun and never finished."""
    return backup.spec.destination is not None and _mark_of(marks, one.name).copied is not False


def _after(marks: Mapping[str, Mark], task: CopyTask, ended: str, *, is_copied: bool) -> dict[str, Mark]:
    """The marks once a task has succeeded."""
    before = _mark_of(marks, task.backup)
    done = Mark(True if is_copied else before.copied, ended if task.verifies else before.verified)
    dropped = {name: _mark_of(marks, name)._replace(copied=False) for name in task.drops}
    return {**marks, task.backup: done, **dropped}


def _mark_of(marks: Mapping[str, Mark], name: str) -> Mark:
    return marks.get(name, Mark())


def _marks(backup: StateStoreBackup) -> dict[str, Mark]:
    is_same_place = backup.status.get("destination", "") == place_of_copies(backup)
    return {
        str(one["name"]): Mark(one.get("copied") if is_same_place else None, str(one.get("verifyTime", "")))
        for one in backup.status.get("backups") or ()
    }


def _end_of(pod: Manifest, now: datetime) -> str:
    for container in (pod.get("status") or {}).get("containerStatuses") or ():
        ended = ((container.get("state") or {}).get("terminated") or {}).get("finishedAt")
        if ended:
            return str(ended)
    return stamp(now.astimezone(UTC))


def _gap(backup: StateStoreBackup, store: StoreResource, others: Mapping[Ref, Manifest]) -> Verdict | None:
    """A verdict on a secret that the pod would wait for without a message."""
    for place in (destination_of(backup), store):
        if place is not None and (found := missing_secret(bucket_secret(place), place.namespace, others, "the copy")):
            return found
    return None


def _overlap(backup: StateStoreBackup, store: StoreResource) -> Verdict | None:
    """A verdict on a destination in the store's place or around it: each would have the other's objects."""
    destination = destination_of(backup)
    if destination is None:
        return None
    there, here = _path(destination.spec.object_store.backend), _path(store.spec.object_store.backend)
    if there is None or here is None or not (there.startswith(here) or here.startswith(there)):
        return None
    return problem_verdict(
        Reason.INVALID_SPEC,
        f"spec.destination: {place_of_copies(backup)} overlaps with the place of StateStore {store.name}, "
        f"{bucket_url(store.spec.object_store)}. Make another StateStoreBackup, with another bucket or with a prefix "
        "that neither contains that one nor lies within it.",
    )


def _path(backend: Backend) -> str | None:
    """Where it is, with a `/` at its end; `None` if no destination can be there."""
    match backend:
        case S3Store(endpoint=endpoint, bucket=bucket, prefix=prefix):
            parts = [endpoint.rstrip("/") or "s3", bucket, prefix.strip("/")]
        case GcsStore(bucket=bucket, prefix=prefix):
            parts = ["gs", bucket, prefix.strip("/")]
        case AzureStore(account=account, container=container, prefix=prefix):
            parts = ["az", account, container, prefix.strip("/")]
        case _:
            return None
    return "/".join(part for part in parts if part) + "/"


def _work_text(backup: StateStoreBackup, task: CopyTask) -> str:
    if backup.spec.destination is None:
        return f"read backup {task.backup} whole"
    also = " and read it whole" if task.verifies else ""
    return f"copy backup {task.backup} to {place_of_copies(backup)}{also}"
