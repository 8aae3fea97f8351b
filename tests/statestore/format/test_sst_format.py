"""The bytes of an SST are frozen: golden files, and the worked examples of `docs/formats.md`."""

import re
import runpy
import struct
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import pyarrow as pa
import pytest
from crc32c import crc32c

from tussock.statestore.base.limits import DEFAULT_LIMITS
from tussock.statestore.base.system import RealSystem
from tussock.statestore.buckets import open_bucket
from tussock.statestore.contract.records import SstInfo, data_path, meta_path
from tussock.statestore.format import block as block_module
from tussock.statestore.format import meta as sst_meta
from tussock.statestore.format.block import CODECS, TRAILER_BYTES, decode_block
from tussock.statestore.format.bloom import Bloom
from tussock.statestore.format.hashing import hash_key
from tussock.statestore.format.meta import BlockIndex, SstMeta, check_meta, decode_meta
from tussock.statestore.format.parted_filter import FilterShape, PartedFilter, build_parts, with_checksums
from tussock.statestore.format.value_bounds import ColumnBounds
from tussock.statestore.sst.iterators import ConcatIterator, ReadRange
from tussock.statestore.sst.reader import Sstables

ROOT = Path(__file__).resolve().parents[3]
GOLDEN = ROOT / "tests" / "golden" / "sst" / "v1"
ONE_OBJECT = ROOT / "tests" / "golden" / "sst" / "v2"
FILTER_APART = ROOT / "tests" / "golden" / "sst" / "v3"
DOCUMENT = (ROOT / "docs" / "formats.md").read_text(encoding="utf-8")
SCRIPT = runpy.run_path(str(ROOT / "tests" / "golden" / "write_sst_v1.py"))
SCRIPT_2 = runpy.run_path(str(ROOT / "tests" / "golden" / "write_sst_v2.py"))
SCRIPT_3 = runpy.run_path(str(ROOT / "tests" / "golden" / "write_sst_v3.py"))
CASES = [(name, codec) for codec in CODECS for name in SCRIPT["golden"](codec)]


def golden_parts(name: str, codec: str, version: int) -> tuple[bytes, bytes]:
    """The blocks and the meta of a golden SST of any version."""
    if version != 2:
        metas = GOLDEN if version == 1 else FILTER_APART
        return (GOLDEN / f"{name}-{codec}.data").read_bytes(), (metas / f"{name}-{codec}.meta").read_bytes()
    whole = (ONE_OBJECT / f"{name}-{codec}.data").read_bytes()
    length = struct.unpack("<I", whole[-4:])[0]
    return whole[:-length], whole[-length:]


def read_rows(name: str, codec: str, epoch: int, version: int = 1) -> list[tuple[bytes, int, tuple[Any, ...] | None]]:
    """The rows of a golden SST, through a bucket and the reader."""
    data, meta_bytes = golden_parts(name, codec, version)
    sst_id = f"{list(SCRIPT['golden'](codec)).index(name) + 1:032x}"
    meta = decode_meta(meta_bytes, sst_id, "here")
    info = SstInfo(
        id=sst_id,
        smallest=meta.smallest,
        largest=meta.largest,
        rows=meta.rows,
        deletes=meta.deletes,
        data_bytes=len(data),
        meta_bytes=len(meta_bytes),
        epoch=epoch,
        min_epoch=epoch,
        max_epoch=epoch or (1 << 63) - 1,
        meta_in_data=version == 2,
        head_bytes=16 + struct.unpack_from("<I", meta_bytes, 8)[0] if version == 3 else 0,
        filter_parts=meta.filter.parts if meta.filter is not None else 0,
    )
    bucket = open_bucket("memory://")
    if version == 2:
        bucket.put(data_path(sst_id), data + meta_bytes)
    else:
        bucket.put(data_path(sst_id), data)
        bucket.put(meta_path(sst_id), meta_bytes)
    sstables = Sstables(bucket, 1 << 20, RealSystem())
    found = []
    for rows in ConcatIterator(sstables, (info,), ReadRange()):
        columns = zip(*(column.to_pylist() for column in rows.columns), strict=True)
        for key, at, deleted, values in zip(
            rows.keys.to_pylist(), rows.epoch_array().tolist(), rows.delete_array().tolist(), columns, strict=True
        ):
            found.append((key, at, None if deleted else values))
    sstables.close()
    return found


