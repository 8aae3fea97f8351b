"""Random programs of functions, held to plain Python that runs their requests one after the other."""

import pytest

from support.depth import DEPTH
from support.functions.function_histories import History

SEEDS = 8 * DEPTH


@pytest.mark.parametrize("seed", range(SEEDS))
def test_a_random_history_is_a_serial_one(seed: int) -> None:
    """X5, X6, X15 to X23, X30 to X32: same replies, same state, whatever dies when, in each mode of detection.

    Those of `reorder` have a serial order, and those of `snapshot` that commit without locks have one snapshot.
    """
    History(seed).run()
