"""The command on tables with their own periods, on a platform, which keeps and obeys them as an embedded store."""

from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from support.service.platforms import QUIET, Platform
from support.store.command import Tussock
from tussock.statestore import InvalidOption, SnapshotExpired

HOUR = 3600.0


def test_on_a_platform_all_is_the_same(tmp_path: Path, tussock: Tussock) -> None:
    """The service keeps the retention, hands out pins that say which tables they hold, and the command shows both."""
    url = (tmp_path / "store").as_uri()
    with Platform(url, picker=QUIET) as platform:
        store = platform.connect()
        store.create_table("none", retention=0)
        store.create_table("long")
        schema = pa.schema([("id", pa.int64()), ("at", pa.timestamp("ms"))])
        store.create_table("events", schema, ["id"], ttl=60, ttl_column="at")
        with pytest.raises(InvalidOption, match="ttl_column is 'id'"):
            store.create_table("wrong", schema, ["id"], ttl=60, ttl_column="id")
        store.alter_table("long", retention=HOUR)
        epochs = []
        for value in (b"1", b"2"):
            epoch = store.new_epoch()
            for name in ("none", "long"):
                store.table(name).ingest_batch([(b"k", value)], epoch)
            epochs.append(store.commit_epoch(epoch))
        with store.pin_snapshot(epochs[0]) as snapshot:
            assert snapshot.table("long").get(b"k") == b"1"
            with pytest.raises(SnapshotExpired, match="table 'none'"):
                snapshot.table("none").get(b"k")
        with pytest.raises(SnapshotExpired):
            store.table("none").get(b"k", epoch=epochs[0])
        with pytest.raises(InvalidOption, match="retention"):
            store.alter_table("long", retention=-1)
        names = ("retention_seconds", "ttl_seconds", "ttl_column")
        told = {table["name"]: tuple(map(table.get, names)) for table in _tables(tussock, url)}
        assert told == {"none": (0.0, None, None), "long": (HOUR, None, None), "events": (None, 60.0, "at")}
        assert "60 s from at" in tussock("tables", "--store", url).out
    told_of = " ".join(tussock("log", "--store", url).out.split())
    assert "create table none (id 1), raw, retention 0 s" in told_of
    assert "create table events (id 3) with key (id), rows live 60 s from at" in told_of
    assert "set retention of table long to 3,600 s" in told_of


def _tables(tussock: Tussock, url: str) -> Any:
    return tussock("tables", "--store", url, "--json").lines()[0]["tables"]