@pytest.mark.parametrize("version", [1, 2, 3])
@pytest.mark.parametrize(("name", "codec"), CASES)
def test_golden_files_are_read(name: str, codec: str, version: int) -> None:
    """Every version is read for ever, in every codec."""
    case = SCRIPT["golden"](codec)[name]
    epoch = 77 if case.inherited else 0
    expected = [(key, epoch or at, values) for key, at, values in case.rows]
    assert read_rows(name, codec, epoch, version) == expected


@pytest.mark.parametrize("codec", ["none", "lz4"])
def test_golden_files_are_what_the_writer_writes(codec: str) -> None:
    """A changed byte is a changed format: that takes a new version and a new folder of golden files."""
    for name, data in SCRIPT["files"](codec).items():
        assert data == (GOLDEN / name).read_bytes(), name
    for name, data in SCRIPT_2["files"](codec).items():
        assert data == (ONE_OBJECT / name).read_bytes(), name
    for name, data in SCRIPT_3["files"](codec).items():
        assert data == (FILTER_APART / name).read_bytes(), name


def test_golden_files_cover_the_format() -> None:
    """Each flag, codec and layout of keys is in one of them."""
    flags, codecs = set(), set()
    for path in GOLDEN.glob("*.meta"):
        payload = msgspec.msgpack.decode(path.read_bytes()[12:-4], type=SstMeta)
        meta = decode_meta(path.read_bytes(), payload.id, "here")
        data = path.with_suffix(".data").read_bytes()
        assert data[:8] == sst_meta.DATA_HEADER
        for number in range(meta.blocks):
            start, length = int(meta.offset[number]), int(meta.length[number])
            codec = data[start + length - TRAILER_BYTES]
            codecs.add(codec)
            if codec == CODECS["none"]:
                flags.add(struct.unpack_from("<H", data, start + 4)[0])
        if path.stem.startswith("versions"):
            assert any(meta.continues)
        assert meta.blocks > 1
    assert codecs == set(CODECS.values())
    for flag in (1, 2, 4):
        assert {bool(each & flag) for each in flags} == {False, True}


# --- The document. ------------------------------------------------------------------------------------------------


def dump(name: str) -> bytes:
    """The bytes of a hex block of the document, marked `hex NAME`; text after `|` is commentary."""
    match = re.search(rf"^```hex {name}\n(.*?)^```", DOCUMENT, re.MULTILINE | re.DOTALL)
    assert match is not None, f"docs/formats.md has no block `hex {name}`"
    lines = [line.partition("|")[0] for line in match[1].splitlines()]
    return bytes.fromhex("".join(line.partition(":")[2] for line in lines))


def test_the_worked_example_of_a_block_decodes() -> None:
    """With the arithmetic of the document and with the reader."""
    data = dump("block")
    crc = struct.unpack("<I", data[-4:])[0]
    assert crc == crc32c(data[:-4])
    rows = decode_block(memoryview(data), crc, 0, [pa.binary(), pa.int32()], None, "here")
    assert rows.keys.to_pylist() == [b"a", b"ab", b"ab"]
    assert rows.epoch_array().tolist() == [2, 3, 1]
    assert rows.delete_array().tolist() == [False, True, False]
    assert [column.to_pylist() for column in rows.columns] == [[b"one", b"", b"two"], [7, None, -1]]
    again, _, _ = block_module.encode_block(rows, CODECS["none"])
    assert again == data


