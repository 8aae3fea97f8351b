"""`kubectl tussock release` lets resources go that were deleted without an operator, and nothing else."""

import os
import subprocess
import sys
from typing import Any

import pytest

from cluster.binaries import search_path
from support.operator.process import Objects

FINALIZER = "tussock.dev/cleanup"
BODIES: dict[str, dict[str, Any]] = {
    "StateStore": {"objectStore": {"managed": {}}},
    "Compute": {"storeRef": {"name": "s"}, "application": {"file": "/opt/app.py"}},
    "StateStoreBackup": {"storeRef": {"name": "s"}},
    "StateStoreClient": {"storeRef": {"name": "s"}, "role": "reader"},
}


def make(objects: Objects, kind: str, name: str, *finalizers: str, **spec: Any) -> None:
    metadata = {"name": name, "finalizers": [FINALIZER, *finalizers]}
    body = {"apiVersion": "tussock.dev/v1alpha1", "kind": kind, "metadata": metadata}
    objects.apply({**body, "spec": {**BODIES[kind], **spec}})


def release(objects: Objects, *arguments: str) -> str:
    """Run the command; returns its output."""
    options = ("--kubeconfig", str(objects.kubeconfig))
    return subprocess.run(
        [sys.executable, "-m", "tussock.operator.plugin", "release", *arguments, *options],
        capture_output=True,
        check=True,
        text=True,
        timeout=120,
        env={**os.environ, "PATH": search_path()},
    ).stdout


def objects_left(objects: Objects) -> set[tuple[str, str]]:
    return {(kind, body["metadata"]["name"]) for kind in BODIES for body in objects.list(kind)}


def test_only_deleted_resources_are_released(objects: Objects) -> None:
    """For one store with its parts, then for the namespace; foreign finalizers stay."""
    for kind in BODIES:
        make(objects, kind, "s")
    make(objects, "Compute", "stays")
    make(objects, "Compute", "elsewhere", storeRef={"name": "t"})
    make(objects, "StateStore", "held", "example.com/mine")
    for kind, name in [*((kind, "s") for kind in BODIES), ("Compute", "elsewhere"), ("StateStore", "held")]:
        objects.delete(kind, name)
    assert len(objects_left(objects)) == 7
    told = release(objects, "s", "--namespace", objects.namespace)
    assert told.splitlines()[-1] == "4 objects were released."
    assert f"Compute {objects.namespace}/s is released." in told
    assert objects_left(objects) == {("Compute", "stays"), ("Compute", "elsewhere"), ("StateStore", "held")}
    told = release(objects, "--namespace", objects.namespace)
    assert told.splitlines()[-1] == "2 objects were released."
    assert objects_left(objects) == {("Compute", "stays"), ("StateStore", "held")}
    held = objects.get("StateStore", "held")
    assert held is not None
    assert held["metadata"]["finalizers"] == ["example.com/mine"]
    assert release(objects, "--namespace", objects.namespace) == "0 objects were released.\n"
    with pytest.raises(subprocess.CalledProcessError) as failed:
        release(objects, "s", "--namespace", objects.namespace)
    assert "StateStore s has nothing to release" in failed.value.stderr


def test_a_definition_that_was_deleted_can_go(objects: Objects) -> None:
    """As after an uninstall with the definitions: in all namespaces, with a hint at the data in the bucket."""
    make(objects, "StateStore", "s")
    objects.patch("StateStore", "s", {"status": {"url": "s3://b/p"}}, "status")
    uid = (objects.get("StateStore", "s") or {})["metadata"]["uid"]
    objects.delete("StateStore", "s")
    told = release(objects, "--all-namespaces")
    assert f"StateStore {objects.namespace}/s is released; s3://b/p stays as it is" in told
    assert f'spec.adopt: "{uid}"' in told
    assert objects_left(objects) == set()
