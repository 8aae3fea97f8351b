"""Which names in a folder are files of a feed: all but those with a dot in front, and what is no file."""

import os
from pathlib import Path

import obstore
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from obstore.store import MemoryStore

from support.waiting import eventually
from tussock.compute import changelog as cl
from tussock.statestore import StateStore, WaitTimeout
from tussock.statestore.base.system import RealSystem
from tussock.statestore.buckets.obstore_bucket import ObstoreBucket

ITEM = pa.schema([pa.field("id", pa.int64(), nullable=False), ("v", pa.int64())])


NAMES = (
    "topic+0+0000000000", "2026-11-26T06:05:00+01:00", "a b", "a%b", "%20", "a~b", "#1", "a?b", "a*b", "a'b", 'a"b',
    "a&b", "[x]", "é", "日本", "a\\b", "x" * 220, "part=é/1",
)  # fmt: skip


def item(number: int) -> pa.Table:
    return pa.table({"id": [number], "v": [number * 10]})


def write_item(path: Path, number: int) -> None:
    pq.write_table(item(number), path)


def flow_of(store: StateStore, folder: Path) -> tuple[cl.Stream, cl.Flow]:
    stream = cl.Stream(store, "fed", schema=ITEM, key=["id"])
    flow = cl.Flow(store, [stream])
    flow.feed(stream, cl.FileFeed(folder.as_uri()))
    return stream, flow


def taken(stream: cl.Stream) -> list[int]:
    return [one["id"] for each in stream.in_history() for one in each]


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    found = tmp_path / "in"
    found.mkdir()
    return found


def test_files_of_any_name_are_read(store: StateStore, folder: Path) -> None:
    """Such as those that Kafka Connect writes, in the order of their bytes, also after a start."""
    for number, name in enumerate(NAMES):
        path = folder / f"{name}.parquet"
        path.parent.mkdir(exist_ok=True)
        write_item(path, number)
    write_item(folder / ".hidden.parquet", 99)
    stream, flow = flow_of(store, folder)
    with flow:
        flow.drain(60)
    with flow:
        flow.drain(60)
        found = [NAMES[number] for number in taken(stream)]
    assert found == sorted(NAMES, key=lambda name: f"{name}.parquet".encode())


def test_objects_of_any_name_are_read() -> None:
    """The same in a bucket."""
    names = [name for name in NAMES if "/" not in name]
    bucket = MemoryStore()
    data = pa.BufferOutputStream()
    pq.write_table(item(1), data)
    for name in names:
        obstore.put(bucket, f"{name}.parquet", data.getvalue().to_pybytes())
    opened = ObstoreBucket(lambda: bucket, "memory://names", RealSystem(), any_names=True)
    listed = [info.path for info in opened.list("")]
    assert listed == sorted(f"{name}.parquet" for name in names)
    assert {opened.get(path) for path in listed} == {data.getvalue().to_pybytes()}
    assert [info.path for info in opened.list(listed[3])] == [listed[3]]


def test_what_is_no_file_is_left_alone(store: StateStore, folder: Path) -> None:
    """A pipe, which nobody writes to, and links that lead nowhere."""
    os.mkfifo(folder / "1.parquet")
    (folder / "2.parquet").symlink_to(folder / "2.parquet")
    (folder / "3.parquet").symlink_to(folder / "absent")
    (folder / "4.parquet").mkdir()
    write_item(folder / "5.parquet", 5)
    stream, flow = flow_of(store, folder)
    with flow:
        flow.drain(60)
        assert taken(stream) == [5]


def test_a_name_that_is_no_text_is_told(store: StateStore, folder: Path) -> None:
    """As `trouble`, until the file has another name."""
    path = Path(os.fsdecode(os.fsencode(folder) + b"/1\xff.parquet"))
    write_item(folder / "1", 1)
    (folder / "1").rename(path)
    write_item(folder / "0.parquet", 0)
    stream, flow = flow_of(store, folder)
    with flow:
        flow.drain(60)
        assert taken(stream) == [0]
        eventually(lambda: "its name is no UTF-8" in flow.stats()["feeds"]["fed"]["trouble"])
        path.rename(folder / "2.parquet")
        eventually(lambda: taken(stream) == [0, 1])
        eventually(lambda: not flow.stats()["feeds"]["fed"]["trouble"])


def test_a_drain_that_waits_in_vain_says_what_is_wrong(store: StateStore, tmp_path: Path) -> None:
    """The feed, and why it does not go on."""
    folder = tmp_path / "of_itself"
    folder.symlink_to(folder)
    _, flow = flow_of(store, folder)
    with flow, pytest.raises(WaitTimeout, match=r"feed 'fed' has more \(list in .* failed: .*\); it works on"):
        flow.drain(2)
