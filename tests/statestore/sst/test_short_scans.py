"""Short scans leave their blocks in the cache for the next one."""

from tussock.statestore import connect


def keys(count: int) -> list[bytes]:
    return [f"{number:05}".encode() for number in range(count)]


def fetches(store) -> int:
    return store.requests().get("read", {}).get("get_range", (0, 0))[0]


def test_a_repeated_short_scan_over_the_end_of_a_block_makes_no_request():
    """A scan of a few rows that crosses into the next blocks reads them once and leaves them in the cache."""
    with connect("memory://", compaction=False) as store:
        table = store.create_table("kv", block_bytes=1024, compression="none")
        epoch = store.new_epoch()
        table.ingest_batch([(key, b"x" * 200) for key in keys(2000)], epoch)
        store.commit_epoch(epoch)
        starts = keys(2000)[5:1500:37]
        first = [row for start in starts for batch in table.scan(start, limit=10) for row in batch.to_pylist()]
        before = fetches(store)
        assert before > 0
        again = [row for start in starts for batch in table.scan(start, limit=10) for row in batch.to_pylist()]
        assert again == first
        assert fetches(store) == before
        for start, rows in zip(starts, (list(table.scan(start, limit=10)) for start in starts), strict=True):
            found = [row["key"] for batch in rows for row in batch.to_pylist()]
            assert found == [key for key in keys(2000) if key >= start][:10]


def test_a_short_scan_fetches_only_the_blocks_that_are_missing():
    """The missing ones come with one request, and every row comes once."""
    with connect("memory://", compaction=False) as store:
        table = store.create_table("kv", block_bytes=1024, compression="none")
        epoch = store.new_epoch()
        table.ingest_batch([(key, b"x" * 200) for key in keys(2000)], epoch)
        store.commit_epoch(epoch)
        assert table.get(keys(2000)[60]) == b"x" * 200
        found = [row["key"] for batch in table.scan(keys(2000)[40], limit=45) for row in batch.to_pylist()]
        assert found == keys(2000)[40:85]
