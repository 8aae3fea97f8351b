"""Statuses that somebody has written: the operator remakes them, whatever the API server has let pass."""

from typing import Any

import pytest

from support.operator.process import Body, Objects, eventually
from support.operator.stores_in_cluster import serving

pytestmark = [pytest.mark.minio, pytest.mark.usefixtures("operator")]


def backup_of(store: str, name: str, **spec: Any) -> Body:
    about = {"apiVersion": "tussock.dev/v1alpha1", "kind": "StateStoreBackup", "metadata": {"name": name}}
    return {**about, "spec": {"storeRef": {"name": store}, "schedule": "0 0 1 1 *", **spec}}


@pytest.mark.parametrize("text", ["2026-11-24T13:00:00+99:00", "2026-11-24T13:00:00z"])
def test_a_time_that_python_does_not_read_stops_no_pass(text: str, store: Body, name: str, shared: Objects) -> None:
    """Story: after such a time in its status a backup was never made again, and nothing told of it."""
    shared.apply(store)
    shared.apply(backup_of(name, name))
    shared.await_reason("StateStoreBackup", name, "Scheduled")
    shared.patch("StateStoreBackup", name, {"status": {"lastScheduleTime": text}}, "status")
    found = shared.apply(backup_of(name, name, suspend=True))
    shared.await_reason("StateStoreBackup", name, "Suspended")
    ready = shared.ready("StateStoreBackup", name)
    assert ready["observedGeneration"] == found["metadata"]["generation"]


def test_conditions_of_which_some_are_missing_are_remade(store: Body, name: str, shared: Objects) -> None:
    """Of a Meta, whose store reads them, too."""
    serving(shared, store)
    ready = shared.ready("Meta", name)
    shared.patch("Meta", name, {"status": {"conditions": [ready]}}, "status")
    types = ("Ready", "Progressing", "Degraded")
    eventually("all conditions", lambda: all(shared.condition("Meta", name, type_) for type_ in types))
    shared.await_reason("StateStore", name, "Ready")
