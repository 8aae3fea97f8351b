"""The command on a store behind a meta service: commands that need the bucket itself refuse, and say so."""

from collections.abc import Iterator

import pytest

from support.command import Tussock
from support.platforms import Platform


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
    """The documents are those of an embedded store."""
    (table,) = tussock("tables", "--store", url, "--json").json()["tables"]
    assert table["name"] == "kv"
    assert tussock("get", "kv", "a", "--store", url, "--json").json()["value"] == "1"
    assert [row["key"] for row in tussock("scan", "kv", "--store", url, "--json").lines()] == ["a", "b"]
    assert len(tussock("ssts", "kv", "--store", url, "--json").json()["ssts"]) == 1


@pytest.mark.parametrize("command", [["log"], ["check"], ["version"], ["pins"]])
def test_commands_that_read_the_bucket_ask_for_its_url(tussock: Tussock, url: str, command: list[str]) -> None:
    """The error says where to find the URL of the bucket."""
    ran = tussock(*command, "--store", url)
    assert ran.code == 1
    assert "tussock status" in ran.err
    assert "Traceback" not in ran.err


def test_compaction_is_paused_and_resumed(tussock: Tussock, url: str) -> None:
    """The status says that compaction is paused and why, until it is resumed."""
    address = url.removeprefix("tussock://")
    assert tussock("pause", "--meta", address, "--reason", "disk is full").code == 0
    compaction = tussock("status", "--meta", address, "--json").json()["compaction"]
    assert (compaction["paused"], compaction["reason"]) == (True, "disk is full")
    assert tussock("resume", "--meta", address).code == 0
    assert not tussock("status", "--meta", address, "--json").json()["compaction"]["paused"]
