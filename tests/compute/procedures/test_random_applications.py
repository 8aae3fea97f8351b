"""Random applications live through random requests, stops and deaths, and an interpreter says what has to come of it.

S1 to S8, S10 to S14, S17, S19 and S22 of S-Store hold at every moment that a client can see: no batch that was answered
is lost, none runs twice, none is there in part, and nothing runs between the procedures of one.
"""

import os

import pytest

from support.depth import DEPTH
from support.procedures.histories import run_history

SEEDS = int(os.environ.get("PROCEDURE_SEEDS", "20")) * DEPTH
FIRST = int(os.environ.get("PROCEDURE_FIRST_SEED", "1"))
PER_TEST = 10


@pytest.mark.slow
@pytest.mark.parametrize("first", range(FIRST, FIRST + SEEDS, PER_TEST))
@pytest.mark.timeout(600)
def test_a_random_application_does_what_an_interpreter_does(first: int) -> None:
    """Whatever dies, and whenever: the state is that after some of the unanswered requests, each of them whole."""
    for seed in range(first, min(first + PER_TEST, FIRST + SEEDS)):
        try:
            run_history(seed)
        except AssertionError as error:
            pytest.fail(f"seed {seed} (PROCEDURE_SEEDS=1 PROCEDURE_FIRST_SEED={seed}): {error}")
