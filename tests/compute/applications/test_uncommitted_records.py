"""`uncommitted` of the statistics: what a recovery would have to run again."""

import pytest

from support.functions.accounts import accounts
from tussock.compute import functions as fn
from tussock.statestore import connect

SECONDS = 60
REQUESTS = 5


@pytest.mark.parametrize(
    ("checkpoint", "is_behind"), [pytest.param(3600.0, True, id="rare commits"), pytest.param(0.0, False, id="each")]
)
def test_uncommitted_records_are_those_since_the_newest_commit(checkpoint: float, is_behind: bool) -> None:
    """With a commit of each request there are none; else they are all of a run, whose end commits them."""
    with connect(f"memory://uncommitted-{is_behind}") as store:
        for _ in range(2):
            with fn.Runtime(store, "bank", [accounts()], checkpoint=checkpoint) as runtime:
                for _ in range(REQUESTS):
                    runtime.send("account", "ann", "credit", 1).result(SECONDS)
                stats = runtime.stats()
                assert stats["records"] == REQUESTS
                assert stats["uncommitted"] == (REQUESTS if is_behind else 0)
