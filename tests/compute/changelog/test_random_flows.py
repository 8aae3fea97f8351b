"""Random flows live through random pushes, pauses, steps, slow readers and deaths; a plain interpreter says the rest.

E2, E17 to E20, CE12 and the law of one effect hold at every moment: what was answered is there once, order is kept,
streams, histories and tables agree, and subscribers get each transaction once, whatever died in between.
"""

import os

import pytest

from support.changelog.flow_history import FlowHistory
from support.depth import DEPTH

SEEDS = int(os.environ.get("FLOW_SEEDS", "20")) * DEPTH
FIRST = int(os.environ.get("FLOW_FIRST_SEED", "1"))
PER_TEST = 10


@pytest.mark.slow
@pytest.mark.parametrize("first", range(FIRST, FIRST + SEEDS, PER_TEST))
@pytest.mark.timeout(600)
def test_a_random_flow_does_what_an_interpreter_does(first: int) -> None:
    """Whatever dies, and whenever."""
    for seed in range(first, min(first + PER_TEST, FIRST + SEEDS)):
        try:
            FlowHistory(seed).run()
        except AssertionError as error:
            pytest.fail(f"seed {seed} (FLOW_SEEDS=1 FLOW_FIRST_SEED={seed}): {error}")
