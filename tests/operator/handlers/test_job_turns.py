"""An upgrade of the operator that changes drivers restarts a few jobs at a time."""

import random
from typing import Any

import pytest

from support.operator.cluster_in_memory import NAMESPACE, ClusterInMemory
from support.operator.resources import DEFAULTS
from tussock.operator.cluster.seen import Key
from tussock.operator.manifests.labels import SPEC_ANNOTATION
from tussock.operator.planning.words.model import Manifest

NEXT = DEFAULTS._replace(spark_image="registry.example/tussock-spark:next")
TWENTY = [f"job{number:02}" for number in range(20)]
ABC = ["a", "b", "c"]
PROGRAM = {"configMap": {"name": "programs", "key": "app.py"}}
CONDITIONS = ("Ready", "Progressing", "Degraded")
NO_IMAGE = {
    "name": "compute",
    "ready": False,
    "restartCount": 0,
    "state": {"waiting": {"reason": "ErrImagePull", "message": "not found"}},
}


def cluster_of(names: list[str], parallel: int, **spec: Any) -> ClusterInMemory:
    """A store that serves, and jobs that run; those with a program in a ConfigMap all have the same."""
    cluster = ClusterInMemory(parallel)
    cluster.programs |= dict.fromkeys(names, ("digest", ""))
    cluster.make("StateStore", "s", {"objectStore": {"managed": {}}, "tls": {"mode": "none"}})
    cluster.make("Meta", "s", {"storeRef": {"name": "s"}})
    for _ in range(3):
        cluster.look(cluster.keys())
        for found in list(cluster.seen.all_of("Deployment")):
            cluster.advance("Deployment", found["metadata"]["name"])
    for name in names:
        base = {"storeRef": {"name": "s"}, "application": {"file": "/opt/app.py"}}
        cluster.make("Compute", name, {**base, **spec})
    cluster.look(cluster.keys())
    for name in names:
        cluster.run(f"{name}-driver")
    cluster.look(cluster.keys())
    assert [name for name in names if is_ready(cluster, name)] == names
    return cluster


def driver(cluster: ClusterInMemory, name: str) -> Manifest | None:
    """The job's driver; by a schedule its name has the time of the run."""
    pods = [pod for pod in cluster.seen.all_of("Pod") if pod["metadata"]["name"].startswith(f"{name}-driver")]
    return pods[0] if pods else None


def is_ready(cluster: ClusterInMemory, name: str) -> bool:
    """Whether a driver of the job runs, and is not being stopped."""
    pod = driver(cluster, name)
    if pod is None or "deletionTimestamp" in pod["metadata"]:
        return False
    return bool(pod["status"].get("conditions")) and pod["status"]["phase"] == "Running"


def is_new(cluster: ClusterInMemory, name: str) -> bool:
    pod = driver(cluster, name)
    return pod is not None and pod["spec"]["containers"][0]["image"] == NEXT.spark_image


def look(cluster: ClusterInMemory, *names: str) -> None:
    """A pass over each of these jobs, one after the other."""
    for name in names:
        cluster.look([Key("Compute", NAMESPACE, name)])


def replace(cluster: ClusterInMemory, name: str) -> None:
    """Let a job's turn end: its trial, its old driver's end, its new driver's start."""
    for _ in range(4):
        look(cluster, name)
        for pod in [one["metadata"]["name"] for one in cluster.seen.all_of("Pod")]:
            if pod.startswith(f"{name}-"):
                cluster.advance("Pod", pod)
    look(cluster, name)


@pytest.mark.parametrize("parallel", [1, 3])
@pytest.mark.parametrize("annotated", [True, False])
def test_jobs_take_turns(parallel: int, annotated: bool) -> None:
    """Of twenty never more than that many restart, by their names, also across restarts of the operator.

    And also if an operator without turns had made the drivers.
    """
    chance = random.Random(parallel)
    cluster = cluster_of(TWENTY, parallel)
    for name in TWENTY if not annotated else ():
        pod = cluster.get("Pod", f"{name}-driver")
        kept = {key: value for key, value in pod["metadata"]["annotations"].items() if key != SPEC_ANNOTATION}
        cluster.put("Pod", {**pod, "metadata": {**pod["metadata"], "annotations": kept}})
    cluster.begin(NEXT)
    begun: list[str] = []
    for _ in range(2000):
        stopped = [name for name in TWENTY if not is_ready(cluster, name)]
        begun += sorted(set(stopped) - set(begun))
        assert len(stopped) <= parallel
        if all(is_new(cluster, name) for name in TWENTY) and not stopped:
            break
        cluster.look(chance.sample(cluster.keys(), 8))
        if chance.random() < 0.1:
            cluster.begin(NEXT)  # another operator knows nothing of what this one has begun
        for pod in list(cluster.seen.all_of("Pod")):
            if chance.random() < 0.7:
                cluster.advance("Pod", pod["metadata"]["name"])
    assert sorted(begun) == TWENTY
    if parallel == 1:
        assert begun == TWENTY


