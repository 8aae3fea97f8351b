"""Blocks in their objects and Arrow data of a caller may begin at any address."""

import random
from itertools import pairwise

import numpy as np
import pyarrow as pa
import pytest

from tussock.statestore import connect
from tussock.statestore.format.block import CODECS, decode_block, encode_block
from tussock.statestore.rows.key_arrays import binary_buffers
from tussock.statestore.rows.rows import Rows
from tussock.statestore.sst.cached_blocks import CachedBlock

ADDRESSES = range(8)


def move(array: pa.Array, by: int) -> pa.Array:
    """The same values in buffers that begin `by` bytes behind a multiple of 8."""
    buffers = []
    for buffer in array.buffers():
        if buffer is None:
            buffers.append(None)
            continue
        copy = pa.allocate_buffer(buffer.size + 8)
        assert copy.address % 8 == 0
        np.frombuffer(copy, np.uint8)[by : by + buffer.size] = np.frombuffer(buffer, np.uint8)
        buffers.append(copy.slice(by, buffer.size))
    return pa.Array.from_buffers(array.type, len(array), buffers)


@pytest.mark.parametrize("sizes", [(0, 1, 1 << 19), *((at, 300_000 + 3 * at, 300_000) for at in ADDRESSES)])
def test_rows_that_do_not_compress_are_found_at_any_offset_of_their_object(sizes: tuple[int, ...]) -> None:
    """Each kind of read finds rows of a commit's SST and of a compaction's."""
    made = random.Random(sum(sizes))
    keys = [b"", b"\0", b"\xff" * 500]
    expected = {key: made.randbytes(size) for key, size in zip(keys, sizes, strict=True)}
    with connect("memory://", compaction=False, retention=0) as store:
        kv = store.create_table("kv")
        kv.ingest_batch(sorted(expected.items()), epoch := store.new_epoch())
        store.commit_epoch(epoch)
        for _ in range(2):
            assert {key: kv.get(key) for key in keys} == expected
            assert dict(zip(keys, kv.multi_get(keys).to_pylist(), strict=True)) == expected
            assert {row["key"]: row["value"] for batch in kv.scan() for row in batch.to_pylist()} == expected
            assert {key: kv.get(key) for key in keys} == expected
            store.compact("kv")


@pytest.mark.parametrize("codec", CODECS)
@pytest.mark.parametrize("by", ADDRESSES)
def test_a_block_is_decoded_at_any_address(codec: str, by: int) -> None:
    """In any buffer that NumPy or a `memoryview` looks into, numbers are aligned."""
    made = random.Random(by)
    keys = sorted({made.randbytes(made.randrange(1, 9)) for _ in range(50)})
    values = [made.randbytes(made.randrange(40)) for _ in keys]
    rows = Rows(
        pa.array(keys, pa.binary()),
        np.arange(len(keys), dtype=np.uint64),
        np.arange(len(keys)) % 5 == 0,
        (pa.array(values, pa.binary()), pa.array(range(len(keys)), pa.int64())),
    )
    data, _, crc = encode_block(rows, CODECS[codec])
    (placed,) = (buffer for buffer in move(pa.array([data], pa.binary()), by).buffers()[2:] if buffer is not None)
    found = decode_block(memoryview(placed)[: len(data)], crc, 9, [pa.binary(), pa.int64()], None, "here")
    assert memoryview(found.epoch_array()).tolist() == list(range(len(keys)))
    block = CachedBlock(found)
    assert [block.row_of(key) for key in keys] == list(range(len(keys)))
    assert [block.value(at) for at in range(len(keys))] == values
    assert found.columns[1].to_pylist() == list(range(len(keys)))
    for array in (found.keys, *found.columns):
        assert array.buffers()[1].address % 8 == 0


@pytest.mark.parametrize("by", ADDRESSES)
def test_own_rows_are_read_from_arrow_data_at_any_address(by: int) -> None:
    """Raw and typed, before their commit and after it."""
    keys = [b"%0*d" % (2 + at % 3, at) for at in range(100)]
    values = [b"v" * (at % 7) for at in range(100)]
    raw = [move(pa.array(data, pa.binary()), by) for data in (keys, values)]
    numbers = [move(pa.array(range(start, start + 100), pa.int64()), by) for start in (0, 1000)]
    with connect("memory://", compaction=False) as store:
        kv = store.create_table("kv")
        schema = pa.schema([("k", pa.int64()), ("s", pa.binary()), ("v", pa.int64())])
        typed = store.create_table("typed", schema=schema, primary_key=["k"])
        epoch = store.new_epoch()
        kv.upsert(pa.record_batch(raw, names=["key", "value"]), epoch)
        typed.upsert(pa.record_batch([numbers[0], raw[1], numbers[1]], schema=schema), epoch)
        for committed in (False, True):
            if committed:
                store.commit_epoch(epoch)
            assert [kv.get(key) for key in keys] == values
            assert kv.multi_get(keys).to_pylist() == values
            rows = [{"k": at, "s": values[at], "v": 1000 + at} for at in range(100)]
            assert [typed.get(at) for at in range(100)] == rows
            assert typed.multi_get(move(pa.array(range(100)), by)).to_pylist() == rows
            assert (
                sorted((row for batch in typed.read() for row in batch.to_pylist()), key=lambda row: row["k"]) == rows
            )


@pytest.mark.parametrize("by", ADDRESSES)
def test_offsets_can_be_indexed_at_any_address(by: int) -> None:
    """`memoryview` refuses numbers that are not aligned."""
    array = move(pa.array([b"a", b"bcd", b"", b"ef"], pa.binary()), by)
    offsets, data = binary_buffers(array)
    view = memoryview(offsets)  # type: ignore[arg-type]
    ends = [view[at] for at in range(5)]
    assert [bytes(data[start:end]) for start, end in pairwise(ends)] == [b"a", b"bcd", b"", b"ef"]
