"""The command on a store with an altered table: SSTs of several schemas are sound, the log says what changed."""

from pathlib import Path

import pyarrow as pa
import pytest

from support.service.platforms import QUIET, Platform
from support.store.command import Tussock
from tussock.statestore import StateStore, connect


def fill(store: StateStore) -> None:
    """Write rows before and after the change of the schema."""
    schema = pa.schema([("id", pa.int64()), ("qty", pa.int8())])
    table = store.create_table("orders", schema=schema, primary_key=["id"])
    for row in ({"id": 1, "qty": 7}, {"id": 2, "qty": 1 << 40, "note": "big"}):
        epoch = store.new_epoch()
        table.upsert([row], epoch)
        store.commit_epoch(epoch)
        store.alter_table("orders", add={"note": pa.string()}, widen={"qty": pa.int64()})


@pytest.mark.parametrize("on_platform", [False, True], ids=["embedded", "platform"])
def test_a_store_with_an_altered_table_is_sound(tmp_path: Path, tussock: Tussock, on_platform: bool) -> None:
    """`check` finds no problem in SSTs in the bucket or in log entries, and `scan` shows the present columns."""
    url = (tmp_path / "store").as_uri()
    if on_platform:
        with Platform(url, picker=QUIET) as platform:
            fill(platform.connect())
    else:
        with connect(url, compaction=False) as store:
            fill(store)
    assert "No problems found." in tussock("check", "--store", url).out
    told = " ".join(tussock("log", "--store", url).out.split())
    assert "alter table orders to (id: int64, qty: int64, note: string)" in told
    rows = tussock("scan", "orders", "--store", url, "--json").lines()
    assert sorted(rows, key=lambda row: row["id"]) == [
        {"id": 1, "qty": 7, "note": None},
        {"id": 2, "qty": 1 << 40, "note": "big"},
    ]
