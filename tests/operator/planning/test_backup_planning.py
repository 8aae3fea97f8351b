"""The plan of a backup: once or by schedule, never made twice, deleted by retention and with its object."""

from datetime import datetime, timedelta
from typing import Any
from zoneinfo import ZoneInfo

import pytest

from support.operator.computes import NOW, at, body, store
from tussock.meta.version.deltas.backups import check_backup_name
from tussock.operator.planning.backup import (
    TEND_BACKUPS,
    BackupFacts,
    backup_id,
    backup_name,
    plan_backup,
    retry_seconds,
)
from tussock.operator.planning.backups.expiry import expired_backups
from tussock.operator.planning.words.facts import BackupsFact, HeldBackup
from tussock.operator.planning.words.model import Hold, Observed, Plan, Ref, Release, Work
from tussock.operator.resources.backup import Retention, parse_backup
from tussock.operator.resources.common import InvalidResource
from tussock.operator.resources.store import parse_store


class Case:
    """A `StateStoreBackup` and its store; `settle` acts as the store until nothing is left to do."""

    def __init__(self, *, age: float = 3600, **spec: Any) -> None:
        self.body = body("StateStoreBackup", "nightly", {"storeRef": {"name": "s"}, **spec}, creationTimestamp=at(-age))
        self.body["status"] = {}
        self.store: dict[str, Any] | None = store()
        self.held: list[HeldBackup] | None = []
        self.problem = ""
        self.failures = 0
        self.serves = True
        self.leaving = False
        self.now = NOW
        self.made: list[str] = []

    def plan(self) -> Plan:
        others = {Ref("StateStore", "s"): self.store} if self.store else {}
        tended = None if self.held is None and not self.problem else self._tend()
        facts = BackupFacts(parse_store(self.store) if self.store else None, self.serves, tended)
        return plan_backup(parse_backup(self.body), Observed(facts, {}, others), self.now)

    def _tend(self) -> BackupsFact:
        return BackupsFact(None if self.held is None else tuple(self.held), self.problem, self.leaving, self.failures)

    def work(self, plan: Plan) -> dict[str, Any] | None:
        works = [action for action in plan.actions if isinstance(action, Work)]
        assert all(found.name == TEND_BACKUPS for found in works)
        assert len(works) <= 1
        return works[0].arguments if works else None

    def pass_(self) -> Plan:
        """One pass: carry out the plan and write its status."""
        plan = self.plan()
        if (wanted := self.work(plan)) and not self.problem:
            assert self.held is not None
            self.held = [found for found in self.held if found.name not in wanted["drop"]]
            self.leaving = wanted["leaving"]
            for name, id_, _ in wanted["make"]:
                if all(found.name != name for found in self.held):
                    self.made.append(name)
                    self.held.append(held_backup(name, id_, self.now))
        self.body["status"] = plan.status
        return plan

    def settle(self) -> Plan:
        for _ in range(5):
            plan = self.pass_()
            if self.work(plan) is None:
                return plan
        raise AssertionError("there is always more to do")

    def after(self, seconds: float) -> None:
        self.now += timedelta(seconds=seconds)

    def delete(self) -> None:
        self.body["metadata"]["deletionTimestamp"] = self.now.strftime("%Y-%m-%dT%H:%M:%SZ")

    def name(self, scheduled: datetime | None = None) -> str:
        return backup_name(parse_backup(self.body), scheduled)


def held_backup(name: str, id_: str, made: datetime) -> HeldBackup:
    return HeldBackup(name, id_, 7, 1000, int(made.timestamp() * 1000))


def ready_of(plan: Plan) -> tuple[str, str, str]:
    """Ready, Degraded and the reason."""
    found = {condition["type"]: condition for condition in plan.status["conditions"]}
    return found["Ready"]["status"], found["Degraded"]["status"], found["Ready"]["reason"]


def test_a_backup_without_schedule_is_made_at_once_and_once() -> None:
    case = Case(comment="before the migration")
    plan = case.plan()
    assert isinstance(plan.actions[0], Hold)
    wanted = case.work(plan)
    assert wanted is not None
    assert wanted["make"] == [(case.name(), backup_id(parse_backup(case.body), case.name()), "before the migration")]
    assert ready_of(plan) == ("False", "False", "Running")
    plan = case.settle()
    assert case.made == [case.name()]
    assert ready_of(plan) == ("True", "False", "Completed")
    assert plan.status["backups"] == [{"name": case.name(), "epoch": 7, "time": at(0), "bytes": 1000}]
    assert (plan.status["backupName"], plan.status["count"]) == (case.name(), 1)
    assert plan.status["storeUrl"] == "s3://tussock"
    assert plan.again_seconds is None


