"""The acceptance scenarios of procedures in an embedded application whose store is a platform's.

Commits, writer generations and the delta are asked of a meta service there; the input log is in the platform's bucket.
"""

from collections.abc import Iterator
from pathlib import Path

import pytest

from support.procedures.procedure_story import Story, batch
from support.service.platforms import Platform
from tussock.compute import procedures as ps
from tussock.statestore import InvalidBatch

GRAPH = ["SP1", "SP2", "SP3"]


@pytest.fixture
def platform(tmp_path: Path) -> Iterator[Platform]:
    with Platform((tmp_path / "bucket").as_uri()) as serving:
        yield serving


@pytest.fixture(params=["weak", "strong"])
def recovery(request: pytest.FixtureRequest) -> str:
    return str(request.param)


def test_ps1_ps3_ps5_ps6_on_a_platform(platform: Platform, recovery: str) -> None:
    """S1, S2, S4 to S6: a batch is one epoch of the platform; empty, repeated, earlier and failed ones as embedded."""
    store, other = platform.connect(), platform.connect()
    story = Story(store, recovery=recovery, checkpoint=0)
    story.fail_on = {4}
    with story.app as app:
        before = store.committed_epoch
        assert app.submit("SP1", batch(1, 2, 3), batch_id=1).result(10) == 18
        assert app.trace() == [("SP1", 1), ("SP2", 1), ("SP3", 1)]
        assert app.stats()["commits"] == 1
        other.wait_epoch(store.committed_epoch)
        assert other.table("sum").get(0) == {"k": 0, "v": 18}
        assert store.committed_epoch > before
        assert app.submit("SP1", [], batch_id=3).result(10) == 18
        assert app.submit("SP1", batch(9), batch_id=1).result(10) == 18
        with pytest.raises(InvalidBatch, match="batch 2 comes after batch 3"):
            app.submit("SP1", batch(9), batch_id=2).result(10)
        with pytest.raises(ps.ProcedureError, match="no such luck"):
            app.submit("SP1", batch(9), batch_id=4).result(10)
        assert app.call("times", 10) == 180
    assert sorted(row["x"] for found in other.table("log").read() for row in found.to_pylist()) == [1, 2, 3]


@pytest.mark.parametrize("place", ["bucket", "folder"])
def test_ps9_ps11_on_a_platform(platform: Platform, recovery: str, place: str, tmp_path: Path) -> None:
    """S16 to S19: a runner that is left alone leaves its log; its successor replays it, and has shut it out."""
    options = {"recovery": recovery, "input": None if place == "bucket" else (tmp_path / "input").as_uri()}
    left = Story(platform.connect(), **options)
    left.app.start()
    assert left.app.submit("SP1", batch(1), batch_id=1).result(10) == 4
    assert left.app.call("times", 10) == 40
    assert left.app.submit("SP1", batch(1), batch_id=2).result(10) == 44
    after = Story(platform.connect(), **options)
    with after.app:
        assert after.runs == [(name, number) for number in (1, 2) for name in GRAPH]
        assert after.sum() == 44
        with pytest.raises(ps.ApplicationFenced):
            left.app.submit("SP1", batch(1)).result(10)
        with pytest.raises(ps.ApplicationFenced):
            left.app.stop()
        assert after.app.submit("SP1", batch(7), batch_id=2).result(10) == 44
        assert after.app.submit("SP1", batch(1)).result(10) == 48
    store = platform.connect()
    assert store.table("sum").get(0) == {"k": 0, "v": 48}
    assert (tmp_path / "input").exists() == (place == "folder")


def test_a_leader_that_goes_is_waited_for(tmp_path: Path) -> None:
    """Clients do not notice: commits wait for the next leader, and replies for the log alone."""
    with Platform((tmp_path / "bucket").as_uri(), 2) as platform:
        story = Story(platform.connect(), checkpoint=0.05)
        with story.app as app:
            replies = [app.submit("SP1", batch(1)).result(30) for _ in range(10)]
            platform.leader.stop()
            replies += [app.submit("SP1", batch(1)).result(60) for _ in range(10)]
        assert replies == [4 * number for number in range(1, 21)]
        other = platform.connect()
        assert other.table("sum").get(0) == {"k": 0, "v": 80}
