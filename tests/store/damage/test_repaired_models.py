"""Repairs of damaged SSTs against a model: random commits, merges and damage, read at every epoch."""

from itertools import pairwise
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from support import inside
from support.store.damage import damage_block, is_lost, meta_of, repair, version_of
from support.store.stores import OBJECTS, TickingSystem, open_on, pairs
from support.store.versions import ModelBucket
from tussock.compactor.sst_repair import SstRepair, lost_ranges
from tussock.meta.version.deltas.losses import RANGES_MAX
from tussock.statestore import CorruptSst, StateStore, clone, connect, restore
from tussock.statestore.base.system import RealSystem
from tussock.statestore.buckets import open_bucket

KEYS = [b"%02d" % number for number in range(24)]
STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("commit"), st.dictionaries(st.sampled_from(KEYS), st.booleans(), min_size=1, max_size=20)),
        st.tuples(st.just("compact"), st.none()),
        st.tuples(st.just("damage"), st.tuples(st.integers(0, 9), st.integers(0, 9))),
        st.tuples(st.just("repair"), st.none()),
    ),
    min_size=4,
    max_size=16,
)


@settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(steps=STEPS)
def test_outside_the_lost_ranges_every_epoch_reads_as_before(steps: list[Any]) -> None:
    """And inside of them a reader finds nothing, or a value that the key had before: never anything else."""
    system = TickingSystem()
    bucket = ModelBucket(system)
    model: dict[int, dict[bytes, bytes]] = {}
    rows: dict[bytes, bytes] = {}
    had: dict[bytes, set[bytes]] = {key: set() for key in KEYS}
    with open_on(bucket, system, retention=1e9, gc_grace=0.0) as store:
        store.create_table("kv", block_bytes=256, compression="none")
        for number, (what, given_) in enumerate([*steps, ("repair", None)]):
            if what == "commit":
                system.forward(1)
                batch = {key: b"%d" % number + key * 40 if put else None for key, put in sorted(given_.items())}
                epoch = store.new_epoch()
                store.table("kv").ingest_batch(list(batch.items()), epoch)
                rows = {key: value for key, value in (rows | batch).items() if value is not None}
                model[store.commit_epoch(epoch)] = rows
                for key, value in batch.items():
                    had[key] |= {value} if value is not None else set()
            elif what == "damage":
                ssts = version_of(bucket).ssts()
                if ssts:
                    sst = ssts[given_[0] % len(ssts)]
                    damage_block(bucket, sst, given_[1] % _blocks(bucket, sst))
            else:
                # A merge would fail at the damage.
                repair(bucket)
                store.version()
                if what == "compact" and model:
                    store.compact("kv")
        losses = version_of(bucket).losses
    with open_on(bucket, system, retention=1e9, gc_grace=0.0) as store:
        for epoch, expected in model.items():
            found = dict(pairs(store.table("kv").scan(epoch=epoch)))
            for key in KEYS:
                value = store.table("kv").get(key, epoch=epoch)
                assert found.get(key) == value
                if is_lost(key, losses):
                    assert value is None or value in had[key]
                else:
                    assert value == expected.get(key)
        list(store.table("kv").change_feed(0))
        inside.system(store).forward(3600)
        store.vacuum()
        assert version_of(bucket).losses == losses


def _blocks(bucket: ModelBucket, sst: Any) -> int:
    return meta_of(bucket, sst).blocks


class _Meta:
    """What `lost_ranges` asks of a meta: blocks by their first keys; `*` marks one that continues the key before."""

    def __init__(self, *keys: str) -> None:
        self.first_keys = [key.strip("*").encode() for key in keys]
        self.continues = bytes(key.startswith("*") for key in keys)
        self.blocks = len(keys)
        self.largest = b"z"
        self.block_rows = np.arange(len(keys)) % 7 + 1


