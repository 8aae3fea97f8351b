"""Retention and grace period belong to the store, not to the process that opens it."""

import re
from pathlib import Path
from typing import Any

import pytest

from tussock.statestore import InvalidOption, SnapshotExpired, connect
from tussock.statestore.base.limits import Limits


def test_the_creators_settings_hold_for_clients_without_options(tmp_path: object) -> None:
    """A process without options keeps what the store promises its readers."""
    with connect(f"file://{tmp_path}", retention=7200, gc_grace=60) as store:
        store.create_table("kv")
    with connect(f"file://{tmp_path}") as store:
        version = store.version()
        assert (version.retention_ms, version.gc_grace_ms) == (7_200_000, 60_000)


def test_changed_options_are_stored_with_the_next_commit(tmp_path: object) -> None:
    """Opening alone writes nothing."""
    with connect(f"file://{tmp_path}") as store:
        table = store.create_table("kv")
        for epoch in (1, 2):
            table.ingest_batch([(b"a", b"%d" % epoch)], epoch)
            store.commit_epoch(epoch)
    with connect(f"file://{tmp_path}", retention=0) as store:
        with pytest.raises(SnapshotExpired, match="oldest readable epoch is 2"):
            store.table("kv").get(b"a", epoch=1)
        assert store.version().retention_ms == 3_600_000
        store.table("kv").ingest_batch([(b"a", b"3")], 3)
        store.commit_epoch(3)
        assert store.version().retention_ms == 0
    with connect(f"file://{tmp_path}") as store, pytest.raises(SnapshotExpired):
        store.table("kv").get(b"a", epoch=2)


@pytest.mark.parametrize("option", ["retention", "gc_grace", "deadline"])
@pytest.mark.parametrize("value", [-1, float("nan"), float("inf"), "soon"])
def test_an_impossible_option_is_named(option: str, value: object) -> None:
    """`InvalidOption` has the option and its value."""
    with pytest.raises(InvalidOption, match=option):
        connect("memory://", **{option: value})  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("limits", "found"),
    [
        (3, "limits is 3; expected"),
        (Limits(batch_bytes=0), "limits.batch_bytes is 0; expected a number of at least 1"),
        (Limits(segment_bytes=True), "limits.segment_bytes is True; expected a number of at least 1"),
        (Limits(one_object_bytes=-1), "limits.one_object_bytes is -1; expected a number of at least 0"),
    ],
)
def test_limits_that_nothing_fits_into_are_refused(tmp_path: Path, limits: Any, found: str) -> None:
    """The refusal comes before the place of the store is touched."""
    with pytest.raises(InvalidOption, match=re.escape(found)):
        connect(f"file://{tmp_path}/store", limits=limits)
    assert not (tmp_path / "store").exists()
