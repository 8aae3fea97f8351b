"""Every command shows what was asked for in one way, whatever else is installed."""

import sys
from pathlib import Path

import pyarrow as pa
import pytest

from support.store.command import Sample, Tussock
from tussock.statestore import connect


@pytest.mark.parametrize("command", [("get", "kv", "k005"), ("scan", "kv"), ("get", "orders", "2026-01-02", "10")])
@pytest.mark.parametrize(
    ("moment", "words"),
    [
        (("--epoch", "5"), "--epoch 5 lies before the earliest commit of"),
        (("--at", "2020-01-01"), "--at 2020-01-01 lies before the earliest commit of"),
        (("--at", "2999-01-01"), "--at 2999-01-01 lies in the future"),
        (("--epoch", str(2**62)), "is not committed: the newest committed epoch is"),
    ],
)
def test_a_time_outside_the_history_is_refused(
    tussock: Tussock, sample: Sample, command: tuple[str, ...], moment: tuple[str, ...], words: str
) -> None:
    """A wrong year would look like an empty table, or like the newest state."""
    ran = tussock(*command, *moment)
    assert (ran.code, ran.out) == (2, "")
    assert words in " ".join(ran.err.replace("│", " ").split())


@pytest.mark.parametrize("has_pandas", [True, False])
def test_get_and_scan_show_one_row_alike(
    tussock: Tussock, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, has_pandas: bool
) -> None:
    """Times in nanoseconds were written one way by `get` with pandas, another way without, and a third by `scan`."""
    if not has_pandas:
        monkeypatch.setitem(sys.modules, "pandas", None)
    url = f"file://{tmp_path}/store"
    schema = pa.schema(
        [("k", pa.int64()), ("t", pa.timestamp("ns", "UTC")), ("d", pa.duration("ns")), ("o", pa.time64("ns"))]
    )
    with connect(url) as store:
        table = store.create_table("t", schema=schema, primary_key=["k"])
        columns = [
            pa.array([number], pa.int64()).cast(kind) for number, kind in zip((7, -1, 0), schema.types[1:], strict=True)
        ]
        epoch = store.new_epoch()
        table.upsert(pa.table([pa.array([1], pa.int64()), *columns], schema=schema), epoch)
        store.commit_epoch(epoch)
    got = tussock("get", "t", "1", "--store", url, "--json").json()
    assert got == tussock("scan", "t", "--store", url, "--json").json()
    assert got["t"].endswith("00.000000007Z")
    assert (got["d"], got["o"]) == ("-0.000000001", "00:00:00.000000000")


def test_a_raw_key_is_found_by_the_text_that_json_shows(tussock: Tussock, tmp_path: Path) -> None:
    """Text that begins with `hex:` is no hex digits, and is shown as bytes are."""
    url = f"file://{tmp_path}/store"
    with connect(url) as store:
        table, epoch = store.create_table("raw"), store.new_epoch()
        table.ingest_batch([(b"\0", b"1"), (b"hex:00", b"5")], epoch)
        store.commit_epoch(epoch)
    lines = tussock("scan", "raw", "--store", url, "--json").lines()
    assert lines == [{"key": {"hex": "00"}, "value": "1"}, {"key": {"hex": "6865783a3030"}, "value": "5"}]
    for line in lines:
        assert tussock("get", "raw", "hex:" + line["key"]["hex"], "--store", url, "--json").json() == line


def test_a_key_that_begins_with_a_dash_needs_two_dashes_before_it(tussock: Tussock, sample: Sample) -> None:
    """`--` before the key, as the help says."""
    assert "Write `--` in front of" in " ".join(tussock("get", "--help").out.replace("│", " ").split())
    assert tussock("get", "kv", "--", "-5").code == 1
