"""Objects of a store with some bytes changed, given to what decodes them.

`python -m support.models.mutations --count 1000000` from `tests/` runs that many over all cores. Half of them keep the
old checksum: each has to be refused by an error of the store. The other half get a new one, as by a writer of another
format: refused, or decoded into something that can be read to its end; never another error, and no end of the process.
"""

import argparse
import random
import struct
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
from pathlib import Path
from typing import NamedTuple
from urllib.parse import unquote, urlsplit

import pyarrow as pa
from crc32c import crc32c

from support import inside
from tussock.meta.log.format import decode_backup, decode_base, decode_entry, decode_pin, entry_frame
from tussock.statestore import TussockError, connect
from tussock.statestore.base.limits import Limits
from tussock.statestore.format.block import decode_block
from tussock.statestore.format.meta import decode_meta

__all__ = ["mutate_and_read", "objects_of_a_store"]

_PER_JOB = 20_000
_TYPED = pa.schema(
    [pa.field("id", pa.int64(), nullable=False), pa.field("name", pa.string()), ("tags", pa.list_(pa.int32()))]
)


class StoredObject(NamedTuple):
    """One object, or a part of one, which ends with its checksum, and what reads it to its end, given its bytes."""

    kind: str
    data: bytes
    read: Callable[[bytes], object]
    behind: int = 0
    """Bytes behind the checksum."""


def objects_of_a_store(url: str) -> list[StoredObject]:
    """The objects of a small store with each kind of them, which is made at this `file://` URL."""
    with connect(url, compaction=False, limits=Limits(one_object_bytes=50_000)) as store:
        inside.base_every(inside.version_log(inside.backend(store)), 3)
        store.create_table("raw", block_bytes=4096)
        store.create_table("typed", _TYPED, ["id"], block_bytes=4096, compression="zstd")
        for epoch in range(4):
            chance = random.Random(epoch)
            with store.transaction() as tx:
                rows = {chance.randbytes(chance.randint(1, 9)): chance.randbytes(40) for _ in range(3000)}
                tx.table("raw").ingest_batch([(key, rows[key] if key[0] % 7 else None) for key in sorted(rows)])
                ids = range(epoch * 500, epoch * 500 + 1500)
                names = [None if n % 9 == 0 else f"name {n}" for n in ids]
                tags = [list(range(n % 4)) for n in ids]
                tx.table("typed").upsert(pa.table([ids, names, tags], schema=_TYPED))
            with store.transaction() as tx:
                tx.table("raw").ingest_batch([(b"few", b"%d" % epoch)])
        store.compact("typed")
        store.backup("kept")
        with store.pin_snapshot():
            return _objects(Path(unquote(urlsplit(url).path)))


def _objects(folder: Path) -> list[StoredObject]:
    found: list[StoredObject] = []
    for path in sorted(folder.rglob("*")):
        name, data = path.relative_to(folder).as_posix(), path.read_bytes() if path.is_file() else b""
        if name.endswith(".delta"):
            seq = int(path.stem)
            # SSTs that an entry brings along have their own checksums.
            data = entry_frame(name, seq, data)
            found.append(StoredObject("entry", data, lambda data, name=name, seq=seq: decode_entry(name, seq, data)))
        elif name.startswith("snapshot/") and data:
            seq = int(path.stem)
            found.append(StoredObject("base", data, lambda data, name=name, seq=seq: decode_base(name, seq, data)))
        elif name.startswith("pins/") and data:
            found.append(StoredObject("pin", data, lambda data, name=name: decode_pin(name, data)))
        elif name.startswith("backup/") and data:
            found.append(StoredObject("backup", data, lambda data, name=name: decode_backup(name, data)))
        elif name.endswith(".meta"):
            found += _parts(path.stem, path.with_suffix(".data").read_bytes(), data, 0)
        elif name.endswith(".data") and not path.with_suffix(".meta").exists():
            size = struct.unpack("<I", data[-4:])[0]
            found += _parts(path.stem, data, data[-size:], 4)
    return found


