"""The command on a store behind a meta service: what reads rows and trees works, what reads the bucket says so."""

from collections.abc import Iterator

import pytest

from support.service.platforms import Platform
from support.store.command import Tussock


@pytest.fixture
def url() -> Iterator[str]:
    with Platform("memory://command-on-platform") as platform:
        store = platform.connect()
        kv = store.create_table("kv") if "kv" not in store.tables() else store.table("kv")
        epoch = store.new_epoch()
        kv.ingest_batch([(b"a", b"1"), (b"b", b"2")], epoch)
        store.commit_epoch(epoch)
        yield platform.url


def test_rows_and_trees_are_shown(tussock: Tussock, url: str) -> None:
    """The same documents as of an embedded store."""
    (table,) = tussock("tables", "--store", url, "--json").json()["tables"]
    assert table["name"] == "kv"
    assert tussock("get", "kv", "a", "--store", url, "--json").json()["value"] == "1"
    assert [row["key"] for row in tussock("scan", "kv", "--store", url, "--json").lines()] == ["a", "b"]
    assert len(tussock("ssts", "kv", "--store", url, "--json").json()["ssts"]) == 1


@pytest.mark.parametrize("command", [["log"], ["check"], ["version"], ["pins"]])
def test_what_reads_the_bucket_asks_for_its_url(tussock: Tussock, url: str, command: list[str]) -> None:
    """The error says where to find it."""
    ran = tussock(*command, "--store", url)
    assert ran.code == 1
    assert "tussock status" in ran.err
    assert "Traceback" not in ran.err


def test_compaction_is_paused_and_resumed(tussock: Tussock, url: str) -> None:
    """The status says so and why, until it goes on."""
    address = url.removeprefix("tussock://")
    assert tussock("pause", "--meta", address, "--reason", "disk is full").code == 0
    compaction = tussock("status", "--meta", address, "--json").json()["compaction"]
    assert (compaction["paused"], compaction["reason"]) == (True, "disk is full")
    assert tussock("resume", "--meta", address).code == 0
    assert not tussock("status", "--meta", address, "--json").json()["compaction"]["paused"]
