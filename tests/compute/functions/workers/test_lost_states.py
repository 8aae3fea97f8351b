"""A state whose object is gone: no outage that will pass, so nobody waits for it."""

from pathlib import Path

import pytest

from support.functions.accounts import cells
from support.store.stores import OBJECTS
from tussock.compute import functions as fn
from tussock.statestore import connect
from tussock.statestore.errors import CorruptSst

SECONDS = 60


@pytest.mark.parametrize("workers", [0, 2])
def test_a_program_ends_with_what_the_store_says_of_a_lost_state(tmp_path: Path, workers: int) -> None:
    """Story: with workers it waited for ever, as for a bucket that is away."""
    url = (tmp_path / "store").as_uri()
    with connect(url, compaction=False, limits=OBJECTS) as store, fn.Runtime(store, "p", [cells()]) as runtime:
        assert runtime.send("cell", "a", "add", 1).result(SECONDS) == 1
    with connect(url, compaction=False, limits=OBJECTS) as store:
        runtime = fn.Runtime(store, "p", [cells()], workers=workers)
        runtime.start()
        assert runtime.send("cell", "b", "add", 1).result(SECONDS) == 1
        folder = (tmp_path / "store" / "sst").rename(tmp_path / "aside")
        with pytest.raises(CorruptSst, match="there is no object"):
            runtime.send("cell", "a", "add", 1).result(SECONDS)
        with pytest.raises(CorruptSst):
            runtime.stop()
    folder.rename(tmp_path / "store" / "sst")
    with connect(url, compaction=False) as store, fn.Runtime(store, "p", [cells()]) as runtime:
        assert [runtime.query("cell", key) for key in "ab"] == [{"value": 1}, {"value": 1}]
