"""The whole client against a plain dict of versions, with crashes and lost requests at any call on the bucket."""

from hypothesis import HealthCheck, settings
from hypothesis.stateful import run_state_machine_as_test

from support.store_machine import StoreMachine


def test_a_store_is_a_dict_of_versions_whatever_fails() -> None:
    """Random histories of two clients: every answer is the model's, and every operation happens whole or not at all."""
    run_state_machine_as_test(
        StoreMachine,
        settings=settings(
            max_examples=200,
            stateful_step_count=40,
            deadline=None,
            suppress_health_check=list(HealthCheck),
            derandomize=False,
        ),
    )
