"""A damaged SST is put aside on the bucket while a meta service leads the store, clients read and a compactor works."""

import contextlib
import sys

import pytest

from support.service.platforms import QUIET, Platform
from support.store.stores import changes_of, pairs
from tussock.cli.main import main
from tussock.compactor.sst_repair import SstRepair
from tussock.meta.version.version import Version
from tussock.operator.probes.platform import ask
from tussock.statestore import CorruptSst, StateStore
from tussock.statestore.base.system import RealSystem
from tussock.statestore.buckets import open_bucket
from tussock.statestore.contract.losses import AcceptedLoss
from tussock.statestore.contract.records import SstInfo, data_object


def commit(store: StateStore, value: bytes, *, keys: int = 100) -> int:
    epoch = store.new_epoch()
    store.table("kv").ingest_batch([(b"%03d" % number, value * 20) for number in range(keys)], epoch)
    return store.commit_epoch(epoch)


def damage(url: str, sst: SstInfo) -> None:
    """Flip a bit in the first block, wherever the SST lies; the object is replaced, as no bit of it may change."""
    with contextlib.closing(open_bucket(url)) as bucket:
        data = bytearray(bucket.get(data_object(sst)))
        data[sst.offset + 20] ^= 1
        bucket.put(data_object(sst), bytes(data))


def repair(url: str, *discarded: str) -> list[AcceptedLoss]:
    with contextlib.closing(open_bucket(url)) as bucket:
        mending = SstRepair(bucket, RealSystem(), owner="repair", open_source=open_bucket)
        try:
            if discarded:
                return mending.discard(discarded)
            damaged = [found for state, sst in mending.named() if (found := mending.examine(state, sst)) is not None]
            return [mending.put_aside(one) for one in damaged]
        finally:
            mending.close()


def version_of(platform: Platform) -> Version:
    return platform.leader.node.meta.refresh()


def test_clients_and_compactors_of_a_service_go_on(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Its leader follows: clients read without the lost rows, a compaction of the table ends, the status tells."""
    url = "memory://repaired-beside-a-service"
    with Platform(url, picker=QUIET, compactors=1) as platform:
        store = platform.connect()
        store.create_table("kv", block_bytes=256, compression="none")
        commit(store, b"old")
        commit(store, b"new")
        (sst,) = version_of(platform).find_table("kv").levels.l0[0].ssts  # type: ignore[union-attr]
        assert sst.entry > 0, "small SSTs of a service's commits lie in its log"
        damage(url, sst)
        reader = platform.connect()
        with pytest.raises(CorruptSst):
            pairs(reader.table("kv").scan())
        with pytest.raises(CorruptSst):
            store.compact("kv")
        (loss,) = repair(url)
        assert 0 < loss.rows < 100
        reader.wait_epoch(version_of(platform).max_committed_epoch)
        found = pairs(platform.connect().table("kv").scan())
        assert [value for _, value in found] == [b"old" * 20] * loss.rows + [b"new" * 20] * (100 - loss.rows)
        store.compact("kv")
        assert pairs(platform.connect().table("kv").scan()) == found
        (told,) = platform.leader.report.status().losses
        assert (told.sst, told.table, told.rows, told.kept) == (sst.id, "kv", loss.rows, True)
        fact = ask(platform.leader.address, None, "")
        assert (fact.quarantined_ssts, fact.lost_rows) == (1, loss.rows)
        epoch = commit(store, b"later")
        assert len(changes_of(store.table("kv"), loss.min_epoch, epoch)) == 100
        platform.leader.node.meta.vacuum()
        with contextlib.closing(open_bucket(url)) as bucket:
            assert bucket.get(data_object(sst))
        monkeypatch.setattr(sys, "argv", ["tussock", "status", "--meta", platform.leader.address])
        with pytest.raises(SystemExit):
            main()
        assert sst.id in capsys.readouterr().out
        repair(url, sst.id)
        assert [one.discarded for one in version_of(platform).losses] == [True]
        assert [one.kept for one in platform.leader.report.status().losses] == [False]
        fact = ask(platform.leader.address, None, "")
        assert (fact.quarantined_ssts, fact.lost_rows) == (0, loss.rows)