@pytest.mark.parametrize("schedule", ["", "*/10 * * * *"])
@pytest.mark.parametrize("lost", ["status", "answer"])
def test_a_crash_at_any_point_makes_no_second_backup(schedule: str, lost: str) -> None:
    """The same name and id are requested again, or the backup is found; so the store makes it once."""
    case = Case(**({"schedule": schedule} if schedule else {}))
    first = case.pass_()
    if lost == "status":
        case.body["status"] = {}
    else:
        # The next operator has listed the store before the backup was finished.
        finished, case.held = case.held, []
        assert case.work(case.plan()) == case.work(first)
        case.held = finished
    case.settle()
    assert len(case.made) == 1


def test_a_backup_that_a_user_deleted_is_not_made_again() -> None:
    """A user deleted it in the store: one of a schedule is skipped; a single one is reported as missing."""
    case = Case(schedule="0 0 * * *", age=86400 * 3)
    case.settle()
    case.held = []
    plan = case.settle()
    assert (case.made, plan.status["count"], ready_of(plan)) == ([case.name(NOW.replace(hour=0))], 0, SCHEDULED_EMPTY)
    case = Case()
    case.settle()
    case.held = []
    plan = case.settle()
    assert ready_of(plan) == ("False", "True", "BackupFailed")
    assert "is no longer in StateStore s" in plan.status["conditions"][0]["message"]


SCHEDULED_EMPTY = ("False", "False", "Scheduled")


def test_a_schedule_makes_a_backup_each_time() -> None:
    """The first time after the object's creation counts, and the plan waits for it to the second."""
    case = Case(schedule="*/10 * * * *", age=60)
    case.now = NOW + timedelta(seconds=5)
    case.body["metadata"]["creationTimestamp"] = at(1)
    plan = case.settle()
    assert (case.made, ready_of(plan), plan.again_seconds) == ([], SCHEDULED_EMPTY, 595)
    assert plan.status["nextScheduleTime"] == at(600)
    case.after(594)
    assert case.settle().again_seconds == 1
    assert case.made == []
    case.after(1)
    plan = case.settle()
    assert case.made == [case.name(NOW + timedelta(minutes=10))]
    assert (plan.status["lastScheduleTime"], plan.status["nextScheduleTime"]) == (at(600), at(1200))
    assert ready_of(plan) == ("True", "False", "Scheduled")


def test_only_the_newest_missed_time_is_made_up_for() -> None:
    case = Case(schedule="*/10 * * * *")
    case.settle()
    case.after(3600 * 5 + 7)
    case.settle()
    assert case.made == [case.name(NOW), case.name(NOW + timedelta(hours=5))]


def made_by_hours(case: Case, hours: int) -> list[str]:
    """What is made within some hours, with a pass every half an hour: the times in UTC, from the names."""
    for _ in range(2 * hours):
        case.settle()
        case.after(1800)
    return [name.partition("-20")[2] for name in case.made]


@pytest.mark.parametrize(
    ("schedule", "zone", "start", "made"),
    [
        ("30 2 * * *", "UTC", "2026-03-28", ["260328-0230", "260329-0230", "260330-0230"]),
        # 29 March 2026, Berlin: 02:00 becomes 03:00. A night without 02:30 has its backup an hour later, at 03:30.
        ("30 2 * * *", "Europe/Berlin", "2026-03-28", ["260328-0130", "260329-0130", "260330-0030"]),
        # 25 October 2026, Berlin: 02:30 comes twice. The night has one backup, at the first.
        ("30 2 * * *", "Europe/Berlin", "2026-10-24", ["261024-0030", "261025-0030", "261026-0130"]),
        # Lord Howe Island, 4 October 2026: 02:00 becomes 02:30, and the day is half an hour shorter.
        ("0 3 * * *", "Australia/Lord_Howe", "2026-10-02", ["261002-1630", "261003-1600", "261004-1600"]),
        ("0 3 * * *", "Asia/Kathmandu", "2026-03-28", ["260328-2115", "260329-2115", "260330-2115"]),
    ],
)
def test_a_schedule_follows_the_clock_of_its_zone(schedule: str, zone: str, start: str, made: list[str]) -> None:
    """One backup each night, also in those in which the clock is put forward or back; names have the time in UTC."""
    case = Case(schedule=schedule, timeZone=zone)
    case.now = datetime.fromisoformat(f"{start}T00:00:00+00:00")
    case.body["metadata"]["creationTimestamp"] = f"{start}T00:00:00Z"
    assert made_by_hours(case, 72) == made


