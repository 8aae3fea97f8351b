"""`kubectl tussock restart`: the operator replaces the pods, in its order, and of nothing else."""

import json
import re
from typing import Any

import msgspec
import pytest

from support.operator.compute_cases import ADDRESSES, CASES
from support.operator.kubelet import Kubelet, job
from support.operator.plugin.commands import plugin, plugin_process
from support.operator.process import Body, Objects, OperatorProcess, eventually
from support.operator.resources import DEFAULTS
from support.operator.services.service_cases import SERVICE_CASES
from support.operator.stores_in_cluster import serving, unprobed_store
from tussock.operator.manifests.compute.conf import EXECUTOR_POD_FILE
from tussock.operator.manifests.compute.job import compute_manifests
from tussock.operator.manifests.labels import RESTARTED_AT
from tussock.operator.manifests.meta import meta_manifests
from tussock.operator.manifests.service.children import service_manifests
from tussock.operator.manifests.settings import Defaults
from tussock.operator.planning.turns import is_asked_by_operator
from tussock.operator.planning.words.comparison import mark
from tussock.operator.planning.words.model import ref_of
from tussock.operator.plugin.restarts import is_restarted
from tussock.operator.resources.compute import Compute
from tussock.operator.resources.meta import parse_meta
from tussock.operator.resources.store import parse_store

pytestmark = pytest.mark.timeout(240)


def stamp_of(objects: Objects, workload: str) -> str:
    """The restart that the pods of a Deployment are made for; empty if it is none."""
    body = objects.get("Deployment", workload) or {}
    annotations = body.get("spec", {}).get("template", {}).get("metadata", {}).get("annotations") or {}
    return str(annotations.get(RESTARTED_AT, ""))


@pytest.fixture
def platform(shared: Objects, operator: OperatorProcess, request: pytest.FixtureRequest) -> str:
    """A store whose nodes serve; its name."""
    name = re.sub(r"[^a-z0-9]+", "-", request.node.name.lower())[-24:].strip("-")
    shared.apply({"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": "buckets"}})
    return serving(shared, unprobed_store(name))


def test_meta_nodes_then_compactors_then_jobs_are_restarted(platform: str, shared: Objects) -> None:
    """The command waits for each, and ends when the last pod is new and serves."""
    shared.apply(job(platform, f"{platform}-j"))
    kubelet = Kubelet(shared, f"{platform}-j")
    first = kubelet.uid()
    kubelet.runs()
    shared.await_reason("Compute", f"{platform}-j", "Ready")
    with plugin_process(shared, "restart", platform, "--timeout", "150") as process:
        stamp = eventually("new meta nodes", lambda: stamp_of(shared, f"{platform}-meta"))
        assert stamp_of(shared, f"{platform}-compactor") == ""
        shared.serve("Deployment", f"{platform}-meta")
        eventually("new compactors", lambda: stamp_of(shared, f"{platform}-compactor") == stamp)
        assert kubelet.uid() == first
        shared.serve("Deployment", f"{platform}-compactor")
        kubelet.another(first)
        pod = kubelet.pod()
        assert pod is not None
        assert pod["metadata"]["annotations"][RESTARTED_AT] == stamp
        assert process.poll() is None, "it waits for the driver"
        kubelet.runs()
        out, error = process.communicate(timeout=150)
    assert (process.returncode, error) == (0, "")
    assert out == f"Restarted: Meta {platform}, Compactor {platform}, Compute {platform}-j.\n"


def test_one_component_is_restarted_alone(platform: str, shared: Objects) -> None:
    with plugin_process(shared, "restart", platform, "-c", "compactor") as process:
        eventually("new compactors", lambda: stamp_of(shared, f"{platform}-compactor"))
        shared.serve("Deployment", f"{platform}-compactor")
        out, _ = process.communicate(timeout=150)
    assert (process.returncode, out) == (0, f"Restarted: Compactor {platform}.\n")
    assert stamp_of(shared, f"{platform}-meta") == ""


