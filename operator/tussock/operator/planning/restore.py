"""The start of a store from a backup, or as a clone: one pod makes it so, and only then meta nodes start.

Both may be repeated at any point (`docs/backup.md`), so a lost pod is simply made again; the status says when it is
done, and from then on this module does nothing.
"""

from collections.abc import Mapping
from datetime import datetime
from typing import NamedTuple

from tussock.operator.manifests.backup.restore import BACKUP_KEY, clone_manifests, restore_manifests, restore_name
from tussock.operator.manifests.bucket_access import bucket_secret, operator_looks_into
from tussock.operator.manifests.settings import Defaults
from tussock.operator.planning.backups.copies import place_of_copies
from tussock.operator.planning.words.comparison import mark
from tussock.operator.planning.words.components import missing_secret
from tussock.operator.planning.words.conditions import Reason, Verdict, problem_verdict, progress_verdict
from tussock.operator.planning.words.model import Action, Apply, Delete, Manifest, Ref
from tussock.operator.planning.words.ownership import holder_of, own_child
from tussock.operator.planning.words.rollout import last_message, pod_problem
from tussock.operator.resources.backup import StateStoreBackup, parse_backup
from tussock.operator.resources.object_store import AzureStore, GcsStore, ObjectStoreSpec, S3Store
from tussock.operator.resources.store import CloneFrom, RestoreFrom, StateStoreSpec, StoreResource, parse_store

__all__ = ["Restoring", "plan_restore"]


class Restoring(NamedTuple):
    """The progress of a store that starts from a backup, or as a clone."""

    obstacle: Verdict | None = None
    """The verdict while it is not done; `None`: the store may start."""
    actions: tuple[Action, ...] = ()
    keeps: tuple[Ref, ...] = ()
    """Children that it needs."""
    done: str = ""
    """The restored backup, or what was cloned, once that is done."""


class _Source(NamedTuple):
    store: StoreResource
    backup: str


def plan_restore(
    store: StoreResource,
    children: Mapping[Ref, Manifest],
    others: Mapping[Ref, Manifest],
    defaults: Defaults,
    now: datetime,
    *,
    has_store: bool = False,
) -> Restoring:
    """The next step; `others` has the `StateStoreBackup` and `StateStore` objects of the namespace.

    `has_store`: data existed before this StateStore. It continues with them, even with `restoreFrom` in its manifest.
    """
    wanted, clones = store.spec.restore_from, store.spec.clone_from
    done = str(store.status.get("restoredFrom" if clones is None else "clonedFrom", ""))
    if (wanted is None and clones is None) or done or has_store or store.spec.adopt == store.metadata.uid != "":
        return Restoring(done=done)
    refs = Ref("ConfigMap", restore_name(store)), Ref("Pod", restore_name(store))
    begun = str(((children.get(refs[0]) or {}).get("data") or {}).get(BACKUP_KEY, ""))
    pod = own_child(children, refs[1], holder_of(store))
    if pod is not None:
        watched = _watch(store, pod, begun, refs, now)
        obstacle = watched.obstacle
        return watched._replace(obstacle=_add_hint(store, obstacle)) if obstacle is not None else watched
    if clones is not None:
        found = _cloned(store, clones, others)
        if isinstance(found, Verdict):
            return Restoring(_add_hint(store, found), keeps=refs)
        made = clone_manifests(store, found, clones.backup_name, defaults)
        verdict = progress_verdict(Reason.RESTORING, f"The operator is starting to clone StateStore {found.name}.")
        return Restoring(verdict, tuple(Apply(mark(manifest)) for manifest in made), refs)
    assert wanted is not None
    source = _source(store, wanted, begun, others)
    if isinstance(source, _Source):
        place = source.store
        source = missing_secret(bucket_secret(place), place.namespace, others, "the restore") or source
    if isinstance(source, Verdict):
        return Restoring(_add_hint(store, source), keeps=refs)
    made = restore_manifests(store, source.store, source.backup, defaults)
    verdict = progress_verdict(Reason.RESTORING, f"The operator is starting to restore backup {source.backup}.")
    return Restoring(verdict, tuple(Apply(mark(manifest)) for manifest in made), refs)


def _add_hint(store: StoreResource, found: Verdict) -> Verdict:
    """Adds the way out if a manifest still has `restoreFrom` though its restore was done long ago.

    Where the operator looks into the place, it has found no data of a store when it took it.
    """
    if found.reason is not Reason.RESTORE_FAILED or operator_looks_into(store):
        return found
    way_out = f"If the data there are already those of this store, set spec.adopt: {store.metadata.uid}."
    return found._replace(message=f"{found.message} {way_out}")


