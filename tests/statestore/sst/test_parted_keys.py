"""Where SSTs end: with a key, or within one whose versions are too many, in history only."""

from itertools import pairwise

import numpy as np
import pyarrow as pa
import pytest

from support.store.ssts import raw_spec
from tussock.meta.version.history import is_history_run
from tussock.meta.version.ranges import find_in_run
from tussock.statestore.contract.records import SstInfo
from tussock.statestore.format.hashing import hash_key
from tussock.statestore.format.meta import decode_meta
from tussock.statestore.rows.rows import Rows
from tussock.statestore.sst.history import index_history
from tussock.statestore.sst.writer import SstWriter

VERSIONS = {b"a": 3, b"k": 100, b"l": 1, b"m": 90, b"z": 2}


def rows_of_history() -> Rows:
    """Many versions of some keys, newest first, each of some forty bytes."""
    keys = [key for key, count in VERSIONS.items() for _ in range(count)]
    epochs = np.array([count - at for count in VERSIONS.values() for at in range(count)], np.uint64)
    return Rows(
        pa.array(keys, pa.binary()),
        epochs,
        None,
        (pa.array(epochs + np.uint64(1), pa.uint64()), pa.array([b"v" * 20] * len(keys), pa.binary())),
    )


def write(rows: Rows, sst_bytes: int, batch_rows: int, *, history: bool) -> list[tuple[SstInfo, bytes]]:
    """The SSTs of one run, and the meta of each, written from batches of `batch_rows`."""
    spec = raw_spec(block_bytes=256, compression="none")
    writer = SstWriter(spec, sst_bytes=sst_bytes, epoch_inherited=False, one_object_bytes=0, history=history)
    batches = [rows.slice(start, start + batch_rows) for start in range(0, len(rows), batch_rows)]
    found = []
    for number, sst in enumerate(writer.write(batches)):
        info, objects = sst.objects(f"{number:032x}")
        found.append((info, b"".join(objects[f"sst/{info.id}.meta"])))
    return found


@pytest.mark.parametrize("batch_rows", [1, 7, 1000])
def test_a_key_of_many_versions_has_ssts_of_history_for_itself(batch_rows: int) -> None:
    """Each is bounded; what follows the first has one key; all rows are there, and each filter has its keys."""
    written = write(rows_of_history(), 500, batch_rows, history=True)
    ssts = [info for info, _ in written]
    assert is_history_run(ssts)
    assert max(info.data_bytes for info in ssts) < 2 * 500 + 2 * 256
    assert sum(info.rows for info in ssts) == sum(VERSIONS.values())
    goes_on = [right for left, right in pairwise(ssts) if left.largest == right.smallest]
    assert {sst.largest for sst in goes_on} == {b"k", b"m"}
    assert all(sst.smallest == sst.largest for sst in goes_on)
    for info, meta in written:
        loaded = decode_meta(meta, info.id, "here")
        assert loaded.bloom is not None
        assert all(loaded.bloom.may_contain(hash_key(key)) for key in {info.smallest, info.largest})
    # A repair finds each of them by its id, though several begin with one key.
    assert [find_in_run(ssts, info) for info in ssts] == ssts
    # Prepared for lookups, no SST of a run touches another.
    layers = index_history(ssts)
    assert sum(len(layer.ssts) for layer in layers) == len(ssts)
    assert all(left.largest < right.smallest for layer in layers for left, right in pairwise(layer.ssts))
    assert all(layer.source is ssts for layer in layers)


def test_elsewhere_no_key_is_parted() -> None:
    """An SST of the live tree may become larger than it should."""
    whole = rows_of_history()
    rows = whole.with_columns([1])
    ssts = [info for info, _ in write(rows, 500, 1000, history=False)]
    assert all(left.largest < right.smallest for left, right in pairwise(ssts))
    assert max(info.rows for info in ssts) >= 100


def test_what_is_no_run_of_history_is_seen() -> None:
    """SSTs that overlap, or go on with a key in the wrong order or beside other keys."""
    ssts = [info for info, _ in write(rows_of_history(), 500, 1000, history=True)]
    at = next(at for at in range(1, len(ssts)) if ssts[at].smallest == ssts[at - 1].smallest == b"k")
    assert is_history_run(ssts)
    assert is_history_run([*ssts[:at], *ssts[at + 1 :]])
    assert not is_history_run([*ssts[: at - 1], ssts[at], ssts[at - 1], *ssts[at + 1 :]])
    assert not is_history_run(ssts[::-1])
    assert not is_history_run([ssts[0], ssts[0]])
