"""The bytes of an SST of history are frozen, and its rows are those of their epochs."""

import runpy
import struct
from pathlib import Path

import pytest

from tussock.statestore.base.system import RealSystem
from tussock.statestore.buckets import open_bucket
from tussock.statestore.contract.records import SstInfo, data_path
from tussock.statestore.format.meta import decode_meta
from tussock.statestore.sst.history import find_at, find_many_at, rows_at
from tussock.statestore.sst.iterators import ReadRange
from tussock.statestore.sst.lookups.lookup import RunIndex
from tussock.statestore.sst.reader import Sstables
from tussock.statestore.sst.writer import UNTIL

ROOT = Path(__file__).resolve().parents[3]
GOLDEN = ROOT / "tests" / "golden" / "sst" / "history"
SCRIPT = runpy.run_path(str(ROOT / "tests" / "golden" / "write_sst_history.py"))
SST_ID = f"{1:032x}"


@pytest.mark.parametrize("codec", SCRIPT["CODECS"])
def test_golden_files_are_read_as_readers_at_each_epoch_see_them(codec: str) -> None:
    """Of each key the newest row up to the epoch, unless another one has taken its place by then."""
    whole = (GOLDEN / f"history-{codec}.data").read_bytes()
    meta_bytes = struct.unpack("<I", whole[-4:])[0]
    meta = decode_meta(whole[-meta_bytes:], SST_ID, "here")
    assert meta.schema.field(0).equals(UNTIL, check_metadata=True)
    info = SstInfo(
        id=SST_ID, smallest=meta.smallest, largest=meta.largest, rows=meta.rows, deletes=meta.deletes,
        data_bytes=len(whole) - meta_bytes, meta_bytes=meta_bytes, epoch=0, min_epoch=2, max_epoch=8,
        meta_in_data=True, until=21,
    )  # fmt: skip
    bucket = open_bucket("memory://")
    bucket.put(data_path(SST_ID), whole)
    sstables = Sstables(bucket, 1 << 20, RealSystem())
    run = RunIndex((info,))
    keys = sorted({key for key, *_ in SCRIPT["ROWS"]})
    for epoch in range(1, 24):
        seen = {key: value for key, at, until, value in reversed(SCRIPT["ROWS"]) if at <= epoch < until}
        for reverse in (False, True):
            want = ReadRange(newest_at=epoch, reverse=reverse)
            found = list(rows_at(sstables, run, want, epoch))
            assert {key for rows in found for key in rows.keys.to_pylist()} == seen.keys()
            pairs = [
                pair for rows in found for pair in zip(rows.keys.to_pylist(), rows.columns[1].to_pylist(), strict=True)
            ]
            assert dict(pairs) == seen
        one_by_one = {
            key: found.block.value(found.at) for key in keys if (found := find_at(sstables, [], [run], key, epoch))
        }
        assert one_by_one == seen
        hits = find_many_at(sstables, [], [run], keys, epoch)
        assert hits.points == []
        assert {
            keys[slot]: rows.columns[0][at].as_py()
            for rows, places, into in hits.pieces
            for at, slot in zip(places.tolist(), into.tolist(), strict=True)
        } == seen
    sstables.close()