@pytest.mark.parametrize(
    ("zone", "day"),
    [
        ("Europe/Berlin", "2026-03-29"),
        ("Europe/Berlin", "2026-10-25"),
        ("America/New_York", "2026-03-08"),
        ("America/New_York", "2026-11-01"),
        ("Australia/Lord_Howe", "2026-04-04"),
        ("Australia/Lord_Howe", "2026-10-03"),
    ],
)
def test_a_schedule_of_every_hour_has_no_gap_when_the_clock_changes(zone: str, day: str) -> None:
    """The hour that comes twice has two backups of different names, and none is made twice."""
    case = Case(schedule="0,30 * * * *", timeZone=zone)
    case.now = datetime.fromisoformat(f"{day}T00:00:00+00:00")
    case.body["metadata"]["creationTimestamp"] = f"{day}T00:00:00Z"
    offsets = {(case.now + timedelta(hours=hours)).astimezone(ZoneInfo(zone)).utcoffset() for hours in (0, 24)}
    assert len(offsets) == 2, "the clock of the zone changes on that day"
    made = made_by_hours(case, 24)
    assert len(made) == len(set(made)) == 47


@pytest.mark.parametrize("zone", ["Europe/Atlantis", "Europe", "../etc/passwd"])
def test_a_zone_that_does_not_exist_is_refused(zone: str) -> None:
    """With words, and without an end for backups that are there; its deletion needs no zone."""
    case = Case(schedule="30 2 * * *")
    case.settle()
    case.body["spec"]["timeZone"] = zone
    with pytest.raises(InvalidResource, match=r"spec\.timeZone: '.*' is not in the time zone database; give one like"):
        case.plan()
    case.delete()
    assert [isinstance(action, Release) for action in case.settle().actions] == [True]


def test_another_zone_makes_no_backup_again_and_misses_none() -> None:
    """The newest time of the new zone counts if it is after the last backup, otherwise the next one."""
    case = Case(schedule="30 2 * * *", timeZone="UTC", age=86400)  # it is noon
    case.settle()
    case.body["spec"]["timeZone"] = "Asia/Tokyo"  # 17:30 UTC, so yesterday's time is older than the backup
    case.settle()
    assert len(case.made) == 1
    case.body["spec"]["timeZone"] = "America/New_York"  # 07:30 UTC
    case.settle()
    assert case.made == [case.name(NOW.replace(hour=2, minute=30)), case.name(NOW.replace(hour=7, minute=30))]


@pytest.mark.parametrize("count", [None, 1, 3, 10])
@pytest.mark.parametrize("seconds", [None, 60, 3 * 3600, 10**6])
@pytest.mark.parametrize("there", [0, 1, 5])
def test_retention_keeps_backups_that_either_rule_keeps(count: int | None, seconds: int | None, there: int) -> None:
    """An hour lies between two backups; each rule keeps the newest, and foreign ones are ignored."""
    all_of_them = [held_backup(f"b{age}", "", NOW - timedelta(hours=age, seconds=90)) for age in range(there)]
    gone = expired_backups(all_of_them, Retention(count=count, seconds=seconds), NOW)
    by_count = count or 0
    by_age = 0 if seconds is None else len([age for age in range(there) if age * 3600 + 90 < seconds])
    stays = there if count is None and seconds is None else min(there, max(by_count, by_age, 1))
    assert [found.name for found in gone] == [f"b{age}" for age in reversed(range(stays, there))]


def test_retention_deletes_backups_of_a_schedule() -> None:
    """Only its own backups; foreign ones stay, even with such a name."""
    case = Case(schedule="*/10 * * * *", retention={"count": 2})
    foreign = [held_backup("mine", "0" * 32, NOW), held_backup(f"{case.name()}-20200101-0000", "1" * 32, NOW)]
    assert case.held is not None
    case.held += foreign
    for _ in range(4):
        plan = case.settle()
        case.after(600)
    assert len(case.made) == 4
    assert [found["name"] for found in plan.status["backups"]] == case.made[:-3:-1]
    assert {found.name for found in case.held} == {*case.made[-2:], *(found.name for found in foreign)}


