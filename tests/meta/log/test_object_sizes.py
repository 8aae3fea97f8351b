"""An object of the log that is larger than any of its kind is damage, and is not read into memory."""

import tracemalloc
from collections.abc import Callable
from pathlib import Path

import pytest

from support.store.versions import spec
from tussock.meta.log.appends.drafts import plan_entry
from tussock.meta.log.appends.group_commit import Call
from tussock.meta.log.appends.limits import LogLimits
from tussock.meta.log.format import HEADER, MAGICS, OBJECT_BYTES_MAX, base_path, entry_path, lease_path, marker_path
from tussock.meta.log.objects import read_object
from tussock.meta.log.recovery import newest_base, read_entry
from tussock.meta.retention.pin_objects import pin_objects
from tussock.meta.version.deltas.tables import CreateTable
from tussock.meta.version.version import Version
from tussock.statestore.base.system import RealSystem
from tussock.statestore.buckets.file import FileBucket
from tussock.statestore.errors import CorruptLog

MIB = 1 << 20
PIN = f"pins/{5:020d}-{'a' * 16}"
BACKUP = f"backup/nightly.{'b' * 32}"


def sparse(root: Path, path: str, size: int, begin: bytes = b"") -> FileBucket:
    """A folder with one object of `size` bytes, all zero but for its beginning."""
    file = root / path
    file.parent.mkdir(parents=True, exist_ok=True)
    with file.open("wb") as out:
        out.write(begin)
        out.truncate(size)
    return FileBucket(root, RealSystem())


def peak_of(work: Callable[[], object]) -> int:
    """The bytes that `work` had allocated at once."""
    tracemalloc.start()
    try:
        work()
        return tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()


@pytest.mark.parametrize("path", [entry_path(1), base_path(64), BACKUP, PIN, lease_path(1), marker_path(1)])
@pytest.mark.parametrize("size", [300 * MIB, 3 << 30], ids=["large", "huge"])
def test_junk_is_refused_without_being_read(tmp_path: Path, path: str, size: int) -> None:
    """Zeros of any size are told by their first bytes, or by their size."""
    bucket = sparse(tmp_path, path, size)

    def refused() -> None:
        with pytest.raises(CorruptLog, match=path.rpartition("/")[2]):
            read_object(bucket, path)

    assert peak_of(refused) < MIB


@pytest.mark.parametrize("path", [entry_path(1), base_path(64), BACKUP])
def test_what_begins_rightly_is_bounded_by_the_largest_size(tmp_path: Path, path: str) -> None:
    """The first bytes of a real object do not help one that is larger than any."""
    magic = MAGICS[path.partition("/")[0]]
    bucket = sparse(tmp_path, path, OBJECT_BYTES_MAX + 1, HEADER.pack(magic, 5, 0, 1, 0))

    def refused() -> None:
        with pytest.raises(CorruptLog, match="at most 1073741824 bytes"):
            read_object(bucket, path)

    assert peak_of(refused) < MIB


def test_a_large_object_is_read(tmp_path: Path) -> None:
    """One of the right kind is there whole."""
    begin = HEADER.pack(MAGICS["snapshot"], 5, 0, 64, 0)
    bucket = sparse(tmp_path, base_path(64), 9 * MIB, begin)
    assert read_object(bucket, base_path(64)) == begin + bytes(9 * MIB - len(begin))


def test_readers_take_it_for_damage(tmp_path: Path) -> None:
    """The next entry is corrupt, a base version is passed over, and a pin is taken for an unreadable one."""
    for path in (entry_path(1), base_path(64), PIN):
        bucket = sparse(tmp_path, path, 3 << 30)
    with pytest.raises(CorruptLog, match="expected magic"):
        read_entry(bucket, 1)
    version, problems = newest_base(bucket)
    assert (version.seq, len(problems)) == (0, 1)
    assert [pin.owner for pin, _ in pin_objects(bucket)] == ["unreadable"]


def test_calls_that_make_an_entry_too_large_come_into_later_ones() -> None:
    """Calls that come together share an entry as far as it stays small; one that is large has one to itself."""

    def call(name: str) -> Call[None]:
        return Call(lambda version: ([CreateTable(spec=spec(name, version.next_table_id))], None), name, True, 0)

    calls = [call("a" * 200), call("b"), call("c" * 200), call("d")]
    limits = LogLimits(entry_delta_bytes=700)
    sizes = [len(plan_entry(Version(), calls[first:], limits).accepted) for first in range(4)]
    assert sizes == [2, 3, 2, 1]
    assert len(plan_entry(Version(), calls, LogLimits(entry_delta_bytes=1)).accepted) == 1
    assert len(plan_entry(Version(), calls).accepted) == 4