def test_a_job_says_for_which_one_it_waits() -> None:
    """It runs meanwhile; of many others it names none, since each turn would be a write of its status."""
    cluster = cluster_of(ABC, 1)
    cluster.begin(NEXT)
    look(cluster, *"cba")
    runs = "-driver runs the stream; 0 executors are ready. An upgrade of the operator changes its driver after that of"
    assert cluster.message("Compute", "b") == f"Pod b{runs} Compute {NAMESPACE}/a."
    assert cluster.message("Compute", "c") == f"Pod c{runs} other jobs."
    assert cluster.get("Compute", "b")["status"]["conditions"][0]["status"] == "True"
    replace(cluster, "a")
    assert is_new(cluster, "a")
    look(cluster, *"bc")
    assert cluster.find("Pod", "b-image") is not None
    assert cluster.message("Compute", "c") == f"Pod c{runs} Compute {NAMESPACE}/b."


@pytest.mark.parametrize("edit", ["job", "program"])
def test_what_a_user_asks_for_waits_for_no_job(edit: str) -> None:
    """The driver begins with the new image, too, since there is no other any more; those after it still wait."""
    cluster = cluster_of(ABC, 1, application=PROGRAM)
    cluster.begin(NEXT)
    look(cluster, *ABC)
    assert [name for name in ABC if cluster.find("Pod", f"{name}-image")] == ["a"]
    if edit == "job":
        cluster.edit("Compute", "b", arguments=["--fast"])
    else:
        cluster.programs["b"] = ("another-digest", "")
    look(cluster, *ABC)
    assert [name for name in ABC if cluster.find("Pod", f"{name}-image")] == ["a", "b"]
    assert "after that of other jobs" in cluster.message("Compute", "c")


def test_a_later_upgrade_takes_no_earlier_edit_for_its_own() -> None:
    """A spec that changed without a change of the driver is on record when the operator asks for another one."""
    cluster = cluster_of(ABC, 1)
    cluster.edit("Compute", "b", executor={"replicas": 3})
    look(cluster, *ABC)
    cluster.begin(NEXT)
    look(cluster, *ABC)
    assert [name for name in ABC if cluster.find("Pod", f"{name}-image")] == ["a"]


def test_a_driver_that_ends_waits_for_no_job() -> None:
    """It is down already, so the next one starts with the new image as soon as its restart is due."""
    cluster = cluster_of(ABC, 1)
    cluster.begin(NEXT)
    look(cluster, *ABC)
    ended = {"exitCode": 1, "startedAt": cluster.stamp(), "finishedAt": cluster.stamp()}
    container = {"name": "compute", "ready": False, "state": {"terminated": ended}}
    cluster.report("c-driver", phase="Failed", containerStatuses=[container])
    look(cluster, "c")
    cluster.remove("Pod", "c-driver")
    look(cluster, "c")
    assert is_new(cluster, "c")
    assert not is_new(cluster, "b")


def test_a_job_whose_image_cannot_be_pulled_stops_no_others() -> None:
    """Its old driver goes on. When the image is there after all, it waits until no other job restarts."""
    cluster = cluster_of(ABC, 1)
    cluster.begin(NEXT)
    look(cluster, *ABC)
    cluster.report("a-image", containerStatuses=[{**NO_IMAGE, "image": NEXT.spark_image}])
    look(cluster, *ABC)
    assert cluster.get("Compute", "a")["status"]["conditions"][0]["reason"] == "ImagePullFailed"
    assert [name for name in ABC if cluster.find("Pod", f"{name}-image")] == ["a", "b"]
    cluster.advance("Pod", "b-image")
    look(cluster, "b")
    assert not is_ready(cluster, "b")
    cluster.advance("Pod", "a-image")
    look(cluster, *ABC, *ABC)
    assert is_ready(cluster, "a")
    assert f"An upgrade of the operator changes its driver after that of Compute {NAMESPACE}/b." in cluster.message(
        "Compute", "a"
    )
    replace(cluster, "b")
    assert is_new(cluster, "b")
    look(cluster, *"ac")
    assert not is_ready(cluster, "a")
    assert is_ready(cluster, "c")


