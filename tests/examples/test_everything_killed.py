"""Programs of functions on a platform, of which everything is killed: workers, programs, meta service and MinIO."""

import os
from pathlib import Path

import pytest

from support.buckets.minio import MinioServer
from support.chaos.function_kills import kill_everything
from support.depth import DEPTH

pytestmark = [pytest.mark.minio, pytest.mark.slow, pytest.mark.long]

SEED = int(os.environ.get("FUNCTION_KILLS_SEED", "1"))
KILLS = 2 * DEPTH


@pytest.mark.timeout(240 + 60 * DEPTH)
@pytest.mark.parametrize(("workload", "seed"), [("YCSB-T", SEED), ("TPC-C", SEED + 1)])
def test_state_and_replies_are_exact_whatever_is_killed(
    minio: MinioServer, tmp_path: Path, workload: str, seed: int
) -> None:
    """X7, X8, X26, X30 to X33: at the end, and at each epoch that a reader sees meanwhile."""
    kill_everything(tmp_path, minio, workload, seed, KILLS)
