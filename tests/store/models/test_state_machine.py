"""The whole client compared with a plain dict of versions, with crashes and lost requests at any call on the bucket."""

import pytest
from hypothesis import HealthCheck, settings
from hypothesis.stateful import run_state_machine_as_test

from support.buckets.minio import MinioServer
from support.depth import DEPTH
from support.models.machine import StoreMachine
from tussock.statestore.base.system import RealSystem, System
from tussock.statestore.buckets import open_bucket
from tussock.statestore.contract.object_store import ObjectStore


def run(machine: type[StoreMachine], examples: int, steps: int) -> None:
    """Run Hypothesis, which prints the shrunk steps of a failure, and how to repeat it."""
    checks = settings(
        max_examples=examples,
        stateful_step_count=steps,
        deadline=None,
        suppress_health_check=list(HealthCheck),
        print_blob=True,
    )
    run_state_machine_as_test(machine, settings=checks)  # type: ignore[no-untyped-call]


@pytest.mark.long
def test_a_store_equals_a_dict_of_versions_under_failures() -> None:
    """Random histories of two clients: every result is the model's, and every operation happens whole or not at all."""
    run(StoreMachine, examples=15 * DEPTH, steps=40)


@pytest.mark.long
@pytest.mark.minio
def test_a_store_on_a_real_server_equals_a_dict_of_versions_under_failures(minio: MinioServer) -> None:
    """The same over MinIO, on the real clock: no retention ends meanwhile, and vacuum has a grace of 0."""

    class RealMachine(StoreMachine):
        gc_grace = 0.0

        def make_bucket(self) -> tuple[ObjectStore, System]:
            return open_bucket(minio.fresh_url()), RealSystem()

        def _retention(self, number: int) -> float:
            return 3600.0 + number

    run(RealMachine, examples=3 * DEPTH, steps=30)
