"""Keys are found in a cached block where they are in its rows, whatever the widths and however it was decoded."""

import pyarrow as pa
import pytest

from support.store.ssts import Put, store_run
from tussock.statestore.contract.object_store import ObjectStore
from tussock.statestore.rows.key_arrays import fixed_view
from tussock.statestore.rows.rows import Rows
from tussock.statestore.sst.cached_blocks import CachedBlock
from tussock.statestore.sst.reader import Sstables

ASKED = [b"", b"\0", b"0003", b"0003\0", b"0003\0\0", b"0003x", b"00", b"0", b"zzzzzzzz", b"0099", b"0100\0", b"x"]


@pytest.mark.parametrize(
    "keys",
    [
        [b"%04d" % at for at in range(0, 200, 3)],
        [b"%04d" % at + b"\0" * (at % 2) for at in range(0, 200, 3)],
        [b"%02d\0\0" % at for at in range(100)],
        [b""],
    ],
    ids=["one width", "several widths", "zeros behind", "empty"],
)
def test_the_first_row_from_a_key_on_is_that_of_the_rows(keys: list[bytes]) -> None:
    """Shorter and longer keys than those of the block included."""
    rows = Rows(pa.array(keys, pa.binary()), 1, None, ())
    block = CachedBlock(rows)
    for asked in [*ASKED, *keys]:
        assert block.lower_bound(asked) == rows.lower_bound(asked), asked


def test_keys_of_one_width_are_known_by_their_offsets(bucket: ObjectStore, sstables: Sstables) -> None:
    """Of a decoded block and of slices of it; keys that lie elsewhere are looked at."""
    (info,) = store_run(bucket, [Put(b"%05d" % at, 1, b"v") for at in range(100)])
    keys = sstables.block(info, sstables.meta(info), 0).rows.keys
    for part in (keys, keys.slice(7, 20), keys.slice(99)):
        view = fixed_view(part)
        assert view is not None
        assert view.tolist() == part.to_pylist()
    assert fixed_view(pa.array([b"abcd", b"abcdef", b"abcde"], pa.binary())) is None


def test_a_block_counts_what_it_keeps_in_memory(bucket: ObjectStore, sstables: Sstables) -> None:
    """By what its index says, with which what Arrow says agrees, but for the offsets that blocks share."""
    (info,) = store_run(bucket, [Put(b"%05d" % at, 1, b"value %d" % at) for at in range(1000)])
    meta = sstables.meta(info)
    block = sstables.block(info, meta, 0)
    assert block.nbytes - block.search_bytes == int(meta.raw_length[0])
    assert 0.8 < (block.nbytes - block.search_bytes) / block.rows.nbytes < 1.1
