"""The acceptance scenarios of S-Store's recovery, PS9 to PS12, and a second runner.

A runner that is left alone without a commit is what a crash leaves: its log, and nothing of it in the tables.
"""

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from support.procedures.procedure_story import Story, batch
from tussock.compute import procedures as ps
from tussock.compute.applications.limits import ApplicationLimits
from tussock.statestore import StateStore, connect

GRAPH = ["SP1", "SP2", "SP3"]


@contextmanager
def opened(folder: Path) -> Iterator[StateStore]:
    with connect((folder / "store").as_uri(), compaction=False) as store:
        yield store


def log_objects(folder: Path) -> list[Path]:
    return sorted((folder / "store" / "applications" / "story" / "input").iterdir())


@contextmanager
def left_alone(folder: Path, **options: Any) -> Iterator[Story]:
    """A runner that works inside, and after that is there no more for anybody; nothing of it is committed."""
    with opened(folder) as store:
        story = Story(store, **options)
        story.app.start()
        yield story
        # As `kill -9` does it: no last commit. The next runner shuts it out; its threads end by that.
        with opened(folder) as other:
            story.after = Story(other, **{**options, **story.next_options})
            story.after.app.start()
            try:
                story.check()
            finally:
                story.after.app.stop()
        story.go_on.set()
        with pytest.raises(ps.ApplicationFenced):
            story.app.submit("SP1", batch(1)).result(10)
        with pytest.raises(ps.ApplicationFenced):
            story.app.stop()


@pytest.mark.parametrize(("recovery", "records"), [("strong", 10), ("weak", 4)])
def test_ps9_ps11_a_log_is_replayed_in_its_order(tmp_path: Path, recovery: str, records: int) -> None:
    """S16 to S19: strong has each procedure's run, weak what came from outside; each batch once, the call in place."""
    with left_alone(tmp_path, recovery=recovery) as story:
        app = story.app
        assert app.submit("SP1", batch(1), batch_id=1).result(10) == 4
        assert app.submit("SP1", batch(1), batch_id=2).result(10) == 8
        assert app.call("times", 10) == 80
        assert app.submit("SP1", batch(1), batch_id=3).result(10) == 84
        assert app.stats()["records"] == records

        def check() -> None:
            after = story.after
            assert after.runs == [(name, number) for number in (1, 2, 3) for name in GRAPH]
            assert after.sum() == 84
            assert after.app.submit("SP1", batch(7), batch_id=3).result(10) == 84
            assert after.app.submit("SP1", batch(1)).result(10) == 88

        story.check = check
    with opened(tmp_path) as store:
        assert store.table("sum").get(0) == {"k": 0, "v": 88}


def test_ps10_a_batch_that_the_log_has_in_part_goes_on(tmp_path: Path) -> None:
    """S17: SP1's run is in the log, so its tuples wait in the stream; SP2 and SP3 run once the replay is through."""
    with left_alone(tmp_path, recovery="strong", group_commit=None) as story:
        for number in (1, 2, 3):
            story.app.submit("SP1", batch(1), batch_id=number).result(10)
        story.in_sp2.clear()
        story.go_on.clear()
        story.app.submit("SP1", batch(1), batch_id=4)
        assert story.in_sp2.wait(10)

        def check() -> None:
            assert story.after.runs[-3:] == [("SP1", 4), ("SP2", 4), ("SP3", 4)]
            assert story.after.sum() == 16
            assert story.after.app.submit("SP1", batch(1), batch_id=4).result(10) == 16

        story.check = check


@pytest.mark.parametrize(("first", "then"), [("strong", "weak"), ("weak", "strong")])
def test_the_mode_can_change_at_a_start(tmp_path: Path, first: str, then: str) -> None:
    """S15: what is in the log says how it is replayed."""
    with left_alone(tmp_path, recovery=first) as story:
        story.next_options = {"recovery": then}
        story.app.submit("SP1", batch(1), batch_id=1).result(10)

        def check() -> None:
            assert story.after.sum() == 4
            story.after.app.submit("SP1", batch(1), batch_id=2).result(10)
            assert story.after.app.stats()["records"] == (3 if then == "strong" else 1)

        story.check = check
    with opened(tmp_path) as store:
        assert store.table("sum").get(0) == {"k": 0, "v": 8}