@pytest.mark.parametrize(
    ("bad", "ranges"),
    [
        ([0], [(b"a", b"b", False)]),
        ([0, 1, 3], [(b"a", b"c", False), (b"c", b"d", False)]),
        ([2], [(b"c", b"c", True)]),
        ([2, 4], [(b"c", b"c", True), (b"d", b"d", True)]),
        ([4], [(b"d", b"d", True)]),
        ([5, 6], [(b"d", b"z", True)]),
        ([6], [(b"e", b"z", True)]),
        (list(range(7)), [(b"a", b"z", True)]),
    ],
)
def test_lost_ranges_have_all_keys_of_the_blocks(bad: list[int], ranges: list[tuple[bytes, bytes, bool]]) -> None:
    """A key whose versions go on in the next block is among them, and no two ranges share a key."""
    meta: Any = _Meta("a", "b", "c", "*c", "d", "*d", "e")
    assert [(one.first, one.end, one.closed) for one in lost_ranges(meta, bad)] == ranges


def test_lost_versions_of_one_key_are_one_range() -> None:
    """Though a block of that key between them can be read."""
    meta: Any = _Meta("a", "b", "*b", "*b", "c")
    assert [(one.first, one.end, one.closed) for one in lost_ranges(meta, [1, 3])] == [(b"b", b"c", False)]
    assert [(one.first, one.end, one.closed) for one in lost_ranges(meta, [0, 2])] == [
        (b"a", b"b", False),
        (b"b", b"b", True),
    ]


def test_many_lost_blocks_are_few_ranges() -> None:
    """Those with the fewest rows between them become one, and all that was lost is in some range."""
    meta: Any = _Meta(*(f"{number:04d}" for number in range(400)))
    bad = list(range(0, 400, 4))
    found = lost_ranges(meta, bad)
    assert len(found) == RANGES_MAX
    for block in bad:
        assert any(one.first <= meta.first_keys[block] < one.end for one in found)
    assert all(left.end < right.first for left, right in pairwise(found))


def test_clones_and_backups_of_a_damaged_sst() -> None:
    """A clone puts the SST of its source aside for itself, and the hold there lasts until it is discarded."""
    urls = [f"memory://lossy-{name}" for name in ("source", "clone", "restored", "second")]
    with connect(urls[0], compaction=False, retention=0, gc_grace=0, limits=OBJECTS) as store:
        _fill(store)
        store.backup("before")
        clone(urls[0], urls[1])
        source = open_bucket(urls[0])
        (sst,) = inside.version(store).ssts()
        path = f"sst/{sst.id}.data"
        data = bytearray(source.get(path))
        data[20] ^= 1
        source.put(path, bytes(data))
        with pytest.raises(CorruptSst, match="checksum"):
            restore(urls[0], "before", urls[2])
    _repair_at(urls[1])
    with connect(urls[1], compaction=False, retention=0, gc_grace=0) as cloned:
        assert len(pairs(cloned.table("kv").scan())) < 100
        cloned.compact("kv")
        cloned.vacuum()
        assert list(inside.version(cloned).sources) == [urls[0]]
        _repair_at(urls[1], sst.id)
        cloned.version()
        cloned.vacuum()
        cloned.vacuum()
        assert inside.version(cloned).sources == {}
        cloned.backup("after")
    restore(urls[1], "after", urls[3])
    with connect(urls[3], compaction=False) as restored:
        (loss,) = restored.version().losses
        assert (loss.sst.id, loss.discarded) == (sst.id, True)
        restored.vacuum()
    with connect(urls[0], compaction=False) as store:
        assert store.version().losses == ()


def _fill(store: StateStore) -> None:
    table = store.create_table("kv", block_bytes=256, compression="none")
    epoch = store.new_epoch()
    table.ingest_batch([(b"%03d" % number, b"x" * 20) for number in range(100)], epoch)
    store.commit_epoch(epoch)


def _repair_at(url: str, *discarded: str) -> None:
    mending = SstRepair(open_bucket(url), RealSystem(), owner="repair", open_source=open_bucket)
    if discarded:
        mending.discard(discarded)
    for state, sst in [] if discarded else mending.named():
        damaged = mending.examine(state, sst)
        assert damaged is not None
        mending.put_aside(damaged)
    mending.close()
