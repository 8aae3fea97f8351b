"""A batch that is repeated is the same batch, though it finds its own first effect and goes another way."""

from typing import Any

import pytest

from tussock.statestore import Fenced, StateStore, Transaction


def sell(tx: Transaction) -> str:
    """Sell the last piece; without one, note that."""
    left = int(tx.table("stock").get(b"pieces"))
    if left:
        tx.table("stock").ingest_batch([(b"pieces", b"%d" % (left - 1))])
        return "sold"
    tx.table("rejects").ingest_batch([(b"order", b"no stock")])
    return "rejected"


@pytest.fixture
def shop(store: StateStore) -> StateStore:
    stock: Any = store.create_table("stock")
    store.create_table("rejects")
    epoch = store.new_epoch()
    stock.ingest_batch([(b"pieces", b"1")], epoch)
    store.commit_epoch(epoch)
    return store


def held(store: StateStore) -> tuple[Any, Any]:
    return store.table("stock").get(b"pieces"), store.table("rejects").get(b"order")


@pytest.mark.parametrize("name", [{}, {"source": "shop"}, {"generation": 1}], ids=["name", "source", "generation"])
def test_a_repeat_that_goes_another_way_stores_nothing(shop: StateStore, name: dict[str, Any]) -> None:
    if "generation" in name:
        assert shop.open_writer("desk") == 1
    assert shop.transact(sell, writer="desk", batch_id=1, **name) == "sold"
    assert shop.transact(sell, writer="desk", batch_id=1, **name) == "rejected"
    assert held(shop) == (b"0", None)


def test_a_repeat_that_another_client_has_just_committed_stores_nothing(shop: StateStore, other: StateStore) -> None:
    """Neither knew of the batch when it began; what is read and written has nothing in common."""
    with shop.transaction(writer="desk", batch_id=1) as tx:
        tx.table("rejects").ingest_batch([(b"order", b"closed")])
        with other.transaction(writer="desk", batch_id=1) as theirs:
            theirs.table("stock").ingest_batch([(b"pieces", b"0")])
    assert tx.epoch == theirs.epoch
    shop.wait_epoch(tx.epoch)
    assert held(shop) == (b"0", None)


def test_a_former_generation_is_told_so(shop: StateStore) -> None:
    """Whatever it repeats: it has to stop."""
    first = shop.open_writer("desk")
    shop.transact(sell, writer="desk", batch_id=1, generation=first)
    shop.open_writer("desk")
    with pytest.raises(Fenced, match="generation 1 of writer 'desk' is over"):
        shop.transact(sell, writer="desk", batch_id=1, generation=first)


def test_a_batch_that_was_passed_over_is_no_repeat(shop: StateStore) -> None:
    shop.transact(sell, writer="desk", batch_id=5)
    with pytest.raises(Fenced, match="was never committed"):
        shop.transact(sell, writer="desk", batch_id=3)
    assert held(shop) == (b"0", None)
