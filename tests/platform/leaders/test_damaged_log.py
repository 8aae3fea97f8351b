"""A damaged or foreign object at the next number of the log: the platform says so, and goes on once it is gone."""

import pyarrow as pa
import pytest

from support.service.platforms import Platform
from support.waiting import eventually
from tussock.meta.log.format import entry_path
from tussock.statestore.errors import CorruptLog


def test_a_foreign_object_in_the_log_is_named_by_every_replica(
    tmp_path_factory: pytest.TempPathFactory, caplog: pytest.LogCaptureFixture
) -> None:
    """No replica is ready, the status has the object's name and what to do, and the log one line of each replica."""
    folder = tmp_path_factory.mktemp("place") / "store"
    with Platform(folder.as_uri(), replicas=2) as platform, platform.connect() as store:
        table = store.create_table("t", pa.schema([pa.field("k", pa.int64(), nullable=False)]), ["k"])
        foreign = folder / entry_path(store.version().seq + 1)
        foreign.write_bytes(b"something else's" * 20)
        eventually(lambda: all(replica.node.damaged for replica in platform.replicas))
        for replica in platform.replicas:
            status = replica.report.status()
            assert not status.replica.ready
            assert foreign.name in status.replica.damaged
            (problem,) = (problem for problem in status.problems if problem.kind == "log-damaged")
            assert problem.severity == "error"
            assert foreign.name in problem.text
            assert "remove it" in problem.text
        epoch = store.new_epoch()
        table.upsert([{"k": 1}], epoch)
        with pytest.raises(CorruptLog, match=foreign.name):
            store.commit_epoch(epoch)
        foreign.unlink()
        eventually(lambda: not any(replica.node.damaged for replica in platform.replicas))
        assert store.commit_epoch(epoch) == epoch
        assert all(replica.report.status().replica.ready for replica in platform.replicas)
    lines = [one for one in caplog.records if "the log could not be read" in one.getMessage()]
    assert len(lines) == 2