@pytest.mark.parametrize("schedule", ["", "*/10 * * * *"])
@pytest.mark.parametrize("had", [False, True])
def test_a_suspended_schedule_does_nothing(schedule: str, had: bool) -> None:
    """Nothing is made or deleted, and `Ready` stays; afterwards one missed time is made up for."""
    case = Case(**({"schedule": schedule, "retention": {"count": 1}} if schedule else {}))
    if had:
        case.settle()
    case.body["spec"]["suspend"] = True
    case.after(3600)
    plan = case.settle()
    reason = "Completed" if had and not schedule else "Suspended"
    assert (ready_of(plan), len(case.made)) == ((str(had), "False", reason), int(had))
    assert "nextScheduleTime" not in plan.status
    assert plan.again_seconds is None
    case.body["spec"]["suspend"] = False
    case.settle()
    assert len(case.made) == (2 if had and schedule else 1)


def test_a_backup_waits_for_no_obstacle_of_a_store_that_serves() -> None:
    """The operator may fail to reach the bucket, or to make a child, and backups are still made."""
    case = Case()
    assert case.store is not None
    case.store["status"]["obstacle"] = "The bucket does not answer."
    case.settle()
    assert len(case.made) == 1


GATES = ["no-store", "store-not-usable", "store-deleting", "paused", "no-meta", "not-listed"]


@pytest.mark.parametrize("gate", GATES)
@pytest.mark.parametrize("schedule", ["", "*/10 * * * *"])
@pytest.mark.parametrize("is_due", [True, False])
def test_a_backup_waits_for_its_store(gate: str, schedule: str, is_due: bool) -> None:
    """While the store can't be asked nothing is tried: a due backup gives the reason, the rest stays as it is."""
    case = Case(**({"schedule": schedule} if schedule else {}))
    if not is_due:
        case.settle()
    before = ready_of(case.plan())
    expected = "WaitingForStore"
    assert case.store is not None
    if gate == "no-store":
        case.store = None
    elif gate == "store-not-usable":
        case.store["status"]["obstacle"], case.serves = "The bucket does not answer.", False
    elif gate == "store-deleting":
        case.store["metadata"]["deletionTimestamp"] = at(-1)
    elif gate == "paused":
        case.store["spec"]["paused"], expected = True, "Paused"
    elif gate == "no-meta":
        case.serves, expected = False, "WaitingForMeta"
    else:
        case.held, expected = None, "Reconciling"
    plan = case.pass_()
    assert case.work(plan) is None
    if is_due:
        assert ready_of(plan) == ("False", "False", expected)
        assert plan.again_seconds == 10
    elif gate in ("no-store", "store-deleting"):
        # Whether its backups are still there nobody can tell, so none is shown as ready to be restored.
        assert ready_of(plan) == ("False", "True", "StoreGone")
        message = plan.status["conditions"][0]["message"]
        assert case.name() in message or schedule
        assert "s3://tussock" in message
    else:
        assert ready_of(plan) == before
        assert plan.status["count"] == 1


@pytest.mark.parametrize("listed", [True, False])
@pytest.mark.parametrize("is_due", [True, False])
def test_a_failed_backup_is_reported_and_tried_again(listed: bool, is_due: bool) -> None:
    """A store that does not answer matters only while there is something to do."""
    case = Case(schedule="*/10 * * * *")
    case.settle()
    if is_due:
        case.after(600)
    case.problem = "the meta service says no."
    before = case.held
    if not listed:
        case.held = None
    plan = case.pass_()
    assert plan.status["count"] == 1
    if not is_due:
        assert ready_of(plan) == ("True", "False", "Scheduled")
        assert case.work(plan) is None
        return
    assert ready_of(plan) == ("True", "True", "BackupFailed")
    assert "the meta service says no. The operator tries again" in plan.status["conditions"][0]["message"]
    assert case.work(plan) is not None
    assert plan.again_seconds == 10
    case.problem, case.held = "", before
    assert ready_of(case.settle()) == ("True", "False", "Scheduled")
    assert len(case.made) == 2


