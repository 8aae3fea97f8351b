"""The bounds of values in the meta of an SST: their bytes are frozen, and old files mean what they meant."""

import runpy
from pathlib import Path

import pyarrow.compute as pc
import pytest

from tussock.statestore.base.system import RealSystem
from tussock.statestore.buckets import open_bucket
from tussock.statestore.contract.records import SstInfo, data_path, meta_path
from tussock.statestore.format.meta import decode_meta
from tussock.statestore.sst.reader import Sstables

ROOT = Path(__file__).resolve().parents[3]
GOLDEN = ROOT / "tests" / "golden" / "sst" / "bounds"
SCRIPT = runpy.run_path(str(ROOT / "tests" / "golden" / "write_sst_bounds.py"))
SST_ID = f"{1:032x}"


@pytest.mark.parametrize("codec", SCRIPT["CODECS"])
def test_golden_files_have_the_ends_of_each_block(codec: str) -> None:
    """Of numbers, times and decimals, without nulls and NaN; a block that has only those has none between its ends."""
    data, meta_bytes = ((GOLDEN / f"bounds-{codec}.{part}").read_bytes() for part in ("data", "meta"))
    meta = decode_meta(meta_bytes, SST_ID, "here")
    assert meta.blocks > 3
    info = SstInfo(
        id=SST_ID, smallest=meta.smallest, largest=meta.largest, rows=meta.rows, deletes=meta.deletes,
        data_bytes=len(data), meta_bytes=len(meta_bytes), epoch=7, min_epoch=7, max_epoch=7,
    )  # fmt: skip
    bucket = open_bucket("memory://")
    bucket.put(data_path(SST_ID), data)
    bucket.put(meta_path(SST_ID), meta_bytes)
    sstables = Sstables(bucket, 1 << 20, RealSystem())
    blocks = [sstables.block(info, meta, number).rows for number in range(meta.blocks)]
    sstables.close()
    bounded = [name for at, name in enumerate(meta.schema.names) if meta.bounds.column(at) is not None]
    assert bounded == list(SCRIPT["BOUNDED"])
    empty = 0
    for name in bounded:
        at = meta.schema.get_field_index(name)
        low, high = meta.bounds.column(at) or pytest.fail("there are bounds of it")
        for number, rows in enumerate(blocks):
            column = rows.columns[at]
            found = column.filter(pc.is_finite(column)) if name == "share" else column.drop_null()
            if not len(found):
                assert not low[number] <= high[number]
                empty += 1
                continue
            ends = pc.min_max(found).values()
            if name == "price":
                assert [int(end.as_py() * 100) for end in ends] == [low[number], high[number]]
            else:
                assert [getattr(end, "value", end.as_py()) for end in ends] == [low[number], high[number]]
    assert empty > 0
