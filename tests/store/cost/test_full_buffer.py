"""A shared buffer that is too small for the written rows."""

import pytest

from tussock.statestore import connect


@pytest.mark.parametrize("buffer_bytes", [0, 300])
def test_a_batch_is_stored_or_refused_whole_around_a_spill(tmp_path: object, buffer_bytes: int) -> None:
    """The buffer makes room before a batch, so a small one changes neither reads nor commits."""
    with connect(f"file://{tmp_path}", buffer_bytes=buffer_bytes) as store:
        table = store.create_table("kv")
        for number in range(5):
            table.ingest_batch([(b"%d" % number, bytes(100)), (b"x", b"%d" % number)], 1)
            assert table.get(b"x") == b"%d" % number
        store.commit_epoch(1)
        assert [row["key"] for batch in table.scan() for row in batch.to_pylist()] == [
            b"0",
            b"1",
            b"2",
            b"3",
            b"4",
            b"x",
        ]