def test_a_backup_that_keeps_failing_is_tried_ever_more_rarely() -> None:
    """Each attempt is work for the store; the first pause is short, since most failures are."""
    case = Case()
    case.problem = "the meta service says no."
    pauses = []
    for failures in (1, 2, 3, 4, 5, 6, 7, 5_000):
        case.failures = failures
        pauses.append(case.pass_().again_seconds)
    assert pauses == [10, 20, 40, 80, 160, 300, 300, 300]
    assert retry_seconds(None) == 10


@pytest.mark.parametrize("policy", ["Delete", "Retain"])
@pytest.mark.parametrize("schedule", ["", "*/10 * * * *"])
def test_backups_go_with_their_object(policy: str, schedule: str) -> None:
    """With `Retain` all stay; the object is released once a list younger than its deletion shows no backup of it."""
    case = Case(deletionPolicy=policy, **({"schedule": schedule} if schedule else {}))
    assert case.held is not None
    case.held.append(held_backup("foreign", "0" * 32, NOW))
    for _ in range(2):
        case.settle()
        case.after(600)
    case.delete()
    released = [isinstance(action, Release) for action in case.settle().actions]
    assert released == [True]
    left = {found.name for found in case.held}
    assert left == {"foreign", *(case.made if policy == "Retain" else ())}


def test_a_backup_that_is_being_made_while_its_object_goes_is_deleted() -> None:
    """A list from before the deletion lacks it, so that list is not trusted."""
    case = Case(deletionPolicy="Delete")
    case.delete()
    plan = case.plan()
    assert case.work(plan) == {"make": [], "drop": [], "leaving": True}
    assert case.held is not None
    case.held.append(held_backup(case.name(), backup_id(parse_backup(case.body), case.name()), NOW))
    case.leaving = True
    assert case.work(case.plan()) == {"make": [], "drop": [case.name()], "leaving": True}
    assert [isinstance(action, Release) for action in case.settle().actions] == [True]


@pytest.mark.parametrize("gap", ["no-store", "store-deleting", "no-meta", "problem"])
@pytest.mark.parametrize("is_over", [False, True])
def test_a_deletion_never_hangs(gap: str, is_over: bool) -> None:
    """Without its store the object goes at once; a store that does not answer has time until the deadline."""
    case = Case(deletionPolicy="Delete")
    case.settle()
    assert case.store is not None
    if gap == "no-store":
        case.store = None
    elif gap == "store-deleting":
        case.store["metadata"]["deletionTimestamp"] = at(-1)
    elif gap == "no-meta":
        case.serves = False
    else:
        case.problem, case.held = "the meta service says no.", None
    case.delete()
    if is_over:
        case.after(120)
    plan = case.plan()
    goes = is_over or gap in ("no-store", "store-deleting")
    assert any(isinstance(action, Release) for action in plan.actions) == goes
    gave_up = is_over and gap in ("no-meta", "problem")
    assert ready_of(plan)[2] == ("DeletionGaveUp" if gave_up else "Deleting")
    if gave_up and gap == "problem":
        assert case.name() in plan.status["conditions"][0]["message"]
        assert "says no" in plan.status["conditions"][0]["message"]


@pytest.mark.parametrize("schedule", ["", "*/10 * * * *"])
def test_backups_stay_unless_their_deletion_was_asked_for(schedule: str) -> None:
    """An object without a deletion policy may be deleted without a loss."""
    case = Case(**({"schedule": schedule} if schedule else {}))
    case.settle()
    case.delete()
    plan = case.settle()
    assert [isinstance(action, Release) for action in plan.actions] == [True]
    assert case.held is not None
    assert [found.name for found in case.held] == case.made


def test_names_fit_the_store() -> None:
    """The longest object name gives a name that the store accepts; another object gives another name."""
    found = Case().body
    found["metadata"]["name"] = "n" * 40
    name = backup_name(parse_backup(found), NOW)
    assert name.endswith("-20261121-1200")
    assert check_backup_name(name) == name
    again = {**found, "metadata": {**found["metadata"], "uid": "another"}}
    assert backup_name(parse_backup(again), NOW) != name


@pytest.mark.parametrize("text", ["2026-11-24T13:00:00+99:00", "0000-01-01T00:00:00Z", "2026-11-24T13:00:00"])
def test_a_time_that_does_not_exist_counts_as_no_time(text: str) -> None:
    """The API server takes it for one, and the schedule is followed as without it."""
    case = Case(schedule="*/10 * * * *")
    case.body["status"] = {"lastScheduleTime": text}
    case.settle()
    assert len(case.made) == 1
