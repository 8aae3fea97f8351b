"""The plan of a `StateStoreBackup`: which backups are due, which have expired, and what goes with the object.

A backup's name and id follow from the uid of the object and the time of the schedule. So an operator that died after it
had asked for one asks for the same again, and finds it made; and the id shows which backups belong to this object,
whatever else the store has.

Of the missed times of a schedule, only the newest is made up for. The status remembers up to which time the schedule
was followed, so that a backup which a user deleted in the store is not made again.
"""

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any, NamedTuple

from tussock.meta.retention.unkept import age_of
from tussock.operator.manifests.backup.copy import own_prefix
from tussock.operator.manifests.settings import Defaults
from tussock.operator.planning.backups.copies import Copies, Mark, known_copies, place_of_copies, plan_copies
from tussock.operator.planning.backups.expiry import expired_backups
from tussock.operator.planning.schedules import parse_schedule
from tussock.operator.planning.words.components import last_verdict, status_conditions, store_wait_verdict
from tussock.operator.planning.words.conditions import Reason, Verdict, idle_verdict, problem_verdict, progress_verdict
from tussock.operator.planning.words.facts import BackupsFact, HeldBackup
from tussock.operator.planning.words.model import (
    Action,
    Hold,
    Observed,
    Plan,
    Ref,
    Release,
    Work,
    moment_of,
    seconds_since,
    stamp,
)
from tussock.operator.resources.backup import StateStoreBackup
from tussock.operator.resources.object_store import bucket_url
from tussock.operator.resources.store import StoreResource

__all__ = ["TEND_BACKUPS", "BackupFacts", "backup_id", "backup_name", "plan_backup", "retry_seconds"]

TEND_BACKUPS = "tend-backups"
RETRY_SECONDS = 10.0
"""The interval of new attempts after a failure, and while others are awaited."""
RETRY_SECONDS_MAX = 300.0
"""An attempt reads all of a store's version, so what keeps failing is tried ever more rarely."""
DROPS_MAX = 10
"""Backups deleted in one pass; the others follow."""
STATUS_BACKUPS_MAX = 500
"""The schema's limit for a list in the status."""


@dataclass(frozen=True)
class BackupFacts:
    """What the plan of a `StateStoreBackup` needs."""

    store: StoreResource | None
    serves: bool = False
    """A meta node of the store can be asked."""
    tended: BackupsFact | None = None
    """`None` before the store's backups were listed for the first time."""
    defaults: Defaults = field(default_factory=Defaults)


class _Due(NamedTuple):
    """A backup that should exist and does not."""

    name: str
    scheduled: datetime | None


def retry_seconds(tended: BackupsFact | None) -> float:
    """The pause before the next attempt: doubles with each failure in a row, up to five minutes."""
    failures = 0 if tended is None or not tended.problem else tended.failures
    return min(RETRY_SECONDS * 2.0 ** min(max(failures - 1, 0), 10), RETRY_SECONDS_MAX)


def backup_name(backup: StateStoreBackup, scheduled: datetime | None) -> str:
    """The name in the store of the backup that an object makes at a time of its schedule; at most 65 characters.

    Another object of the same name, after this one was deleted, makes backups of other names.
    """
    own = own_prefix(backup)
    return own if scheduled is None else f"{own}-{scheduled.astimezone(UTC):%Y%m%d-%H%M}"


def backup_id(backup: StateStoreBackup, name: str) -> str:
    """The id of a backup that an object makes under a name: 32 hex digits."""
    return hashlib.sha256(f"{backup.metadata.uid}/{name}".encode()).hexdigest()[:32]


