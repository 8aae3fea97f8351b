"""An operator is killed in the middle of an upgrade, and of a deletion: the next one ends it, nothing twice."""

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from support.buckets.contents import fill, names_in
from support.buckets.minio import MinioServer
from support.depth import DEPTH
from support.operator.process import Objects, OperatorProcess, eventually
from support.operator.stores_in_cluster import serving, store_on

pytestmark = [pytest.mark.minio, pytest.mark.timeout(300)]
NEXT = "localhost/tussock-node:next"
WORKLOADS = ("s-meta", "s-compactor")
EACH = 2 if DEPTH == 1 else 1
"""The nights kill it after each of the numbers of writes, other runs after every other one."""
ENTRY = f"log/{1:020d}.delta"
STORE = {ENTRY, f"sst/{'a' * 32}.data", f"leader/{1:020d}"}
FOREIGN = {"other/tussock-owner", f"other/{ENTRY}", "tmp/mine"}


def operator_of(objects: Objects, folder: Path, identity: str, **environment: str) -> OperatorProcess:
    """An operator that leads; a killed one's lease is not waited for, as each has another."""
    process = OperatorProcess(
        *(objects.kubeconfig, folder, objects.namespace),
        lease=f"{objects.namespace}-{identity}",
        identity=identity,
        environment=environment,
    )
    process.start()
    eventually("a leader", lambda: '"event": "leading"' in process.log())
    return process


def changes(objects: Objects) -> int:
    """The number of writes in the namespace, deletions included, by the operator and by the test."""
    lines = (objects.kubeconfig.parent / "audit.log").read_text().splitlines()
    found = [json.loads(line) for line in lines if f'"namespace":"{objects.namespace}"' in line]
    return sum(line["verb"] in ("create", "update", "patch", "delete") for line in found)


def images(objects: Objects) -> list[str]:
    """The images of meta nodes and compactors."""
    bodies = [objects.get("Deployment", workload) or {} for workload in WORKLOADS]
    return [str(body["spec"]["template"]["spec"]["containers"][0]["image"]) for body in bodies]


def roll(objects: Objects) -> int:
    """Let Kubernetes roll out what was changed since; returns how many writes that took."""
    count = 0
    for workload in WORKLOADS:
        body = objects.get("Deployment", workload) or {}
        if (body.get("status") or {}).get("observedGeneration") != body["metadata"]["generation"]:
            objects.serve("Deployment", workload)
            count += 1
    return count


def kill_after(process: OperatorProcess, objects: Objects, writes: int, meanwhile: Callable[[], int]) -> None:
    """Kill it when it has made that many writes; those of `meanwhile`, which counts them, are not the operator's."""
    before = changes(objects)
    ours = 0

    def has_written() -> bool:
        nonlocal ours
        ours += meanwhile()
        return changes(objects) - before - ours >= writes

    eventually(f"{writes} writes", has_written)
    process.kill()


@pytest.mark.parametrize("writes", [1, 2, 4, 6, 8][::EACH])
def test_an_upgrade_goes_on_after_its_operator_was_killed(
    writes: int, objects: Objects, minio: MinioServer, tmp_path: Path
) -> None:
    """Wherever it was: compactors change after meta nodes, each once, and the store ends up ready."""
    first = operator_of(objects, tmp_path, "first")
    serving(objects, store_on(minio, objects, "s"))
    assert first.stop() == 0
    before = [(objects.get("Deployment", workload) or {})["metadata"]["generation"] for workload in WORKLOADS]
    killed = operator_of(objects, tmp_path, "killed", TUSSOCK_OPERATOR_NODE_IMAGE=NEXT)
    kill_after(killed, objects, writes, lambda: roll(objects))
    last = operator_of(objects, tmp_path, "last", TUSSOCK_OPERATOR_NODE_IMAGE=NEXT)

    def is_done() -> bool:
        meta, compactor = images(objects)
        assert meta == NEXT or compactor != NEXT, "a compactor before its meta nodes"
        roll(objects)
        return compactor == NEXT and objects.ready("StateStore", "s").get("reason") == "Ready"

    eventually("the end of the upgrade", is_done)
    after = [(objects.get("Deployment", workload) or {})["metadata"]["generation"] for workload in WORKLOADS]
    assert [now - then for now, then in zip(after, before, strict=True)] == [1, 1], "each was changed once"
    assert last.stop() == 0


@pytest.mark.parametrize("policy", ["Delete", "Retain"])
@pytest.mark.parametrize("writes", [1, 2, 4, 6][::EACH])
def test_a_deletion_goes_on_after_its_operator_was_killed(
    writes: int, policy: str, objects: Objects, minio: MinioServer, tmp_path: Path
) -> None:
    """Wherever it was: the store is gone in the end, and of the bucket's objects what is to go, and nothing else."""
    first = operator_of(objects, tmp_path, "first")
    store = store_on(minio, objects, "s")
    store["spec"]["deletionPolicy"] = policy
    serving(objects, store)
    prefix = f"{objects.namespace}/s/"
    fill(minio, *(prefix + path for path in (*STORE, *FOREIGN)))
    objects.delete("StateStore", "s")
    kill_after(first, objects, writes, lambda: 0)
    last = operator_of(objects, tmp_path, "last")
    eventually("the store gone", lambda: objects.get("StateStore", "s") is None)
    assert (objects.get("Meta", "s"), objects.get("Compactor", "s")) == (None, None)
    assert names_in(minio, prefix) == (FOREIGN if policy == "Delete" else STORE | FOREIGN)
    assert "Traceback" not in last.log()
    assert last.stop() == 0