def _parts(sst: str, whole: bytes, packed: bytes, behind: int) -> list[StoredObject]:
    """The meta of an SST, and some of its blocks."""
    meta = decode_meta(packed, sst, sst)
    parts = [StoredObject("meta", packed, lambda data: decode_meta(data, sst, sst), behind)]
    for number in range(0, len(meta.crc), 5):
        at, size, epoch = int(meta.offset[number]), int(meta.length[number]), int(meta.min_epoch[number])

        def read(data: bytes, epoch: int = epoch) -> object:
            crc = struct.unpack("<I", data[-4:])[0] if len(data) >= 4 else 0
            rows = decode_block(memoryview(data), crc, epoch, meta.types, None, sst)
            return rows.keys.to_pylist(), [_readable(column) for column in rows.columns], rows.deletes

        parts.append(StoredObject("block", whole[at : at + size], read))
    return parts


def _readable(column: pa.Array) -> list[object]:
    """Its values; text as bytes, since it need not be UTF-8."""
    return list((column.view(pa.binary()) if pa.types.is_string(column.type) else column).to_pylist())


def mutate_and_read(one: StoredObject, chance: random.Random) -> str:
    """Change the object and read it; returns how that ended, raises `AssertionError` if it should not have."""
    changed = _changed(one.data, chance)
    sealed = chance.random() < 0.5 and len(changed) > 8
    if sealed:
        end = len(changed) - one.behind
        changed = changed[: end - 4] + struct.pack("<I", crc32c(changed[: end - 4])) + changed[end:]
    if changed == one.data:
        return "as before"
    try:
        one.read(changed)
    except TussockError as error:
        return f"{one.kind}: {type(error).__name__}"
    assert sealed, f"{one.kind}: damage was not seen"
    return f"{one.kind}: read, with its new checksum"


def _changed(data: bytes, chance: random.Random) -> bytes:
    changed = bytearray(data)
    for _ in range(chance.choice([1, 1, 1, 2, 8])):
        at = chance.randrange(len(changed)) if changed else 0
        match chance.randrange(6):
            case 0 | 1 if changed:
                changed[at] ^= 1 << chance.randrange(8)
            case 2 if changed:
                changed[at] = chance.choice([0, 1, 0x7F, 0x80, 0xFF])
            case 3:
                del changed[at : at + chance.choice([1, 4, 100])]
            case 4:
                changed[at:at] = chance.randbytes(chance.choice([1, 4, 100]))
            case _:
                changed[at : at + 4] = chance.choice([b"\xff\xff\xff\xff", b"\xff\xff\xff\x7f", b"\0\0\0\0"])
    return bytes(changed)


def _run(job: int) -> Counter[str]:
    ended: Counter[str] = Counter()
    with tempfile.TemporaryDirectory() as folder:
        objects = objects_of_a_store((Path(folder) / "store").as_uri())
        for number in range(job * _PER_JOB, (job + 1) * _PER_JOB):
            chance = random.Random(number)
            try:
                ended[mutate_and_read(chance.choice(objects), chance)] += 1
            except BaseException as error:
                raise AssertionError(f"mutation {number}: {error!r}") from error
    return ended


def main() -> int:
    """Run mutations; the exit status is 1 if one ended as it must not."""
    parser = argparse.ArgumentParser(prog="mutations", description=__doc__)
    parser.add_argument("--count", type=int, default=100_000)
    parser.add_argument("--first", type=int, default=0, help="the first of them")
    options = parser.parse_args()
    jobs = range(options.first // _PER_JOB, -(-(options.first + options.count) // _PER_JOB))
    began, ended = time.monotonic(), Counter[str]()
    with ProcessPoolExecutor(mp_context=get_context("spawn")) as pool:
        for counts in pool.map(_run, jobs):
            ended += counts
    for how, count in sorted(ended.items()):
        print(f"{count:10,} {how}")
    print(f"{ended.total():,} mutations in {time.monotonic() - began:.0f} s")
    return 0


if __name__ == "__main__":
    sys.exit(main())