@pytest.mark.parametrize("failure", ["it ends", "nothing happens", "its image is gone"])
def test_a_job_whose_new_driver_fails_stops_no_others(failure: str) -> None:
    """Kubernetes gives a Deployment five minutes, and the operator a driver as long; one that failed has no more."""
    cluster = cluster_of(ABC, 1)
    cluster.begin(NEXT)
    for step in ("image", "driver"):
        look(cluster, "a")
        cluster.advance("Pod", f"a-{step}")
    look(cluster, *ABC)
    assert not is_ready(cluster, "a")
    assert cluster.find("Pod", "b-image") is None
    if failure == "it ends":
        ended = {"exitCode": 1, "startedAt": cluster.stamp(), "finishedAt": cluster.stamp()}
        container = {"name": "compute", "ready": False, "state": {"terminated": ended}}
        cluster.report("a-driver", phase="Failed", containerStatuses=[container])
    elif failure == "its image is gone":
        cluster.report("a-driver", phase="Pending", containerStatuses=[{**NO_IMAGE, "image": NEXT.spark_image}])
    else:
        cluster.report("a-driver", phase="Pending")
        cluster.after(299)
        look(cluster, *ABC)
        assert cluster.find("Pod", "b-image") is None
        cluster.after(2)
    look(cluster, *ABC)
    assert cluster.find("Pod", "b-image") is not None
    assert cluster.find("Pod", "c-image") is None


def test_a_driver_that_the_server_refuses_stops_no_others() -> None:
    """The status of a job without a pod says whether one is about to come."""
    cluster = cluster_of(ABC, 1)
    cluster.begin(NEXT)
    for step in ("image", "driver"):
        look(cluster, "a")
        cluster.advance("Pod", f"a-{step}")
    look(cluster, "b")
    assert cluster.find("Pod", "b-image") is None
    body = cluster.get("Compute", "a")
    refused = [{"type": name, "status": str(name == "Degraded"), "reason": "ApplyRefused"} for name in CONDITIONS]
    cluster.put("Compute", {**body, "status": {**body["status"], "conditions": refused}})
    look(cluster, "b")
    assert cluster.find("Pod", "b-image") is not None


def test_jobs_wait_for_no_job_that_cannot_begin() -> None:
    """The nodes of its store have not changed yet, it is suspended, or it has a schedule."""
    cluster = cluster_of(ABC, 1)
    ref = {"storeRef": {"name": "other"}}
    cluster.make("StateStore", "other", {"objectStore": {"managed": {}}, "tls": {"mode": "none"}})
    body = cluster.get("Compute", "a")
    cluster.put("Compute", {**body, "spec": {**body["spec"], **ref}})
    cluster.edit("Compute", "b", suspend=True)
    cluster.begin(NEXT)
    look(cluster, *ABC)
    assert cluster.find("Pod", "c-image") is not None


def test_an_unhealthy_job_waits_for_none_that_lacks_its_program() -> None:
    """Both come last; the first of them cannot begin until somebody brings its program."""
    cluster = cluster_of(ABC, 1, application=PROGRAM)
    cluster.report("b-driver", phase="Running")
    cluster.after(400)
    cluster.programs["a"] = ("", "There is no ConfigMap programs.")
    look(cluster, *ABC)
    reasons = [cluster.get("Compute", name)["status"]["conditions"][0]["reason"] for name in "ab"]
    assert reasons == ["InvalidSpec", "ProbeFailed"]
    cluster.begin(NEXT)
    look(cluster, *ABC)
    assert "deletionTimestamp" not in cluster.get("Pod", "b-driver")["metadata"]
    replace(cluster, "c")
    assert is_new(cluster, "c")
    look(cluster, "b")
    assert "deletionTimestamp" in cluster.get("Pod", "b-driver")["metadata"]


def test_starts_of_jobs_hold_up_no_upgrade() -> None:
    """A job that has just been created changes nothing, and neither does the run of a schedule."""
    cluster = cluster_of(ABC, 1)
    cluster.begin(NEXT)
    base = {"storeRef": {"name": "s"}, "application": {"file": "/opt/app.py"}}
    cluster.make("Compute", "0", base)
    cluster.make("Compute", "1", {**base, "mode": "Batch", "schedule": "* * * * *"})
    cluster.after(60)
    look(cluster, "0", "1", "b")
    assert [(is_new(cluster, name), is_ready(cluster, name)) for name in "01"] == [(True, False)] * 2
    assert f"Compute {NAMESPACE}/a." in cluster.message("Compute", "b")
    look(cluster, "a")
    assert cluster.find("Pod", "a-image") is not None
