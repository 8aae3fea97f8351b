"""`version`, `ssts`, `sst dump`, `log`, `pins`, `compact` and `vacuum` on small real stores."""

from pathlib import Path

import pytest

from support.store.command import Sample, Tussock, build_sample
from tussock.statestore import connect


@pytest.fixture
def own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Sample:
    """A store that a test may change."""
    built = build_sample(tmp_path / "own")
    monkeypatch.setenv("TUSSOCK_STORE", built.url)
    return built


def test_version_shows_levels_ledger_and_epochs(tussock: Tussock, sample: Sample) -> None:
    """The text shows each table's levels, the committed epoch with its time, and the writers."""
    out = tussock("version").out
    assert f"{sample.epochs[2]} (20" in out
    assert ["kv", "L0", "3", "3", "360"] in [line.split()[:5] for line in out.splitlines()]
    assert ["job", "2", str(sample.epochs[2])] in [line.split()[:3] for line in out.splitlines()]


def test_version_in_json(tussock: Tussock, sample: Sample) -> None:
    """The document holds the same: levels with counts, the ledger by writer, tasks, pins."""
    document = tussock("version", "--json").json()
    assert document["max_committed_epoch"] == sample.epochs[2]
    assert [table["runs"] for table in document["tables"]] == [3, 3]
    assert document["tables"][0]["levels"][0]["rows"] == 360
    assert document["ledger"]["job"][-1] == {"batch_id": 2, "epoch": sample.epochs[2]}
    assert (document["tasks"], document["pins"], document["safe_epoch"]) == ([], [], 0)
    assert (document["retention_seconds"], document["gc_grace_seconds"]) == (3600, 900)


def test_ssts_lists_the_newest_run_first(tussock: Tussock, sample: Sample) -> None:
    """Run 0 of L0 is the newest commit."""
    ssts = tussock("ssts", "kv", "--json").json()["ssts"]
    assert [(sst["level"], sst["run"], sst["epoch"]) for sst in ssts] == [
        (0, 0, sample.epochs[2]),
        (0, 1, sample.epochs[1]),
        (0, 2, sample.epochs[0]),
    ]
    assert ssts[0]["largest"] == {"hex": "7aff00"}
    out = tussock("ssts", "kv").out
    assert "L0.2" in out
    assert "k002 to hex:7aff00" in out


def test_sst_dump_shows_full_keys(tussock: Tussock, sample: Sample) -> None:
    """Every row comes with user key, epoch and operation, and with the full key that the two make."""
    sst = tussock("ssts", "orders", "--json").json()["ssts"][0]
    dumped = tussock("sst", "dump", sst["id"], "--json").json()
    assert (dumped["table"], dumped["rows"], dumped["deletes"]) == ("orders", 2, 1)
    assert sum(block["rows"] for block in dumped["blocks"]) == 2
    deleted, put = sorted(dumped["contents"], key=lambda row: str(row["op"]))
    assert (deleted["op"], deleted["values"]) == ("delete", {"day": "2026-01-01", "id": 1})
    assert put["values"] == {
        "day": "2026-01-02",
        "id": 12,
        "note": None,
        "amount": "2.25",
        "at": "2026-01-02T12:00:00Z",
    }
    assert put["full_key_hex"] == put["key"]["hex"] + sample.epochs[2].to_bytes(8, "big").hex()


def test_sst_dump_for_people_limits_rows(tussock: Tussock, sample: Sample) -> None:
    """A dump shows the first rows, says how many more there are, and takes the beginning of an id."""
    sst = tussock("ssts", "kv", "--json").json()["ssts"][0]
    ran = tussock("sst", "dump", sst["id"][:31], "--limit", "2")
    assert ran.code == 0
    assert "value=v2" in ran.out
    assert "117 more rows" in ran.err
    assert "crc32c" in ran.out


def test_sst_dump_needs_one_sst(tussock: Tussock, sample: Sample) -> None:
    """A prefix that fits several ids, or none, is refused."""
    assert "6 SSTs have" in tussock("sst", "dump", "0").err
    assert "no SST has" in tussock("sst", "dump", "ffff").err


def test_log_shows_each_delta_in_a_line(tussock: Tussock, sample: Sample) -> None:
    """Tables are named, commits say rows, SSTs and the writer's batch."""
    lines = tussock("log").out.splitlines()[2:]
    assert len(lines) == 5
    assert "create table kv (id 1), raw" in lines[0]
    assert "create table orders (id 2) with key (day, id)" in lines[1]
    assert (
        f"commit epoch {sample.epochs[0]}: kv 121 rows in 1 SST; orders 2 rows in 1 SST, writer job batch 0" in lines[2]
    )


