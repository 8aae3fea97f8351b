"""A long stream of small batches keeps its pace and its short tree, without any other process."""

import runpy
from pathlib import Path
from typing import Any

import pytest

from support.depth import DEPTH

BENCHMARK = Path(__file__).resolve().parents[2] / "benchmarks" / "spark_small_batches.py"


@pytest.mark.spark
@pytest.mark.slow
@pytest.mark.long
@pytest.mark.timeout(900 * DEPTH)
@pytest.mark.parametrize("shape", ["sink", "merge"])
def test_batch_time_stays_flat_and_l0_short(spark: Any, shape: str, tmp_path: Path) -> None:
    """In the end L0 has no more runs than compaction allows, and a batch takes about as long as at first."""
    window = 8 * DEPTH
    result = runpy.run_path(str(BENCHMARK))["run"](spark, 3 * window, window, 200, shape, tmp_path)
    assert len(result["windows"]) == 3
    assert max(window["l0_runs_max"] for window in result["windows"]) <= 24
    # The first window holds the start of the Python workers, its median does not. The slack is for
    # machines that do something else at the same time; without compaction the ratio grows with each window.
    early, late = (result["windows"][at]["median_seconds"] for at in (0, -1))
    assert late < 3 * early
