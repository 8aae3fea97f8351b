"""Simulated histories of a cluster, in which every answer is checked; and that a seed is one history."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from simulation.world import run_seed
from support.depth import DEPTH

SECONDS = 20 if DEPTH == 1 else 60 * DEPTH
TESTS = Path(__file__).parent.parent


def simulate(*arguments: str, hash_seed: str = "random") -> "subprocess.CompletedProcess[str]":
    return subprocess.run(
        [sys.executable, "-m", "simulation", *arguments],
        cwd=TESTS,
        env={**os.environ, "PYTHONHASHSEED": hash_seed},
        capture_output=True,
        text=True,
        check=False,
    )


@pytest.mark.parametrize("seed", range(1, 9))
def test_a_history_breaks_no_guarantee(seed: int) -> None:
    outcome = run_seed(seed)
    assert outcome.failure is None, f"make simulate SEED={seed}"


@pytest.mark.slow
@pytest.mark.long
@pytest.mark.timeout(SECONDS + 120)
def test_as_many_histories_as_fit_break_no_guarantee(capsys: pytest.CaptureFixture[str]) -> None:
    """In half a minute, with seeds that no other test has: every answer of every history is checked."""
    ended = simulate("--seconds", str(SECONDS), "--seeds", "1000000", "--first", "1000")
    with capsys.disabled():
        print("\n" + ended.stdout.splitlines()[-1])
    assert ended.returncode == 0, ended.stdout
    assert re.search(r"^[1-9]\d+ seeds in .* 0 failed$", ended.stdout, re.MULTILINE)


def test_the_same_seed_is_the_same_history() -> None:
    first, second = run_seed(3), run_seed(3)
    assert first.trace_hash == second.trace_hash
    assert run_seed(4).trace_hash != first.trace_hash


def test_a_seed_replays_in_another_process_with_other_hashes() -> None:
    """Otherwise a failure could not be examined: order must not come from sets, addresses or the process id."""
    ended = [simulate("--seed", "7", hash_seed=hash_seed) for hash_seed in ("1", "2")]
    assert ended[0].returncode == 0, ended[0].stdout[-2000:]
    assert len(ended[0].stdout.splitlines()) > 100
    assert ended[0].stdout == ended[1].stdout