def plan_backup(backup: StateStoreBackup, observed: Observed[BackupFacts], now: datetime) -> Plan:
    """The plan for a `StateStoreBackup`."""
    own = _own_backups(backup, observed.facts.tended)
    if backup.is_being_deleted:
        return _depart(backup, observed, own or (), now)
    schedule = parse_schedule(backup.spec.schedule, backup.spec.time_zone) if backup.spec.schedule else None
    due = _due_backup(backup, own or (), schedule.latest_time(now) if schedule else None)
    upcoming = schedule.next_time(now) if schedule and not backup.spec.suspend else None
    gone = [] if backup.spec.suspend or own is None else expired_backups(own, backup.spec.retention, now)[:DROPS_MAX]
    waits = _wait_verdict(backup, observed, own)
    copies = plan_copies(
        backup,
        observed.facts.store,
        None if own is None else own[:STATUS_BACKUPS_MAX],
        gone,
        observed.children,
        observed.others,
        observed.facts.defaults,
        now,
        may_start=waits is None and due is None and not backup.spec.suspend,
    )
    gone = list(copies.gone)
    actions: tuple[Work, ...] = ()
    if backup.spec.suspend and (due or schedule):
        verdict = idle_verdict(Reason.SUSPENDED, "The operator makes no backups until spec.suspend is false.")
    elif waits is not None and due is not None:
        verdict = waits
    else:
        verdict = _verdict(backup, observed.facts.tended, own, due, gone, upcoming)
        actions = _work(backup, due, gone) if waits is None else ()
        if copies.verdict is not None and not verdict.degraded and due is None:
            verdict = copies.verdict
    marks = copies.marks if own is None else {one.name: copies.marks.get(one.name, Mark()) for one in own}
    has_copy = backup.spec.destination is None or any(mark.copied for mark in marks.values())
    verdict = _orphan_verdict(backup, observed) or verdict._replace(ready=_count(backup, own) > 0 and has_copy)
    pending = due is not None or bool(gone) or observed.facts.tended is None or bool(observed.facts.tended.problem)
    after = [retry_seconds(observed.facts.tended)] if pending and not backup.spec.suspend else []
    after += [(upcoming - now).total_seconds()] if upcoming else []
    status = _status(backup, observed.facts.store, own, verdict, now)
    status |= _times(backup, own or (), due, upcoming, schedule.latest_time(now) if schedule else None)
    return Plan((Hold(), *copies.actions, *actions), _with_copies(backup, status, copies), min(after, default=None))


def _own_backups(backup: StateStoreBackup, tended: BackupsFact | None) -> tuple[HeldBackup, ...] | None:
    """The backups that this object has made, newest first; `None` before the first list."""
    if tended is None or tended.backups is None:
        return None
    own = [found for found in tended.backups if found.id == backup_id(backup, found.name)]
    return tuple(sorted(own, key=age_of, reverse=True))


def _due_backup(backup: StateStoreBackup, own: Sequence[HeldBackup], latest: datetime | None) -> _Due | None:
    name = backup_name(backup, latest)
    if any(found.name == name for found in own):
        return None
    if latest is None:
        return None if backup.status.get("backupName") == name else _Due(name, None)
    followed = [backup.metadata.creation_timestamp, backup.status.get("lastScheduleTime", "")]
    since = max(filter(None, map(moment_of, followed)), default=datetime.min.replace(tzinfo=UTC))
    return _Due(name, latest) if latest > since else None


def _wait_verdict(
    backup: StateStoreBackup, observed: Observed[BackupFacts], own: Sequence[HeldBackup] | None
) -> Verdict | None:
    """What prevents asking the store; `None` if nothing does."""
    name, facts = backup.spec.store_ref.name, observed.facts
    waits = store_wait_verdict(observed.others.get(Ref("StateStore", name)), name)
    if facts.store is None:
        return waits or progress_verdict(Reason.WAITING_FOR_STORE, f"StateStore {name} is invalid; see its status.")
    if facts.store.is_being_deleted:
        return progress_verdict(Reason.WAITING_FOR_STORE, f"StateStore {name} is being deleted.")
    if facts.store.spec.paused:
        return idle_verdict(
            Reason.PAUSED, f"StateStore {name} is paused: the operator makes no backups until spec.paused is false."
        )
    if not facts.serves:
        # Meta nodes that serve make backups, even if the store cannot be changed.
        return waits or progress_verdict(
            Reason.WAITING_FOR_META, f"Waiting until a meta node of StateStore {name} serves."
        )
    if own is None and not (facts.tended and facts.tended.problem):
        # After its start, the operator keeps the object as it was until the store has been asked.
        return last_verdict(backup) or progress_verdict(
            Reason.RECONCILING, f"The operator is listing the backups of StateStore {name}."
        )
    return None


