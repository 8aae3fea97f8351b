"""An entry of the log that came after a vacuum lies where one was whose SSTs some reader still has in its version.

A client may have asked to create an entry, and its request arrives, or is repeated, when that entry has long been
written by another one, read, and deleted. What it has left is not in the log; a reader meets its bytes all the same.
"""

from collections.abc import Callable, Iterator
from typing import Any

import pytest

from support import inside
from support.store.stores import TickingSystem, changes_of, open_on, pairs
from support.store.versions import ModelBucket
from tussock.statestore import CorruptSst

ROWS = [(b"%02d" % number, b"old") for number in range(20)]
NEW = [(key, b"new") for key, _ in ROWS]
LATE = b"\0\0\1\0" + bytes(range(256)) * 60
"""What is at the places of SSTs there is none."""

Read = Callable[[Any], object]

READS: dict[str, tuple[Read, object]] = {
    "get": (lambda kv: kv.get(b"07"), b"new"),
    "multi_get": (lambda kv: kv.multi_get([b"07", b"19"]).to_pylist(), [b"new", b"new"]),
    "scan": (lambda kv: pairs(kv.scan()), ROWS),
    "scan of some": (lambda kv: pairs(kv.scan(start=b"05", limit=3)), ROWS[5:8]),
    "changes": (lambda kv: [row["value"] for row in changes_of(kv)], [b"old"] * 20),
    "change feed": (lambda kv: sum(batch.num_rows for batch in kv.change_feed(0)), 20),
}
"""With their answers: a scan stays at the epoch at which it began, as changes do."""


class Clients:
    """A writer, and a reader that looks for no newer version by itself; both on one clock."""

    def __init__(self) -> None:
        self.system = TickingSystem()
        self.bucket = ModelBucket(self.system)
        self.writer = open_on(self.bucket, self.system, gc_grace=0, retention=1e9)
        kv: Any = self.writer.create_table("kv")
        epoch = self.writer.new_epoch()
        kv.ingest_batch(ROWS, epoch)
        self.writer.commit_epoch(epoch)
        self.reader = open_on(self.bucket, self.system, gc_grace=0, retention=1e9, max_staleness=1e9, cache_bytes=0)
        self.seen: Any = self.reader.table("kv")
        [self.entry] = [sst.entry for sst in inside.version(self.reader).tables[kv.spec.id].levels.ssts()]
        assert self.entry, "the SST lies in the log's entry"

    def leave_behind(self) -> None:
        """Let compaction and vacuum take what the reader's version names, and the late entry come."""
        kv: Any = self.writer.table("kv")
        epoch = self.writer.new_epoch()
        kv.ingest_batch(NEW, epoch)
        self.writer.commit_epoch(epoch)
        self.writer.compact("kv")
        path = f"log/{self.entry:020}.delta"
        for _ in range(200):
            self.writer.create_table(f"t{self.system.monotonic()}".replace(".", "_"))
            self.system.forward(100)
            self.writer.vacuum()
            if path not in self.bucket.objects:
                break
        else:
            pytest.fail("the entry is never deleted")
        assert self.bucket.create(path, LATE)

    def close(self) -> None:
        self.reader.close()
        self.writer.close()


@pytest.fixture
def clients() -> Iterator[Clients]:
    both = Clients()
    yield both
    both.close()


@pytest.mark.parametrize("name", READS)
def test_a_read_goes_on_at_the_newest_version(clients: Clients, name: str) -> None:
    read, expected = READS[name]
    clients.leave_behind()
    assert read(clients.seen) == expected


def test_an_entry_that_the_newest_version_names_is_damaged(clients: Clients) -> None:
    """Then the error says so, at once, and each time."""
    path = f"log/{clients.entry:020}.delta"
    clients.bucket.put(path, LATE)
    for read, _ in READS.values():
        with pytest.raises(CorruptSst, match=rf"{path} from offset \d+, SST"):
            read(clients.seen)