def test_without_an_operator_it_says_so(objects: Objects) -> None:
    """A store that nobody looks after: the command ends in time, with the part that waits."""
    objects.apply(unprobed_store("s"))
    objects.apply({**unprobed_store("s"), "kind": "Meta", "spec": {"storeRef": {"name": "s"}}})
    told = plugin(objects, "restart", "s", "--timeout", "1")
    assert told.returncode == 1
    assert told.stderr == (
        "error: not all pods are new after 1 s, and the restart goes on if an operator runs: Meta s: no operator has "
        "reported on it yet\n"
    )


def condition(reason: str, message: str = "so", **changes: bool) -> list[dict[str, Any]]:
    values = {"Ready": True, "Progressing": False, "Degraded": False, **changes}
    return [{"type": one, "status": str(value), "reason": reason, "message": message} for one, value in values.items()]


def with_meta(objects: Objects, reason: str, message: str) -> None:
    objects.apply({**unprobed_store("s"), "kind": "Meta", "spec": {"storeRef": {"name": "s"}}})
    held = [{**one, "lastTransitionTime": "2026-11-27T00:00:00Z"} for one in condition(reason, message)]
    objects.patch("Meta", "s", {"status": {"conditions": held}}, "status")


@pytest.mark.parametrize(
    ("case", "arguments", "words"),
    [
        ("absent", ("t",), "there is no StateStore t in namespace"),
        ("paused", ("s",), "StateStore s is paused: the operator changes nothing of it until spec.paused is false"),
        ("deleted", ("s",), "StateStore s is being deleted"),
        ("foreign", ("s",), "the pods of Meta s are not Tussock's: There is a Deployment s-meta that"),
        ("none", ("s", "-c", "compactor"), "StateStore s has no Compactor; see kubectl tussock status s"),
        ("none", ("s", "--compute", "x"), "StateStore s has no Compute x"),
        ("none", ("deployment/s-meta",), "there is no need to specify a resource type"),
    ],
)
def test_what_cannot_be_restarted_is_refused(
    objects: Objects, case: str, arguments: tuple[str, ...], words: str
) -> None:
    """In one line, with exit code 1, and nothing is asked of the operator."""
    store = unprobed_store("s", paused=case == "paused")
    store["metadata"]["finalizers"] = ["example.com/held"] if case == "deleted" else []
    objects.apply(store)
    with_meta(objects, *(("NameInUse", "There is a Deployment s-meta that") if case == "foreign" else ("Ready", "so")))
    if case == "deleted":
        objects.delete("StateStore", "s")
    told = plugin(objects, "restart", *arguments)
    assert (told.returncode, told.stdout) == (1, "")
    assert told.stderr.startswith(f"error: {words}"), told.stderr
    assert len(told.stderr.splitlines()) == 1
    meta = objects.get("Meta", "s")
    assert meta is not None
    assert RESTARTED_AT not in (meta["metadata"].get("annotations") or {})


@pytest.mark.parametrize(
    "arguments", [("s", "-c", "minio"), ("s", "-c", "meta", "--compute", "x"), (), ("s", "--timeout", "0")]
)
def test_wrong_usage_ends_with_two(objects: Objects, arguments: tuple[str, ...]) -> None:
    told = plugin(objects, "restart", *arguments)
    assert told.returncode == 2
    assert len(told.stderr.splitlines()) == 1


NEW, OLD = {"annotations": {RESTARTED_AT: "now"}}, {"annotations": {RESTARTED_AT: "then"}}


@pytest.mark.parametrize(
    ("pods", "reason", "changes", "is_over"),
    [
        ([NEW, NEW], "Ready", {}, True),
        ([NEW, OLD], "Ready", {}, False),
        ([NEW, {}], "Ready", {}, False),
        # The next one has not started yet.
        ([], "RollingOut", {"Progressing": True}, False),
        ([NEW], "RollingOut", {"Progressing": True}, False),
        # Nothing runs, and nothing is to run.
        ([], "Suspended", {"Ready": False}, True),
    ],
)
def test_when_a_restart_is_over(pods: list[Any], reason: str, changes: dict[str, bool], is_over: bool) -> None:
    part = {"status": {"conditions": condition(reason, **changes)}}
    found = [{"metadata": pod, "status": {"phase": "Running"}} for pod in pods]
    assert is_restarted(part, found, "now") is is_over


