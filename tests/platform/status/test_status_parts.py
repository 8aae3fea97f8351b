"""A status: its parts from versions, its rates, and the problems found in it."""

import inspect
import re
from pathlib import Path
from typing import Any, get_args

import msgspec
import pytest
from msgspec.structs import replace

from support import inside
from support.service.statuses import bare_status
from support.store.versions import make_id, run, spec, sst
from tussock.meta.compaction.picker_config import PickerConfig
from tussock.meta.server.status import problems
from tussock.meta.server.status.document import (
    CompactionStatus,
    JobStatus,
    ParticipantStatus,
    ServiceStatus,
    SessionStatus,
    UpkeepStatus,
    VacuumStatus,
)
from tussock.meta.server.status.problems import with_problems
from tussock.meta.server.status.rates import Rates
from tussock.meta.server.status.version_parts import (
    LevelSums,
    pin_statuses,
    table_statuses,
    task_statuses,
    version_status,
)
from tussock.meta.version.deltas.commits import CommitEpoch
from tussock.meta.version.deltas.delta import Delta
from tussock.meta.version.deltas.tables import CreateTable
from tussock.meta.version.version import CompactionTask, Version
from tussock.statestore.contract.backend import PinInfo
from tussock.statestore.contract.records import TableLevels, TableState

L0 = (run(sst(b"a", b"c")), run(sst(b"a", b"b", deletes=7), sst(b"c", b"d")))
L2 = (sst(b"a", b"m", rows=1000), sst(b"n", b"z", rows=500))
HISTORY = (run(sst(b"a", b"c", epoch=0, min_epoch=1, max_epoch=60, until=70)),)
TREE = TableLevels(l0=L0, levels=((), L2), history=HISTORY)
VERSION = Version(
    seq=9,
    max_committed_epoch=70,
    timeline=((5_000, 60), (6_000, 70)),
    tables={
        1: TableState(spec=spec("zebra", 1), levels=TREE, last_epoch=70),
        2: TableState(spec=spec("ant", 2)),
    },
)


def tables(version: Version = VERSION, sums: LevelSums | None = None, **stalls: str) -> Any:
    named = {state.spec.id: stalls[state.spec.name] for state in version.tables.values() if state.spec.name in stalls}
    return table_statuses(version, PickerConfig(), named, sums or LevelSums())


def test_tables_are_listed_by_name_with_the_sums_of_their_levels() -> None:
    """Each level with data has its runs, SSTs, rows and bytes; the table has their sums."""
    ant, zebra = tables()
    assert (ant.name, ant.levels, ant.bytes, ant.last_epoch) == ("ant", (), 0, 0)
    upper, lower = zebra.levels
    assert (upper.level, upper.runs, upper.ssts, upper.rows, upper.deletes, upper.bytes) == (0, 2, 3, 300, 7, 3300)
    assert (lower.level, lower.runs, lower.ssts, lower.rows, lower.bytes) == (2, 1, 2, 1500, 2200)
    assert (upper.bytes_max, lower.bytes_max) == (0, PickerConfig().level_bytes_max(2))
    assert (zebra.ssts, zebra.rows, zebra.deletes, zebra.bytes, zebra.l0_runs) == (5, 1800, 7, 5500, 2)
    assert (zebra.l0_stall_runs, zebra.stall, zebra.last_epoch) == (128, "", 70)
    assert (zebra.history_runs, zebra.history_ssts, zebra.history_rows, zebra.history_bytes) == (1, 1, 100, 1100)


def test_stall_has_its_reason() -> None:
    assert [table.stall for table in tables(zebra="too many runs")] == ["", "too many runs"]


def test_sums_of_a_level_are_cached_with_the_level() -> None:
    """A level that a compaction replaced is summed anew, another one is not, and a dropped table is forgotten."""
    sums = LevelSums()
    first = tables(sums=sums)[1].levels[1]
    assert tables(sums=sums)[1].levels[1] is first
    smaller = replace(VERSION.tables[1], levels=TableLevels(l0=L0, levels=((), L2[:1])))
    changed = replace(VERSION, tables={1: smaller})
    assert tables(changed, sums)[0].levels[1].rows == 1000
    tables(replace(VERSION, tables={}), sums)
    assert inside.tables_known(sums) == {}


def test_the_status_has_the_facts_of_the_version() -> None:
    told = version_status(VERSION, 250)
    assert (told.seq, told.max_committed_epoch, told.committed_ms, told.synced_age_ms) == (9, 70, 6_000, 250)
    assert version_status(Version(), 0).committed_ms == 0


def test_tasks_are_listed_oldest_first_with_their_progress() -> None:
    """A task of a dropped table has no name; one without reported progress has read nothing."""

    def task(number: int, table: int, claimed_ms: int) -> CompactionTask:
        return CompactionTask(
            id=make_id(number),
            table_id=table,
            kind="l0",
            inputs=(L0[0].ssts, L0[1].ssts),
            target_level=1,
            bottom=False,
            watermark=3,
            owner="compactor-0",
            claimed_ms=claimed_ms,
            expires_ms=99,
        )

    version = replace(VERSION, tasks={one.id: one for one in (task(1, 1, 20), task(2, 8, 10))})
    older, newer = task_statuses(version, {make_id(1): 120})
    assert (older.table, older.rows_read, newer.table, newer.rows_read) == ("", 0, "zebra", 120)
    assert (newer.runs, newer.ssts, newer.rows, newer.bytes, newer.target_level) == (2, 3, 300, 3300, 1)