def test_log_in_json_and_its_last_entries(tussock: Tussock, sample: Sample) -> None:
    """JSON has one entry a line; --limit takes the last ones."""
    entries = tussock("log", "--json").lines()
    assert [entry["seq"] for entry in entries] == [1, 2, 3, 4, 5]
    assert [delta["type"] for entry in entries for delta in entry["deltas"]] == ["create_table"] * 2 + [
        "commit_epoch"
    ] * 3
    ran = tussock("log", "--limit", "2")
    assert len(ran.out.splitlines()) == 4
    assert "3 older entries" in ran.err


def test_pins_show_holder_and_epoch(tussock: Tussock, sample: Sample, own: Sample) -> None:
    """A pin is listed while it is held, with its epoch."""
    assert tussock("pins").out == "Nobody holds a pin.\n"
    with connect(own.url, compaction=False) as store, store.pin_snapshot(epoch=own.epochs[1]):
        (pin,) = tussock("pins", "--json").json()["pins"]
        assert (pin["epoch"], pin["live"]) == (own.epochs[1], True)
        assert str(own.epochs[1]) in tussock("pins").out
        assert "pinned epoch" in tussock("version").out


def test_compact_merges_and_keeps_history(tussock: Tussock, own: Sample) -> None:
    """Within the retention nothing is dropped; the table becomes one sorted run, and what it superseded history."""
    done = tussock("compact", "kv", "--json").json()["tables"]
    assert done == [
        {
            "name": "kv",
            "before": {"ssts": 3, "runs": 3, "rows": 360, "bytes": done[0]["before"]["bytes"]},
            "after": {"ssts": 1, "runs": 1, "rows": 120, "bytes": done[0]["after"]["bytes"]},
        }
    ]
    (past,) = [table["history"] for table in tussock("version", "--json").json()["tables"] if table["name"] == "kv"]
    assert (past["runs"], past["ssts"], past["rows"]) == (1, 1, 240)
    assert tussock("get", "kv", "k005", "--epoch", str(own.epochs[0]), "--json").json()["value"] == "v0"


def test_compact_all_with_no_retention_drops_history(tussock: Tussock, own: Sample) -> None:
    """With retention 0 each key keeps one version, and an old epoch says that it is gone."""
    ran = tussock("compact", "--retention", "0")
    after = [line.split() for line in ran.out.splitlines() if " after " in line]
    assert [words[:4] for words in after] == [["after", "1", "1", "120"], ["after", "1", "1", "3"]]
    gone = tussock("get", "kv", "k005", "--epoch", str(own.epochs[0]))
    assert gone.code == 1
    assert "no longer kept" in gone.err
    assert tussock("check").code == 0


@pytest.mark.parametrize("table", ["kv", "orders"])
def test_rows_are_shown_at_an_epoch_that_a_pin_keeps(tussock: Tussock, own: Sample, table: str) -> None:
    """`get` and `scan` read on behalf of the pin's holder, past the retention; an epoch below the pin is gone."""
    key = {"kv": ("k005",), "orders": ("2026-01-01", "2")}[table]
    reads = [("get", table, *key, "--json"), ("scan", table, "--json")]
    with connect(own.url, compaction=False) as store, store.pin_snapshot(epoch=own.epochs[1]):
        before = [tussock(*read, "--epoch", str(own.epochs[1])).out for read in reads]
        tussock("compact", "--retention", "0")
        with connect(own.url, retention=0, compaction=False) as hasty:
            hasty.create_table("its retention is the store's from now on")
        assert [tussock(*read, "--epoch", str(own.epochs[1])).out for read in reads] == before
        for read in reads:
            gone = tussock(*read, "--epoch", str(own.epochs[0]))
            assert (gone.code, gone.out) == (1, "")
            assert "no older pin keeps it" in gone.err
        assert len(tussock("pins", "--json").json()["pins"]) == 1, "the command leaves no pin"


def test_vacuum_deletes_what_its_dry_run_named(tussock: Tussock, own: Sample) -> None:
    """A dry run names the objects and leaves them; the run deletes exactly those."""
    tussock("compact")
    before = set(own.folder.rglob("sst/*"))
    announced = tussock("vacuum", "--dry-run", "--grace", "0", "--json").json()
    assert set(own.folder.rglob("sst/*")) == before
    assert (announced["dry_run"], len(announced["deleted"])) == (True, 6)
    ran = tussock("vacuum", "--grace", "0")
    assert "Deleted 6 objects" in ran.out
    assert len(set(own.folder.rglob("sst/*"))) == len(before) - 6
    assert tussock("check", "--json").json()["ok"] is True