def _orphan_verdict(backup: StateStoreBackup, observed: Observed[BackupFacts]) -> Verdict | None:
    """The verdict on an object whose store is going or gone; `None` if it exists, or was never backed up."""
    name, store = backup.spec.store_ref.name, observed.facts.store
    is_gone = Ref("StateStore", name) not in observed.others
    if not backup.status.get("backupName") or not (is_gone or (store is not None and store.is_being_deleted)):
        return None
    where = str(backup.status.get("storeUrl", "")) or "its bucket"
    return problem_verdict(
        Reason.STORE_GONE,
        f"StateStore {name} {'is gone' if is_gone else 'is being deleted'}, so the operator cannot check whether "
        f"backup {backup.status['backupName']} still exists. A backup in a bucket stays there ({where}): restore it "
        "with restoreFrom.backupName and restoreFrom.objectStore. On the disk of a managed object store, the store's "
        f"deletionPolicy decides.{_copies_text(backup)}",
    )


def _copies_text(backup: StateStoreBackup) -> str:
    """What outlives the store; empty if nothing does."""
    count = sum(bool(one.get("copied")) for one in backup.status.get("backups") or ())
    if not count or backup.spec.destination is None:
        return ""
    return f" Copies in {place_of_copies(backup)}: {count}; restoreFrom.backup takes the newest of them."


def _count(backup: StateStoreBackup, own: Sequence[HeldBackup] | None) -> int:
    """The number of backups, as far as is known."""
    return int(backup.status.get("count", 0)) if own is None else len(own)


def _verdict(
    backup: StateStoreBackup,
    tended: BackupsFact | None,
    own: Sequence[HeldBackup] | None,
    due: _Due | None,
    gone: Sequence[HeldBackup],
    upcoming: datetime | None,
) -> Verdict:
    """The verdict if nothing is in the way. A store that does not answer is a problem only if work is due."""
    problem, store = tended.problem if tended is not None else "", backup.spec.store_ref.name
    when = f" The next one is due at {stamp(upcoming)}." if upcoming else ""
    if problem and (due or gone):
        what = f"Backup {due.name} could not be made" if due else f"Backup {gone[0].name} could not be deleted"
        return problem_verdict(
            Reason.BACKUP_FAILED, f"{what} in StateStore {store}: {problem} The operator tries again.{when}"
        )
    if due is not None:
        return progress_verdict(Reason.RUNNING, f"StateStore {store} is making backup {due.name}.")
    if upcoming is not None:
        count = _count(backup, own)
        return idle_verdict(Reason.SCHEDULED, f"Backups of this object in StateStore {store}: {count}.{when}")
    name = own[0].name if own else backup.status.get("backupName", "")
    if own is not None and not own:
        return problem_verdict(
            Reason.BACKUP_FAILED, f"Backup {name} is no longer in StateStore {store}; create another StateStoreBackup."
        )
    return idle_verdict(Reason.COMPLETED, f"Backup {name} of StateStore {store} is complete.")


def _work(backup: StateStoreBackup, due: _Due | None, gone: Sequence[HeldBackup]) -> tuple[Work, ...]:
    if due is None and not gone:
        return ()
    make = [(due.name, backup_id(backup, due.name), backup.spec.comment)] if due else []
    return (Work(TEND_BACKUPS, {"make": make, "drop": [found.name for found in gone], "leaving": False}),)