@pytest.mark.parametrize("recovery", ["weak", "strong"])
def test_ps12_a_group_is_one_write(tmp_path: Path, recovery: str) -> None:
    """S20 to S22: 1,000 batches of 64 clients take few writes; without groups each record takes one."""
    with opened(tmp_path) as store:
        story = Story(store, recovery=recovery)
        with story.app as app, ThreadPoolExecutor(64) as clients:
            replies = list(clients.map(lambda _: app.submit("SP1", batch(1)).result(30), range(1000)))
            stats = app.stats()
        assert sorted(replies) == [4 * number for number in range(1, 1001)]
        assert stats["records"] == (3000 if recovery == "strong" else 1000)
        assert stats["log_writes"] < 250
        alone = Story(store, recovery=recovery, group_commit=None)
        with alone.app as app:
            for ticket in [app.submit("SP1", batch(1)) for _ in range(50)]:
                ticket.result(30)
            assert app.stats()["log_writes"] == (150 if recovery == "strong" else 50)
        assert store.table("sum").get(0) == {"k": 0, "v": 4200}


def test_no_reply_leaves_before_its_record_is_durable(tmp_path: Path) -> None:
    """S22: at the time of a reply, the log has the batch."""
    with opened(tmp_path) as store:
        story = Story(store)
        with story.app as app:
            before = len(log_objects(tmp_path))
            for number in range(1, 20):
                app.submit("SP1", batch(1)).result(10)
                assert len(log_objects(tmp_path)) == before + number


def test_the_log_is_cut_where_a_commit_holds_it(tmp_path: Path) -> None:
    """Only the objects by which runners took over stay."""
    for _ in range(3):
        with opened(tmp_path) as store:
            story = Story(store, checkpoint=0.05)
            with story.app as app:
                for _ in range(20):
                    app.submit("SP1", batch(1)).result(10)
    assert len(log_objects(tmp_path)) == 3
    with opened(tmp_path) as store:
        assert store.table("sum").get(0) == {"k": 0, "v": 240}
        assert store.table("_applications").get("story")["seq"] == 60


def test_a_recovery_has_a_bound_whatever_the_checkpoint(tmp_path: Path) -> None:
    """Commits begin by the number of records, too, and no run goes far beyond it while one is under way."""
    with opened(tmp_path) as store:
        story = Story(store, checkpoint=3600.0, limits=ApplicationLimits(records_behind=10))
        with story.app as app:
            for _ in range(5):
                for ticket in [app.submit("SP1", batch(1)) for _ in range(25)]:
                    ticket.result(10)
                assert len(log_objects(tmp_path)) <= 2 * 10 + 25
            assert app.stats()["commits"] >= 3
            assert store.table("_applications").get("story")["seq"] >= 125 - 2 * 10 - 25


def test_a_program_that_is_not_deterministic_does_not_start(tmp_path: Path) -> None:
    """A replay with other writes says which record it is, and leaves everything as it was."""
    with opened(tmp_path) as store:
        story = Story(store)
        story.app.start()
        story.app.submit("SP1", batch(1), batch_id=1).result(10)
        with opened(tmp_path) as other:
            changed = Story(other)
            changed.bonus = 1
            with pytest.raises(ps.NotDeterministic, match=r"record 1 .*'SP1', batch 1"):
                changed.app.start()
            right = Story(other)
            with right.app:
                assert right.sum() == 4
        with pytest.raises(ps.ApplicationFenced):
            story.app.submit("SP1", batch(1)).result(10)


def test_rows_of_others_in_its_tables_end_it(tmp_path: Path) -> None:
    """What it has in memory would not hold; the next runner reads what is there."""
    with opened(tmp_path) as store:
        story = Story(store, checkpoint=0.05)
        story.app.start()
        story.app.submit("SP1", batch(1), batch_id=1).result(10)
        epoch = store.new_epoch()
        store.table("sum").upsert([{"k": 0, "v": 1000}], epoch)
        store.commit_epoch(epoch)
        with pytest.raises(ps.ApplicationFenced, match=r"'sum'.*committed to it since; so .*start it again"):
            story.go_on_for(200)
        with pytest.raises(ps.ApplicationFenced):
            story.app.stop()
