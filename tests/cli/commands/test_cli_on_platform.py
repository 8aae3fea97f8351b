"""The command on a store behind a meta service: commands that need the bucket itself refuse, and say so."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from support.service.guarded_meta import GuardedMeta
from support.service.platforms import Platform
from support.store.command import Tussock
from tussock.statestore import connect


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


def test_names_of_writers_are_forgotten_by_a_service(tussock: Tussock, url: str) -> None:
    """The service appends it."""
    with connect(url) as store:
        generation = store.open_writer("a")
        words = ("repair", "writers", "a", "nobody", "--store", url, "--yes")
        refused = tussock(*words)
        assert (refused.code, "within the last 86400 seconds" in refused.err) == (1, True)
        ran = tussock(*words, "--idle", "0", "--json").json()
        assert (ran["forgotten"], ran["unknown"]) == (["a"], ["nobody"])
        assert store.open_writer("a") == generation + 1


@pytest.mark.parametrize("command", [["log"], ["check"], ["version"], ["pins"]])
def test_commands_that_read_the_bucket_ask_for_its_url(tussock: Tussock, url: str, command: list[str]) -> None:
    """The error says where to find the URL of the bucket."""
    ran = tussock(*command, "--store", url)
    assert ran.code == 1
    assert "tussock status" in ran.err
    assert "Traceback" not in ran.err


@pytest.mark.parametrize(
    "words",
    [("compact", "kv", "--retention", "7"), ("compact", "--retention", "0"), ("vacuum", "--dry-run", "--grace", "0")],
)
def test_periods_of_ones_own_are_refused_at_a_service(tussock: Tussock, url: str, words: tuple[str, ...]) -> None:
    """They would become the store's, for all who use it."""
    ran = tussock(*words, "--store", url)
    assert ran.code == 1
    assert "goes by the store's own for everybody: leave it out" in ran.err
    with connect(url) as store:
        version = store.version()
        assert (version.retention_ms, version.gc_grace_ms) == (3_600_000, 900_000)


def test_compaction_is_paused_and_resumed(tussock: Tussock, url: str) -> None:
    """The status says that compaction is paused and why, until it is resumed."""
    address = url.removeprefix("tussock://")
    paused = tussock("pause", "--meta", address, "--reason", "disk is full")
    # Nothing of a session that could not be closed: the command opens none.
    assert (paused.code, len(paused.err.splitlines())) == (0, 1)
    compaction = tussock("status", "--meta", address, "--json").json()["compaction"]
    assert (compaction["paused"], compaction["reason"]) == (True, "disk is full")
    assert tussock("resume", "--meta", address).code == 0
    assert not tussock("status", "--meta", address, "--json").json()["compaction"]["paused"]


def test_a_service_taken_for_an_application_is_told(tussock: Tussock, url: str) -> None:
    """Its address was given without `--meta`."""
    ran = tussock("status", url.removeprefix("tussock://"))
    assert (ran.code, ran.out) == (1, "")
    assert "what answers there is no application: if it is a meta service, give its address by --meta" in ran.err


def test_who_may_not_resume_is_told_so(tussock: Tussock, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The service knows one call for both, which has the name of the other one."""
    with GuardedMeta(tmp_path) as guarded:
        monkeypatch.setenv("TUSSOCK_TOKEN", guarded.tokens["reader"])
        resumed = tussock("resume", "--meta", guarded.process.address)
        paused = tussock("pause", "--meta", guarded.process.address, "--reason", "none")
    assert (resumed.code, paused.code) == (1, 1)
    assert "compaction was not resumed: 'the-reader' has the role reader, and PauseCompaction needs" in resumed.err
    assert "resume" not in paused.err