def _depart(
    backup: StateStoreBackup, observed: Observed[BackupFacts], own: Sequence[HeldBackup], now: datetime
) -> Plan:
    """Delete the object's backups, if they are to go, and then release it: after a deadline in any case."""
    facts = observed.facts

    def plan(verdict: Verdict, *actions: Action) -> Plan:
        status = _status(backup, facts.store, own or None, verdict, now)
        return Plan(actions, _with_copies(backup, status, known_copies(backup)), RETRY_SECONDS / 2)

    if backup.spec.deletion_policy == "Retain":
        return plan(progress_verdict(Reason.DELETING, "Its backups stay in the store."), Release())
    tended = facts.tended
    if tended is not None and tended.leaving and tended.backups is not None and not own:
        return plan(progress_verdict(Reason.DELETING, "Its backups are deleted."), Release())
    if facts.store is None or facts.store.is_being_deleted:
        told = (
            f"StateStore {backup.spec.store_ref.name} is gone or is being deleted, so the backups in its bucket stay."
        )
        return plan(progress_verdict(Reason.DELETING, told), Release())
    named = ", ".join(found.name for found in own[:5]) or backup.status.get("backupName", "if there are any")
    problem = (tended.problem if tended else "") or "no meta node of the store serves."
    if seconds_since(backup.metadata.deletion_timestamp, now) >= facts.store.spec.deletion_deadline_seconds:
        return plan(
            problem_verdict(Reason.DELETION_GAVE_UP, f"The operator could not delete the backups ({named}): {problem}"),
            Release(),
        )
    waiting = progress_verdict(Reason.DELETING, f"Deleting its backups ({named}).")
    if not facts.serves:
        return plan(waiting)
    return plan(
        waiting, Work(TEND_BACKUPS, {"make": [], "drop": [found.name for found in own[:DROPS_MAX]], "leaving": True})
    )


def _status(
    backup: StateStoreBackup,
    store: StoreResource | None,
    own: Sequence[HeldBackup] | None,
    verdict: Verdict,
    now: datetime,
) -> dict[str, Any]:
    kept = ("storeUrl", "backupName", "epoch", "bytes", "count", "lastBackupTime", "lastScheduleTime", "backups")
    status = {name: backup.status[name] for name in kept if name in backup.status}
    status["observedGeneration"] = backup.metadata.generation
    status["conditions"] = status_conditions(backup, verdict, now)
    if store is not None:
        status["storeUrl"] = bucket_url(store.spec.object_store)
    if own is None:
        return status
    status["count"] = len(own)
    status["backups"] = [
        {"name": found.name, "epoch": found.epoch, "time": _time(found), "bytes": found.bytes}
        for found in own[:STATUS_BACKUPS_MAX]
    ]
    if own:
        newest = own[0]
        about = {"backupName": newest.name, "epoch": newest.epoch, "bytes": newest.bytes}
        status |= {**about, "lastBackupTime": _time(newest)}
    return status


def _with_copies(backup: StateStoreBackup, status: dict[str, Any], copies: Copies) -> dict[str, Any]:
    """The status with what is known of copies and drills."""
    seen = {"lastCopyTime": copies.copied, "lastVerifyTime": copies.verified}
    times = {name: time or backup.status.get(name) for name, time in seen.items()}
    status = {**status, **{name: time for name, time in times.items() if time}}
    listed = []
    for one in status.get("backups", ()):
        mark = copies.marks.get(one["name"], Mark())
        copied = {} if mark.copied is None else {"copied": mark.copied}
        plain = {name: value for name, value in one.items() if name not in ("copied", "verifyTime")}
        listed.append({**plain, **copied, **({"verifyTime": mark.verified} if mark.verified else {})})
    if listed or "backups" in status:
        status["backups"] = listed
    if place := place_of_copies(backup):
        status |= {"destination": place, "copies": sum(bool(one.get("copied")) for one in listed)}
    return status


def _times(
    backup: StateStoreBackup,
    own: Sequence[HeldBackup],
    due: _Due | None,
    upcoming: datetime | None,
    latest: datetime | None,
) -> dict[str, str]:
    """When the schedule was followed last, and when it is due next."""
    found = {"nextScheduleTime": stamp(upcoming)} if upcoming else {}
    if latest is not None and due is None and any(one.name == backup_name(backup, latest) for one in own):
        found["lastScheduleTime"] = stamp(latest)
    return found


def _time(held: HeldBackup) -> str:
    return stamp(datetime.fromtimestamp(held.created_ms // 1000, UTC))