def _watch(store: StoreResource, pod: Manifest, backup: str, refs: tuple[Ref, ...], now: datetime) -> Restoring:
    name, status = pod["metadata"]["name"], pod.get("status") or {}
    phase = status.get("phase", "Pending")
    if phase == "Succeeded":
        return Restoring(keeps=refs, done=backup)
    if phase == "Failed" and not pod["metadata"].get("deletionTimestamp"):
        # The kubelet restarts its container, so the pod as a whole was lost, as with its node.
        told = f"Pod {name} was lost ({status.get('reason', 'no reason given')}); another one continues."
        return Restoring(progress_verdict(Reason.RESTORING, told), (Delete(refs[1]),), refs)
    if said := last_message(status):
        clones = store.spec.clone_from is not None
        what = f"StateStore {backup} cannot be cloned" if clones else f"Backup {backup} cannot be restored"
        told = f"{what}: {said} Pod {name} tries again."
        return Restoring(problem_verdict(Reason.RESTORE_FAILED, told, progressing=True), keeps=refs)
    problem = pod_problem(pod, now)
    if problem is not None and problem.reason is not Reason.PROBE_FAILED:
        return Restoring(problem_verdict(problem.reason, problem.message, progressing=True), keeps=refs)
    work = f"restoring backup {backup}" if store.spec.clone_from is None else f"cloning StateStore {backup}"
    return Restoring(progress_verdict(Reason.RESTORING, f"Pod {name} is {work}."), keeps=refs)


def _source(store: StoreResource, wanted: RestoreFrom, begun: str, others: Mapping[Ref, Manifest]) -> _Source | Verdict:
    """The store and the name of the backup, or a verdict about what is in the way."""
    if wanted.object_store is not None:
        return _Source(_bucket_of(store, wanted.object_store), wanted.backup_name)
    body = others.get(Ref("StateStoreBackup", wanted.backup))
    if body is None:
        return problem_verdict(
            Reason.RESTORE_FAILED,
            f"There is no StateStoreBackup {wanted.backup} in namespace {store.namespace}, which spec.restoreFrom "
            "names. If it was deleted, set restoreFrom.backupName and restoreFrom.objectStore.",
        )
    backup = parse_backup(body)
    source = others.get(Ref("StateStore", backup.spec.store_ref.name))
    if backup.spec.destination is not None and (source is None or source["metadata"]["uid"] == store.metadata.uid):
        # The store is gone; perhaps this one has its name.
        if name := wanted.backup_name or begun or _newest_copy(backup):
            return _Source(_bucket_of(store, backup.spec.destination), name)
        return problem_verdict(
            Reason.RESTORE_FAILED,
            f"StateStore {backup.spec.store_ref.name} is gone, and the status of StateStoreBackup {backup.name} knows "
            f"of no copy in {place_of_copies(backup)}. `tussock backup list` shows those that are there; name one in "
            "restoreFrom.backupName.",
        )
    if source is None:
        return problem_verdict(
            Reason.RESTORE_FAILED,
            f"StateStoreBackup {backup.name} is a backup of StateStore {backup.spec.store_ref.name}, which is gone. "
            "Create this StateStore again with restoreFrom.backupName and restoreFrom.objectStore.",
        )
    name = wanted.backup_name or begun or str(backup.status.get("backupName", ""))
    if not name:
        told = f"Waiting until StateStoreBackup {backup.name} has made a backup."
        return progress_verdict(Reason.RESTORING, told)
    return _Source(parse_store(source), name)


def _cloned(store: StoreResource, wanted: CloneFrom, others: Mapping[Ref, Manifest]) -> StoreResource | Verdict:
    """The store to clone, or a verdict about what is in the way."""
    body = others.get(Ref("StateStore", wanted.store))
    if body is None:
        return problem_verdict(
            Reason.RESTORE_FAILED,
            f"There is no StateStore {wanted.store} in namespace {store.namespace}, which spec.cloneFrom names.",
        )
    source = parse_store(body)
    if source.metadata.uid == store.metadata.uid:
        return problem_verdict(Reason.RESTORE_FAILED, "spec.cloneFrom names this StateStore itself; name another one.")
    if _reach(source) != _reach(store):
        return problem_verdict(
            Reason.RESTORE_FAILED,
            f"Nodes of this StateStore cannot read SSTs of StateStore {source.name}: a clone needs an object store of "
            "the same server with the same credentials (s3, gcs or azure), in another prefix or bucket. Create it so, "
            "or with restoreFrom, which copies a backup.",
        )
    return source


def _reach(store: StoreResource) -> tuple[object, ...]:
    """What has to be the same in two stores, so that nodes of one reach the bucket of the other."""
    backend = store.spec.object_store.backend
    match backend:
        case S3Store():
            where = (backend.endpoint.rstrip("/"), backend.region, backend.allow_http)
            return ("s3", *where, backend.credentials_secret, backend.service_account)
        case GcsStore():
            return "gcs", backend.credentials_secret, backend.service_account
        case AzureStore():
            return "azure", backend.account, backend.credentials_secret, backend.service_account
    return type(backend).__name__, store.metadata.uid


def _newest_copy(backup: StateStoreBackup) -> str:
    """The newest backup of which the status knows a copy; empty if there is none."""
    return next((str(one["name"]) for one in backup.status.get("backups") or () if one.get("copied")), "")


def _bucket_of(store: StoreResource, place: ObjectStoreSpec) -> StoreResource:
    """A store of which only the bucket is known; its secret is in our namespace."""
    return StoreResource(metadata=store.metadata, spec=StateStoreSpec(object_store=place))
