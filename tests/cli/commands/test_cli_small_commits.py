"""Small commits over a meta service: one object each, one request to read it, and every command treats it as an SST."""

from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest

from support import inside
from support.service.platforms import QUIET, Platform
from support.store.command import Tussock
from tussock.meta.version.version import Version
from tussock.statestore import StateStore, connect
from tussock.statestore.buckets import RequestCounts, open_bucket
from tussock.statestore.contract.object_store import ObjectStore
from tussock.statestore.contract.records import data_object, stored_bytes

COMMITS = 5
ROWS = [(b"%02d" % number, b"v" * 50) for number in range(20)]


def commit(store: StateStore, *rows: tuple[bytes, bytes | None]) -> int:
    """Commit one epoch of table `kv`."""
    epoch = store.new_epoch()
    store.table("kv").ingest_batch(rows, epoch)
    return store.commit_epoch(epoch)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return tmp_path / "store"


@pytest.fixture
def platform(folder: Path) -> Iterator[Platform]:
    with Platform(folder.as_uri(), picker=QUIET) as made:
        made.connect().create_table("kv", compression="none")
        yield made


def paths_under(bucket: ObjectStore, prefix: str) -> list[str]:
    return [info.path for info in bucket.list(prefix)]


def requests(counts: RequestCounts) -> Counter[str]:
    """The number of requests of each kind, summed over all callers."""
    found = Counter[str]()
    for operations in counts.counts().values():
        found.update({name: count for name, (count, _) in operations.items()})
    return found


def newest(platform: Platform) -> Version:
    return platform.leader.node.meta.refresh()


def test_a_small_commit_is_one_create_and_its_first_read_one_get(platform: Platform) -> None:
    """The writer reads nothing in the bucket; a reader fetches no more of the entry than the SST."""
    writer = platform.connect()
    commit(writer, *ROWS)  # by now the leader has listed the markers
    before, own = requests(platform.leader.requests), requests(inside.requests(writer))
    commit(writer, *ROWS)
    spent = requests(platform.leader.requests) - before
    del spent["put"]  # of the lease, which is renewed
    assert spent == {"create": 1}
    assert requests(inside.requests(writer)) == own
    reader = platform.connect()
    assert reader.table("kv").get(b"07") == b"v" * 50
    assert requests(inside.requests(reader)) == {"get_range": 1}
    ((_, moved),) = [ops["get_range"] for ops in inside.requests(reader).counts().values() if "get_range" in ops]
    assert moved == stored_bytes(newest(platform).ssts()[0])


def test_clients_receive_entries_without_their_ssts(platform: Platform) -> None:
    """The log's entries grow with the rows; what is pushed to clients for each commit does not."""
    store = platform.connect()
    start = newest(platform).seq
    for _ in range(COMMITS):
        commit(store, *[(key, b"x" * 1000) for key, _ in ROWS])
    pushed = inside.feed(platform.leader.node).after(start, 1 << 20)
    stored = platform.leader.bucket.list("log/")
    assert len(pushed.entries) == COMMITS
    assert all(len(entry) < 1000 for entry in pushed.entries)
    assert sum(info.size > 20_000 for info in stored) == COMMITS


def test_ssts_in_entries_are_checked_and_dumped(platform: Platform, folder: Path, tussock: Tussock) -> None:
    """`tussock check` reads every byte of an SST in an entry, and `tussock sst dump` shows its rows."""
    store = platform.connect()
    commit(store, *ROWS)
    url = folder.as_uri()
    found = tussock("check", "--store", url, "--json").json()
    assert found["ok"]
    assert (found["checked"]["SSTs"], found["checked"]["rows"], found["orphans"]) == (1, len(ROWS), 0)
    (sst,) = newest(platform).ssts()
    (shown,) = tussock("ssts", "kv", "--store", url, "--json").json()["ssts"]
    assert (shown["entry"], shown["offset"]) == (sst.entry, sst.offset)
    dumped = tussock("sst", "dump", sst.id[:20], "--store", url, "--json").json()
    assert (dumped["object"], dumped["offset"]) == (data_object(sst), sst.offset)
    assert [row["key"] for row in dumped["contents"]] == [key.decode() for key, _ in ROWS]
    path = folder / data_object(sst)
    whole = path.read_bytes()
    for position in (0, 7, 8, 100, sst.data_bytes - 1, sst.data_bytes, sst.data_bytes + 60, stored_bytes(sst) - 1):
        damaged = bytearray(whole)
        damaged[sst.offset + position] ^= 1
        path.write_bytes(damaged)
        ran = tussock("check", "--store", url, "--json")
        assert ran.code == 1, position
        assert {one["object"] for one in ran.json()["problems"]} == {data_object(sst)}
    path.write_bytes(whole)


def test_ssts_in_entries_are_backed_up_restored_and_cloned(
    platform: Platform, folder: Path, tmp_path: Path, tussock: Tussock
) -> None:
    """A restored store has these SSTs as objects in its bucket; a clone reads them where they are."""
    store = platform.connect()
    commit(store, *ROWS)
    store.backup("nightly")
    restored, cloned = ((tmp_path / name).as_uri() for name in ("restored", "cloned"))
    assert tussock("backup", "restore", "nightly", restored, "--store", folder.as_uri()).code == 0
    assert tussock("clone", folder.as_uri(), cloned).code == 0
    assert len(paths_under(open_bucket(restored), "sst/")) == 1
    assert paths_under(open_bucket(cloned), "sst/") == []
    for url in (restored, cloned):
        assert tussock("check", "--store", url, "--json").json()["ok"]
        with connect(url, compaction=False) as other:
            assert [row["key"] for batch in other.table("kv").scan() for row in batch.to_pylist()] == [
                k for k, _ in ROWS
            ]
            other.compact("kv")
            assert other.table("kv").get(b"07") == b"v" * 50
