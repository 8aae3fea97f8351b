"""A stream of small commits: L0, the log and the bucket stay bounded, and reads stay right."""

import pytest

from support import inside
from support.store.stores import TickingSystem, open_on, pairs, sst_objects
from support.store.versions import ModelBucket, live_objects
from support.waiting import eventually
from tussock.meta.compaction.picker import PickerConfig
from tussock.statestore import StateStore, connect

HISTORY_RUNS = PickerConfig().history_merge_min

COMMITS = 1000
KEYS = 50


def is_tidy(store: StateStore) -> bool:
    """There is one object of the present, and of history as many as are merged together; the thread may be at it."""
    store.vacuum()
    live = live_objects(store.version())  # type: ignore[arg-type]
    return {info.path for info in inside.bucket(store).list("sst/")} == live and len(live) <= 2 * HISTORY_RUNS


@pytest.mark.parametrize("kind", ["memory", "file"])
def test_a_thousand_small_commits_leave_a_tidy_store(kind: str, tmp_path: object) -> None:
    """With the default background thread: few runs, few objects, each of the last epochs readable."""
    url = "memory://" if kind == "memory" else f"file://{tmp_path}"
    with connect(url, retention=3600, gc_grace=0) as store:
        kv = store.create_table("kv")
        model: dict[bytes, bytes] = {}
        most = 0
        history = {}
        for at in range(COMMITS):
            rows = {b"%02d" % (at * 7 % KEYS): b"%d" % at, b"%02d" % (at * 13 % KEYS): b"%d" % at}
            epoch = store.new_epoch()
            kv.ingest_batch(sorted(rows.items()), epoch)
            committed = store.commit_epoch(epoch, writer="stream", batch_id=at)
            model.update(rows)
            levels = inside.version(store).find_table("kv").levels
            most = max(most, len(levels.l0))
            if at % 100 == 0:
                history[committed] = dict(model)
                assert dict(pairs(kv.scan())) == model
        assert most <= PickerConfig().l0_stall_runs, "L0 was bounded at every moment"
        for epoch, expected in history.items():
            assert dict(pairs(kv.scan(epoch=epoch))) == expected
        store.compact("kv")
        eventually(lambda: is_tidy(store))
        assert pairs(kv.scan()) == sorted(model.items())
        version = store.version()
        assert len(version.ledger["stream"]) == 16  # type: ignore[attr-defined]


def test_compactions_of_many_tables_cost_an_entry_or_two_a_commit() -> None:
    """Those of all tables together are a claim and a report: once each of them was, twenty entries a commit of 40."""
    system = TickingSystem()
    bucket = ModelBucket(system)
    store = open_on(bucket, system, retention=0, gc_grace=0)
    tables = [store.create_table(f"t{number:02d}") for number in range(40)]
    before = inside.version(store).seq
    for at in range(12):
        epoch = store.new_epoch()
        for table in tables:
            table.ingest_batch([(b"%02d" % at, b"%d" % at)], epoch)
        store.commit_epoch(epoch)
        system.forward(1)
        while inside.work(inside.backend(store)):
            pass
    version = inside.version(store)
    assert (version.seq - before) / 12 <= 2
    assert max(len(state.levels.l0) for state in version.tables.values()) < 16
    for table in tables:
        assert pairs(table.scan()) == [(b"%02d" % at, b"%d" % at) for at in range(12)]


def test_log_and_version_stay_bounded_over_a_long_stream() -> None:
    """After vacuums the log holds two snapshots and their entries; the version names only live SSTs."""
    system = TickingSystem()
    bucket = ModelBucket(system)
    store = open_on(bucket, system, retention=60, gc_grace=60)
    kv = store.create_table("kv")
    for at in range(600):
        epoch = store.new_epoch()
        kv.ingest_batch([(b"%02d" % (at % KEYS), b"%d" % at)], epoch)
        store.commit_epoch(epoch)
        system.forward(1)
        inside.step(inside.backend(store))
        if at % 100 == 99:
            store.vacuum()
    entries = list(bucket.list("log/"))
    assert len(entries) < 450
    assert len(list(bucket.list("snapshot/"))) <= 6
    system.forward(300)
    store.compact("kv")
    system.forward(300)
    store.vacuum()
    store.vacuum()
    version = store.version()
    assert version.dropped == ()  # type: ignore[attr-defined]
    assert sst_objects(bucket) == version.live_sst_ids()  # type: ignore[attr-defined]
    assert sum(sst.rows for sst in version.find_table("kv").levels.ssts()) == KEYS  # type: ignore[union-attr]
    assert dict(pairs(open_on(bucket, system).table("kv").scan())) == dict(pairs(kv.scan()))
