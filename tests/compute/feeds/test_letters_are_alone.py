"""A dead letter has the bytes of the row that it is about, and none of those that came with it."""

import pyarrow as pa
import pytest

from support.feeds.fed_bank import fed_bank
from support.feeds.sums import rows_of
from support.feeds.transfers import commit, table_of, transfer
from tussock.compute import functions as fn
from tussock.compute.applications.ipc_streams import alone_bytes, ipc_table
from tussock.statestore import StateStore

SECONDS = 60


@pytest.mark.parametrize("by_columns", [False, True])
def test_a_letter_has_no_byte_of_its_neighbours(store: StateStore, by_columns: bool) -> None:
    """Story: up to 63 bytes of the strings around a row went with it, ids and names of other people's orders."""
    table_of(store)
    others = [transfer(number, payer=f"person-{number}") for number in range(20)]
    commit(store, *others[:10], transfer(99, payee=None, payer="the-one-to-blame"), *others[10:])
    with fed_bank(store, fn.TableFeed("transfers", on_bad="skip"), "answers", by_columns=by_columns) as bank:
        bank.drain(SECONDS)
    (letter,) = rows_of(store.table("bank.dead_letters"))
    (row,) = ipc_table(letter["data"]).to_pylist()
    assert (row["payer"], row["payee"]) == ("the-one-to-blame", None)
    assert b"person-" not in letter["data"]


def test_rows_alone_are_whole_and_alone() -> None:
    """Of every layout that shares buffers with its neighbours: text, lists, dictionaries, bits."""
    rows = pa.table(
        {
            "text": [f"text-{number}-" for number in range(50)],
            "list": [[f"list-{number}-"] for number in range(50)],
            "shared": pa.array([f"shared-{number % 30}-" for number in range(50)]).dictionary_encode(),
            "maybe": [None if number % 3 else bool(number % 2) for number in range(50)],
        }
    )
    for part in (rows, rows.to_batches()[0].slice(5, 40)):
        for at, count in ((0, 1), (7, 1), (38, 2), (3, 0), (0, part.num_rows)):
            data = alone_bytes(part, at, count)
            chosen = part.slice(at, count)
            assert ipc_table(data).schema == part.schema
            assert ipc_table(data).to_pylist() == chosen.to_pylist()
            there = str(chosen.to_pylist())
            for number in range(50):
                for word in (f"text-{number}-", f"list-{number}-", f"shared-{number}-"):
                    assert (word.encode() in data) == (word in there), (at, count, word)
    assert ipc_table(alone_bytes(rows)).equals(rows)
