"""Two real processes append to one folder at once: no commit is lost, doubled or half seen."""

import subprocess
import sys
from pathlib import Path

import pytest

from support.store.versions import make_id, run, sst
from tussock.meta.meta_store import MetaStore
from tussock.meta.version.invariants import problems
from tussock.statestore.base.system import RealSystem
from tussock.statestore.buckets import open_bucket
from tussock.statestore.contract.backend import CommitRequest
from tussock.statestore.contract.records import TableSpec

COMMITS = 150
SUPPORT = Path(__file__).resolve().parents[2]


def writer(url: str, name: str, number: int) -> None:
    """Commit `COMMITS` batches, each with an epoch that the other writer wants too."""
    meta = MetaStore(open_bucket(url), RealSystem(), base_every=16)
    table = meta.version().find_table("kv")
    assert table is not None
    print("ready", flush=True)
    sys.stdin.readline()
    for batch in range(COMMITS):
        one = sst(id=make_id(2**41, number * COMMITS + batch))
        epoch = meta.version().max_committed_epoch + 1
        request = CommitRequest(epoch=epoch, tables={table.spec.id: (run(one),)}, writer=name, batch_id=batch)
        print(meta.commit(request), one.id, flush=True)


@pytest.mark.parametrize("count", [2])
def test_two_processes_commit_to_one_store(tmp_path: Path, count: int) -> None:
    """Each commit has its own final epoch, in the order of the log, and every process gets the final epoch."""
    url = (tmp_path / "bucket").as_uri()
    meta = MetaStore(open_bucket(url), RealSystem())
    table = meta.create_table(TableSpec(id=0, name="kv"))
    script = (
        f"import sys; sys.path[:0] = {[str(SUPPORT), str(SUPPORT / 'meta' / 'log')]}; import test_log_processes as t; "
    )
    children = [
        subprocess.Popen(
            [sys.executable, "-c", f"{script}t.writer({url!r}, 'w{number}', {number})"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        for number in range(count)
    ]
    for child in children:
        assert child.stdout is not None
        assert child.stdout.readline() == "ready\n"
    pinned = meta.pins.pin(None)
    before = meta.version().tables
    outputs = []
    for child in children:
        assert child.stdin is not None
        child.stdin.write("go\n")
        child.stdin.flush()
    for child in children:
        out, _ = child.communicate(timeout=120)
        assert child.returncode == 0
        outputs += [line.split() for line in out.splitlines()]
    assert meta.version().tables == before
    version = meta.refresh()
    epochs = {one.id: one.epoch for one in version.tables[table.spec.id].levels.ssts()}
    assert epochs == {sst_id: int(epoch) for epoch, sst_id in outputs}
    assert len(set(epochs.values())) == count * COMMITS
    assert problems(version) == []
    assert MetaStore(open_bucket(url), RealSystem()).version() == version
    pinned.release()
    meta.close()