def test_pods_that_have_ended_are_not_waited_for() -> None:
    """A run of a job that is complete is not started again."""
    part = {"status": {"conditions": condition("Completed")}}
    assert is_restarted(part, [{"metadata": OLD, "status": {"phase": "Succeeded"}}], "now")
    assert not is_restarted({}, [], "now")


def test_a_restart_waits_for_no_turn_of_an_upgrade() -> None:
    """Users ask for it, by an annotation, which makes no new generation: another image still waits."""
    body = {"kind": "Meta", "metadata": {"name": "s", "namespace": "n", "uid": "2", "generation": 5}, "spec": _SPEC}
    store_of_it = unprobed_store("s")
    store_of_it["metadata"] |= {"namespace": "n", "uid": "1", "generation": 1}
    store = parse_store(store_of_it)

    def made(image: str, **annotations: str) -> list[Body]:
        metadata = {**body["metadata"], "annotations": annotations}  # type: ignore[dict-item]
        meta = parse_meta({**body, "metadata": metadata})
        return list(meta_manifests(meta, store, Defaults(node_image=image)).manifests)

    there = {ref_of(found): mark(found) for found in made("node:1")}
    assert is_asked_by_operator(made("node:2"), there)
    assert not is_asked_by_operator(made("node:1", **{RESTARTED_AT: "now"}), there)
    assert not is_asked_by_operator(made("node:2", **{RESTARTED_AT: "now"}), there)
    again = {ref_of(found): mark(found) for found in made("node:1", **{RESTARTED_AT: "now"})}
    assert not is_asked_by_operator(made("node:1", **{RESTARTED_AT: "now"}), again), "it is done"
    assert is_asked_by_operator(made("node:2", **{RESTARTED_AT: "now"}), again)


_SPEC = {"storeRef": {"name": "s"}, "replicas": 2}


def asked(compute: Compute, **annotations: str) -> Compute:
    """The same Compute with these annotations."""
    return msgspec.structs.replace(compute, metadata=msgspec.structs.replace(compute.metadata, annotations=annotations))


def test_all_pods_of_a_service_are_made_anew() -> None:
    """Node and workers; the store's own pods are none of it."""
    store, service = SERVICE_CASES["functions"]
    before, after = (
        service_manifests(found, store, ADDRESSES, DEFAULTS)
        for found in (service, asked(service, **{RESTARTED_AT: "now"}))
    )
    assert before.template != after.template
    assert before.workers is not None
    assert after.workers is not None
    for workload in (after.node, after.workers):
        assert workload["spec"]["template"]["metadata"]["annotations"][RESTARTED_AT] == "now"
    for workload in (before.node, before.workers):
        assert RESTARTED_AT not in workload["spec"]["template"]["metadata"].get("annotations", {})
    assert before.node["metadata"]["annotations"] != after.node["metadata"]["annotations"], "it is a change of users"


def test_driver_and_executors_of_a_job_are_made_anew() -> None:
    store, job = next(iter(CASES.values()))
    before, after = (
        compute_manifests(found, store, ADDRESSES, DEFAULTS) for found in (job, asked(job, **{RESTARTED_AT: "now"}))
    )
    assert before.template_hash != after.template_hash
    assert after.template["metadata"]["annotations"][RESTARTED_AT] == "now"
    [files] = [found["data"] for found in after.manifests if found["kind"] == "ConfigMap"]
    assert json.loads(files[EXECUTOR_POD_FILE])["metadata"]["annotations"] == {RESTARTED_AT: "now"}
    assert before.inputs != after.inputs, "it is a change of users"
