"""The simulation bites: bugs that are planted in the code, a line or two each, are found."""

import pytest

from simulation.planted import BUGS, Bug, planted
from simulation.world import run_seed

SEEDS_MAX = 400


@pytest.mark.slow
@pytest.mark.timeout(600)
@pytest.mark.parametrize("bug", [bug for bug in BUGS if bug.seed], ids=lambda bug: bug.name)
def test_a_planted_bug_is_found(bug: Bug) -> None:
    """First by the seed that found it last time; the code may have changed since, and every history with it."""
    with planted(bug):
        found = next((seed for seed in (bug.seed, *range(1, SEEDS_MAX)) if run_seed(seed).failure is not None), None)
    assert found is not None, f"{bug.name}: not found in {SEEDS_MAX} histories"


@pytest.mark.parametrize("bug", BUGS, ids=lambda bug: bug.name)
def test_a_bug_is_planted_and_dug_up(bug: Bug) -> None:
    """The place of each bug is in the code, and the code is as before afterwards."""
    code = bug.function.__code__  # type: ignore[attr-defined]
    with planted(bug):
        assert bug.function.__code__ is not code  # type: ignore[attr-defined]
    assert bug.function.__code__ is code  # type: ignore[attr-defined]