def test_the_worked_example_of_a_meta_decodes() -> None:
    """The worked example of a `.meta` is that of an SST whose one block is the document's block."""
    data, block = dump("meta"), dump("block")
    meta = decode_meta(data, "0" * 31 + "1", "here")
    payload = msgspec.msgpack.decode(data[12:-4], type=SstMeta)
    assert sst_meta.encode_meta(payload) == data
    assert (meta.rows, meta.deletes, meta.smallest, meta.largest) == (3, 1, b"a", b"ab")
    assert meta.schema == pa.schema([("value", pa.binary()), ("n", pa.int32())])
    assert meta.data_bytes == 8 + len(block)
    assert (meta.offset.tolist(), meta.length.tolist()) == ([8], [len(block)])
    assert meta.raw_length.tolist() == [len(block) - TRAILER_BYTES]
    assert meta.crc == [crc32c(block[:-4])]
    assert (meta.block_rows.tolist(), meta.block_deletes.tolist()) == ([3], [1])
    assert (meta.min_epoch.tolist(), meta.max_epoch.tolist()) == ([1], [3])
    assert (meta.first_keys, list(meta.continues)) == ([b"a"], [0])
    bloom = Bloom(payload.bloom)
    assert bloom.may_contain(hash_key(b"a"))
    assert bloom.may_contain(hash_key(b"ab"))
    assert not bloom.may_contain(hash_key(b"absent"))


def test_the_worked_example_of_a_small_sst_decodes() -> None:
    """The same SST as one object: the block between another header and another frame around the payload."""
    block, payload = dump("block"), dump("meta")[12:-4]
    small = dump("small-head") + block + dump("small-frame") + payload + dump("small-end")
    length = struct.unpack("<I", small[-4:])[0]
    assert (small[:8], small[-length:][:4]) == (sst_meta.ONE_OBJECT_HEADER, b"TSKM")
    meta = decode_meta(small[-length:], "0" * 31 + "1", "here")
    assert (len(small) - length, meta.data_bytes) == (8 + len(block),) * 2
    assert sst_meta.encode_meta(msgspec.msgpack.decode(payload, type=SstMeta), in_data=True) == small[-length:]


@pytest.mark.parametrize(("name", "codec"), CASES)
def test_golden_filters_that_lie_apart_have_the_keys(name: str, codec: str) -> None:
    """Each key in one part of several; a part denies a key that is nowhere."""
    data = golden_parts(name, codec, 3)[1]
    sst_id = f"{list(SCRIPT['golden'](codec)).index(name) + 1:032x}"
    meta = decode_meta(data, sst_id, "here")
    assert isinstance(meta.bloom, PartedFilter)
    assert meta.bloom.parts == 16
    assert all(meta.bloom.may_contain(hash_key(key)) for key, _, _ in SCRIPT["golden"](codec)[name].rows)
    assert meta.bloom.may_contain(hash_key(b"absent")) is False


def test_the_worked_example_of_a_filter_that_lies_apart_decodes() -> None:
    """With the arithmetic of the document and with the reader."""
    fields = dump("meta")[13:-4]
    data = dump("apart-frame") + fields[: fields.index(b"\xa5bloom")] + dump("apart-end")
    sst_id = "0" * 31 + "1"
    assert len(data) == 532
    meta = decode_meta(data, sst_id, "here")
    assert meta.filter == FilterShape(parts=2, bytes=20)
    for number, key in enumerate((b"a", b"ab")):
        assert hash_key(key) % 2 == number
        part = data[492 + 20 * number : 512 + 20 * number]
        assert struct.unpack("<I", part[16:])[0] == crc32c(sst_id.encode() + struct.pack("<I", number) + part[:16])
        assert Bloom(part[:16]).may_contain(hash_key(key))
        assert not Bloom(part[:16]).may_contain(hash_key(b"absent"))
    record = check_meta(data, sst_id, "here")
    hashes = np.array([hash_key(b"a"), hash_key(b"ab")], np.uint64)
    assert sst_meta.encode_meta(record) + b"".join(with_checksums(sst_id, build_parts(hashes, 10, 2))) == data


@pytest.mark.parametrize("record", [SstMeta, BlockIndex, ColumnBounds, FilterShape])
def test_every_field_on_disk_is_in_the_document(record: type) -> None:
    """A second implementation could not write a field that the document does not name."""
    missing = [name for name in record.__annotations__ if f"| `{name}` |" not in DOCUMENT]
    assert missing == []


def test_numbers_on_disk_are_in_the_document() -> None:
    """Magic, versions, flags and codecs are never reused, so the document lists each."""
    for name, number in CODECS.items():
        assert f"| {number} | `{name}` |" in DOCUMENT
    assert "`TSKM`" in DOCUMENT
    assert "`TSKD`" in DOCUMENT
    assert f"{DEFAULT_LIMITS.segment_bytes >> 20} MiB" in DOCUMENT