def test_pins_are_listed_by_epoch_without_ids() -> None:
    """A pin's id is only for the session that holds the pin."""
    pins = [PinInfo(id=f"secret-{epoch}", epoch=epoch, owner="o", created_ms=1, expires_ms=2) for epoch in (9, 3)]
    told = pin_statuses(pins)
    assert [pin.epoch for pin in told] == [3, 9]
    assert "secret" not in repr(told)


def commit(size: int) -> CommitEpoch:
    return CommitEpoch(epoch=5, at_ms=1, tables={1: (run(sst(data_bytes=size, meta_bytes=0)),)})


def test_rates_count_by_whole_second() -> None:
    """An entry counts in the second in which it came; the running second is left out; others are zero."""
    rates = Rates(seconds=4)
    rates.count([commit(10), commit(20)], 100.2)
    rates.count([commit(5)], 100.9)
    created: list[Delta] = [CreateTable(spec=spec())]
    rates.count(created, 101.5)
    rates.count([commit(1)], 103.0)
    told = rates.status(103.5, 50_000)
    assert (told.epochs, told.commits, told.bytes) == ((0, 3, 0, 0), (0, 2, 0, 0), (0, 35, 0, 0))
    assert told.end_ms == 49_500
    assert rates.status(104.0, 50_500).epochs == (3, 0, 0, 1)
    assert rates.status(200.0, 60_000).epochs == (0, 0, 0, 0)


def test_rates_keep_only_the_seconds_that_they_show() -> None:
    """A replica whose status is never read keeps only the last seconds."""
    rates = Rates(seconds=4)
    for second in range(1000):
        rates.count([commit(1)], float(second))
    assert len(inside.seconds_kept(rates)) <= 2 * 4
    assert rates.status(1000.0, 0).epochs == (1, 1, 1, 1)


def kinds(status: ServiceStatus) -> list[str]:
    return [problem.kind for problem in with_problems(status).problems]


HEALTHY = bare_status(compaction=CompactionStatus(compactors=1, slots=2))
SESSION = SessionStatus(
    id="01234567",
    kind="client",
    name="job",
    software="tussock 0.1.0",
    slots=0,
    tasks=0,
    pins=0,
    heartbeat_age_ms=100,
    lease_ms=20_000,
)
JOB = JobStatus(
    job="enrich",
    state="running",
    participants=(ParticipantStatus(name="w0", connected=True, collected=False),),
    expected=1,
    barrier=3,
    barrier_age_ms=400,
    committed_epoch=7,
    interval_ms=1000,
)
VACUUM = VacuumStatus(finished_ms=1, deleted=0, bytes_freed=0, kept_young=0)


@pytest.mark.parametrize(
    ("fields", "found"),
    [
        ({"sessions": (SESSION,), "checkpoints": (JOB,), "upkeep": UpkeepStatus(vacuum=VACUUM)}, []),
        ({"replica": replace(HEALTHY.replica, role="follower", leader="")}, ["no-leader"]),
        ({"version": replace(HEALTHY.version, synced_age_ms=5_001)}, ["behind"]),
        ({"replica": replace(HEALTHY.replica, draining=True)}, ["draining"]),
        ({"tables": tables(zebra="131 runs")}, ["stalled"]),
        ({"compaction": CompactionStatus(compactors=1, paused=True, reason="moving")}, ["paused"]),
        ({"tables": tables(), "compaction": CompactionStatus()}, ["no-compactor"]),
        ({"compaction": CompactionStatus()}, []),
        ({"sessions": (replace(SESSION, heartbeat_age_ms=10_001),)}, ["silent"]),
        ({"checkpoints": (replace(JOB, expected=2),)}, ["job-waits"]),
        ({"checkpoints": (replace(JOB, barrier_age_ms=5_001),)}, ["barrier-slow"]),
        ({"upkeep": UpkeepStatus(vacuum=replace(VACUUM, error="bucket away"))}, ["vacuum-failed"]),
    ],
)
def test_problems_are_found(fields: dict[str, Any], found: list[str]) -> None:
    """Each trouble gives exactly one problem, and a healthy replica has none."""
    assert kinds(replace(HEALTHY, **fields)) == found


def test_errors_come_before_warnings() -> None:
    """Present failures stand first."""
    status = replace(
        HEALTHY,
        compaction=CompactionStatus(paused=True, reason="moving"),
        tables=tables(zebra="131 runs"),
        version=replace(HEALTHY.version, synced_age_ms=60_000),
    )
    found = with_problems(status).problems
    assert [problem.severity for problem in found] == ["error", "error", "warning", "warning"]
    assert "zebra" in found[1].text
    assert "moving" in found[2].text


def struct_fields(kind: type[Any]) -> set[str]:
    """The fields of a struct and of all structs in it."""
    found = set()
    for field in msgspec.structs.fields(kind):
        found.add(field.name)
        for part in (field.type, *get_args(field.type)):
            if isinstance(part, type) and issubclass(part, msgspec.Struct):
                found |= struct_fields(part)
    return found


def test_every_field_is_documented() -> None:
    """`docs/console.md` names each field of the status, and each kind of problem."""
    text = (Path(__file__).parents[3] / "docs" / "console.md").read_text(encoding="utf-8")
    documented = set(re.findall(r"`([a-z0-9_-]+)`", text))
    assert struct_fields(ServiceStatus) - documented == set()
    told = set(re.findall(r'_(?:error|warning)\(\s*"([a-z-]+)"', inspect.getsource(problems)))
    assert len(told) == 13
    assert told - documented == set()
