"""A commit that had read a table fails with `Conflict` if another table has its name since."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tussock.statestore import Conflict, EpochTooOld, StateStore, TableNotFound, connect


@pytest.fixture
def clients(tmp_path: Path) -> Iterator[list[StateStore]]:
    opened = [connect(f"file://{tmp_path}", compaction=False) for _ in range(2)]
    yield opened
    for store in opened:
        store.close()


def put(store: StateStore, value: bytes, expect: dict[str, int] | None = None, table: str = "count") -> int:
    epoch = store.new_epoch()
    store.table(table).ingest_batch([(b"n", value)], epoch)
    return store.commit_epoch(epoch, expect=expect)


def made_again(store: StateStore) -> None:
    store.committed_epoch  # noqa: B018 - reads the log
    store.drop_table("count")
    store.create_table("count")


@pytest.mark.parametrize("between", [False, True], ids=["no epoch between", "an epoch between"])
def test_a_read_of_a_dropped_table_conflicts_with_its_successor(clients: list[StateStore], between: bool) -> None:
    """With or without a commit between the read and the new table; a new read and a retry succeed."""
    mine, other = clients
    mine.create_table("count")
    mine.create_table("else")
    read_at = put(mine, b"5")
    n = int(mine.table("count").get(b"n", epoch=read_at))
    if between:
        put(other, b"x", table="else")
    made_again(other)
    mine.committed_epoch  # noqa: B018 - reads the log: the new table is known
    with pytest.raises(Conflict, match=f"'count' was read at epoch {read_at}|with id 1 was read at epoch {read_at}"):
        put(mine, b"%d" % (n + 1), {"count": read_at})
    assert mine.table("count").get(b"n") is None
    read_at = mine.committed_epoch
    assert mine.table("count").get(b"n", epoch=read_at) is None
    put(mine, b"1", {"count": read_at})
    assert mine.table("count").get(b"n") == b"1"


def test_an_upload_for_a_dropped_table_conflicts_as_well(clients: list[StateStore]) -> None:
    """`commit_uploaded` with an epoch in `expect`."""
    mine, other = clients
    table = mine.create_table("count")
    mine.create_table("else")
    read_at = put(mine, b"5")
    assert table.get(b"n", epoch=read_at) == b"5"
    made_again(other)
    mine.committed_epoch  # noqa: B018 - reads the log: the new table is known
    with pytest.raises(Conflict, match=f"read at epoch {read_at}"):
        mine.commit_uploaded({}, expect={"count": read_at})
    mine.commit_uploaded({}, expect={"count": mine.committed_epoch})


def test_a_table_that_was_never_written_may_be_expected(clients: list[StateStore]) -> None:
    """The read epoch is the newest one at its creation; also if this client created it anew."""
    mine, other = clients
    mine.create_table("else")
    put(mine, b"x", table="else")
    mine.create_table("count")
    put(mine, b"1", {"count": mine.committed_epoch})
    made_again(mine)
    put(mine, b"1", {"count": mine.committed_epoch})
    made_again(mine)
    put(other, b"1", {"count": other.committed_epoch})
    assert mine.committed_epoch
    assert mine.table("count").get(b"n") == b"1"


def test_a_table_created_after_the_epoch_that_was_read_conflicts_for_any_client(clients: list[StateStore]) -> None:
    """A client that reads in one process and commits in another names only the epoch that was read."""
    mine, other = clients
    mine.create_table("count")
    mine.create_table("else")
    read_at = put(mine, b"5")
    put(mine, b"x", table="else")
    made_again(mine)
    with pytest.raises(Conflict, match=f"'count' was read at epoch {read_at}, but it was created after"):
        put(other, b"6", {"count": read_at})


@pytest.mark.parametrize("dropped_by", [0, 1], ids=["this client", "another"])
@pytest.mark.parametrize("opened_by", [0, 1], ids=["it had opened it", "it had not"])
def test_a_table_that_was_dropped_conflicts(clients: list[StateStore], dropped_by: int, opened_by: int) -> None:
    """The rows are given up: they are read no more, hold up no later commit, and no repeat stores them."""
    mine, _ = clients
    mine.create_table("else")
    clients[opened_by].create_table("count")
    read_at = put(clients[opened_by], b"5")
    assert clients[dropped_by].committed_epoch == read_at
    clients[dropped_by].drop_table("count")
    epoch = mine.new_epoch()
    mine.table("else").ingest_batch([(b"n", b"computed")], epoch)
    with pytest.raises(Conflict, match=f"read at epoch {read_at}, and has been dropped since"):
        mine.commit_epoch(epoch, expect={"count": read_at})
    assert_given_up(mine, epoch)


def test_a_table_that_never_was_is_not_found(clients: list[StateStore]) -> None:
    """There is nothing to read again, and the rows are given up as well; an upload is only refused."""
    mine, _ = clients
    mine.create_table("else")
    epoch = mine.new_epoch()
    mine.table("else").ingest_batch([(b"n", b"computed")], epoch)
    with pytest.raises(TableNotFound, match="'nope'"):
        mine.commit_epoch(epoch, expect={"nope": 0})
    assert_given_up(mine, epoch)
    with pytest.raises(TableNotFound, match="'nope'"):
        mine.commit_uploaded({}, writer="w", batch_id=0, expect={"nope": 0})


def assert_given_up(store: StateStore, epoch: int) -> None:
    assert store.table("else").get(b"n") is None
    put(store, b"later", table="else")
    with pytest.raises(EpochTooOld):
        store.commit_epoch(epoch)
    assert store.table("else").get(b"n") == b"later"


def test_an_upload_after_the_table_was_dropped_conflicts(clients: list[StateStore]) -> None:
    """`commit_uploaded`, and a batch that is committed gets its epoch all the same."""
    mine, other = clients
    mine.create_table("count")
    read_at = put(mine, b"5")
    done = mine.commit_uploaded({}, writer="w", batch_id=1, expect={"count": read_at})
    assert other.committed_epoch == done
    other.drop_table("count")
    assert mine.commit_uploaded({}, writer="w", batch_id=1, expect={"count": read_at, "nope": 0}) == done
    with pytest.raises(Conflict, match="has been dropped since"):
        mine.commit_uploaded({}, writer="w", batch_id=2, expect={"count": read_at})


def test_a_repeated_batch_gets_its_epoch_though_its_tables_are_dropped(clients: list[StateStore]) -> None:
    """A repeated commit is no new one."""
    mine, other = clients
    mine.create_table("count")
    mine.create_table("else")
    read_at = put(mine, b"5")
    done = mine.commit_uploaded({}, writer="w", batch_id=1, expect={"count": read_at})
    made_again(other)
    assert mine.commit_uploaded({}, writer="w", batch_id=1, expect={"count": read_at}) == done
