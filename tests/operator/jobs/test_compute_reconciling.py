"""Jobs against a real API server, with a real operator: the driver's pod is made, replaced, restarted and drained.

There is no kubelet, so the tests say what becomes of pods, as a kubelet would in their status.
"""

from datetime import UTC, datetime

import pytest
from kubernetes.dynamic.exceptions import ForbiddenError

from support.operator.kubelet import Kubelet, job
from support.operator.process import PUT_RIGHT_SECONDS, Body, Objects, OperatorProcess, eventually
from support.operator.stores_in_cluster import serving

pytestmark = [pytest.mark.minio, pytest.mark.timeout(180)]


@pytest.fixture
def platform(store: Body, shared: Objects, operator: OperatorProcess) -> str:
    """A store whose nodes serve; its name."""
    return serving(shared, store)


def status_of(objects: Objects, name: str) -> Body:
    return (objects.get("Compute", name) or {}).get("status") or {}


def image_of(pod: Body | None) -> str:
    return str(pod["spec"]["containers"][0]["image"]) if pod else ""


def test_a_job_is_made_and_reports_that_it_runs(platform: str, name: str, shared: Objects) -> None:
    """All children exist, with the store's address; later passes write nothing."""
    shared.apply(job(platform, name, executor={"replicas": 2}))
    kubelet = Kubelet(shared, name)
    kubelet.uid()
    for kind in ("ServiceAccount", "Role", "RoleBinding", "Service", "NetworkPolicy", "ConfigMap"):
        assert shared.get(kind, f"{name}-driver"), kind
    assert shared.get("PersistentVolumeClaim", f"{name}-checkpoint")
    [container] = kubelet.pod()["spec"]["containers"]  # type: ignore[index]
    env = {entry["name"]: entry.get("value") for entry in container["env"]}
    assert env["TUSSOCK_STORE"] == f"tussock://{platform}-meta.{shared.namespace}.svc:7370"
    assert container["image"] == "localhost/tussock-spark:test"
    shared.await_reason("Compute", name, "Running")
    kubelet.runs()
    shared.await_reason("Compute", name, "Ready")
    eventually("its event", lambda: [event for event in shared.events(name) if event["reason"] == "Ready"])

    def writes() -> int:
        """Writes on the job and its children; the store's status counts its jobs a moment later."""
        refs = [line["objectRef"] for line in shared.writes()]
        own = ("computes", "pods", "configmaps", "services", "roles", "rolebindings", "persistentvolumeclaims")
        return sum(ref["resource"] in own and ref.get("name", "").startswith(name) for ref in refs)

    before = writes()
    shared.apply({**job(platform, name, executor={"replicas": 2}), "metadata": {"name": name, "labels": {"a": "b"}}})
    eventually("a label", lambda: (shared.get("Compute", name) or {})["metadata"]["labels"].get("a") == "b")
    kubelet.runs()
    assert writes() == before


def test_a_driver_that_is_deleted_comes_back(platform: str, name: str, shared: Objects) -> None:
    """Within seconds, with an event, and counted as a restart and not as a failure."""
    shared.apply(job(platform, name))
    kubelet = Kubelet(shared, name)
    first = kubelet.uid()
    kubelet.runs()
    shared.await_reason("Compute", name, "Ready")
    kubelet.delete_pod()
    kubelet.another(first)
    eventually("a restart", lambda: status_of(shared, name).get("restarts") == 1)
    assert status_of(shared, name)["failures"] == 0

    # Whether the pod is seen on its way out or has gone by then is chance. Events are sent after the status.
    told = {
        f"Pod {kubelet.pod_name} was deleted; when it has ended its batch and stopped, another one starts.",
        f"Restored: Pod {kubelet.pod_name} was missing.",
    }
    eventually("its event", lambda: told & {event["note"] for event in shared.events(name)})
    assert len([event for event in shared.events(name) if event["note"] in told]) == 1


def test_a_driver_on_a_lost_node_is_replaced_at_once(platform: str, name: str, shared: Objects) -> None:
    """Its pod asked to leave such a node after seconds, which the API server took at its word; it is not waited for."""
    shared.apply(job(platform, name))
    kubelet = Kubelet(shared, name)
    kubelet.runs()
    shared.await_reason("Compute", name, "Ready")
    spec = (kubelet.pod() or {})["spec"]
    assert [found["tolerationSeconds"] for found in spec["tolerations"]] == [5, 5]
    kubelet.loses_node()
    eventually("the next driver", lambda: shared.get("Pod", f"{name}-driver-2"), PUT_RIGHT_SECONDS)
    assert "deletionTimestamp" in (kubelet.pod() or {})["metadata"]
    eventually("its event", lambda: [event for event in shared.events(name) if event["reason"] == "NodeLost"])


def test_an_image_is_tried_before_the_driver_is_replaced(platform: str, name: str, shared: Objects) -> None:
    """With a missing image the driver goes on; no event says that the pod that tries it was missing."""
    shared.apply(job(platform, name))
    kubelet = Kubelet(shared, name)
    first = kubelet.uid()
    kubelet.runs()
    shared.await_reason("Compute", name, "Ready")
    shared.patch("Compute", name, {"spec": {"image": "localhost/wrong:1"}})
    trial = eventually("a trial", lambda: shared.get("Pod", f"{name}-image"))
    assert trial["spec"]["containers"][0]["image"] == "localhost/wrong:1"
    state = {"waiting": {"reason": "ErrImagePull", "message": "not found"}}
    status = {"name": "compute", "image": "localhost/wrong:1", "imageID": "", "ready": False, "restartCount": 0}
    shared.patch("Pod", f"{name}-image", {"status": {"containerStatuses": [{**status, "state": state}]}}, "status")
    assert shared.await_reason("Compute", name, "ImagePullFailed")["status"] == "True"
    assert kubelet.uid() == first
    assert [event for event in shared.events(name) if event["reason"] == "ChildRestored"] == []
    shared.patch("Compute", name, {"spec": {"image": "localhost/right:1"}})
    eventually("a trial of it", lambda: image_of(shared.get("Pod", f"{name}-image")) == "localhost/right:1")
    shared.patch("Pod", f"{name}-image", {"status": {"phase": "Succeeded"}}, "status")
    kubelet.another(first)
    assert image_of(kubelet.pod()) == "localhost/right:1"
    eventually("no trial", lambda: shared.get("Pod", f"{name}-image") is None)


def test_a_driver_that_fails_is_started_again_after_a_pause(platform: str, name: str, shared: Objects) -> None:
    """The status has the cause and the next start; the pause is kept, and the next one is longer."""
    shared.apply(job(platform, name, restartPolicy={"backoffSeconds": 2, "maxBackoffSeconds": 60, "maxRestarts": 1}))
    kubelet = Kubelet(shared, name)
    first = kubelet.uid()
    kubelet.ends(1, "ValueError: no such table")
    said = shared.await_reason("Compute", name, "DriverFailed")
    assert "ValueError: no such table" in said["message"]
    status = status_of(shared, name)
    ended, again = (datetime.fromisoformat(status[field]) for field in ("completionTime", "nextRestartTime"))
    assert (again - ended).total_seconds() == 2
    assert status["lastExitCode"] == 1
    second = kubelet.another(first)
    assert datetime.now(UTC) >= again
    kubelet.ends(1, "ValueError: no such table")
    shared.await_reason("Compute", name, "Failed")
    assert kubelet.uid() == second, "it is left for its log"
    assert "2 times in a row" in shared.ready("Compute", name)["message"]


def test_a_batch_that_ends_well_is_completed(platform: str, name: str, shared: Objects) -> None:
    """The job stays completed, also when its pod is deleted."""
    shared.apply(job(platform, name, mode="Batch"))
    kubelet = Kubelet(shared, name)
    kubelet.uid()
    kubelet.ends(0)
    assert shared.await_reason("Compute", name, "Completed")["status"] == "True"
    kubelet.delete_pod()
    eventually("a status without a pod", lambda: "driverPod" not in (shared.get("Compute", name) or {})["status"])
    assert kubelet.pod() is None
    assert shared.ready("Compute", name)["reason"] == "Completed"


def test_executors_are_scaled_by_the_scale_subresource(platform: str, name: str, shared: Objects) -> None:
    """As with `kubectl scale` and autoscalers: the same driver, another number in its file."""
    shared.apply(job(platform, name, executor={"replicas": 1}))
    kubelet = Kubelet(shared, name)
    first = kubelet.uid()
    kubelet.runs()
    shared.await_reason("Compute", name, "Ready")
    shared.patch("Compute", name, {"spec": {"replicas": 3}}, "scale")
    eventually("the number", lambda: (shared.get("ConfigMap", f"{name}-driver") or {})["data"]["executors"] == "3\n")
    eventually(
        "an annotation", lambda: (kubelet.pod() or {})["metadata"]["annotations"]["tussock.dev/executors"] == "3"
    )
    assert kubelet.uid() == first


def test_suspension_and_deletion_stop_the_driver(platform: str, name: str, shared: Objects) -> None:
    """Both delete the pod and wait for it; the resource goes when the driver has ended."""
    shared.apply(job(platform, name))
    kubelet = Kubelet(shared, name)
    kubelet.uid()
    kubelet.runs()
    shared.await_reason("Compute", name, "Ready")
    shared.patch("Compute", name, {"spec": {"suspend": True}})
    shared.await_reason("Compute", name, "Suspended")
    assert kubelet.pod() is None
    shared.patch("Compute", name, {"spec": {"suspend": False}})
    kubelet.uid()
    shared.delete("Compute", name)
    eventually("its end", lambda: shared.get("Compute", name) is None)
    assert kubelet.pod() is None


def test_a_job_waits_for_its_store_and_its_program(name: str, shared: Objects, operator: OperatorProcess) -> None:
    """The condition names the missing one, and nothing starts."""
    shared.apply(job(f"{name}-store", name))
    said = shared.await_reason("Compute", name, "WaitingForStore")
    assert f"{name}-store" in said["message"]
    assert shared.get("Pod", f"{name}-driver") is None


def test_a_program_that_is_missing_is_named(platform: str, name: str, shared: Objects) -> None:
    """When the ConfigMap comes, the driver starts; when its content changes, the driver is replaced."""
    program = {"configMap": {"name": f"{name}-program", "key": "job.py"}}
    shared.apply(job(platform, name, application=program))
    said = shared.await_reason("Compute", name, "InvalidSpec")
    assert f"{name}-program" in said["message"]
    made = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": f"{name}-program"}, "data": {"job.py": "1"}}
    shared.apply(made)
    kubelet = Kubelet(shared, name)
    first = eventually("a driver", kubelet.pod)["metadata"]["uid"]
    kubelet.runs()
    shared.apply({**made, "data": {"job.py": "2"}})
    eventually("another driver", lambda: (pod := kubelet.pod()) and pod["metadata"]["uid"] != first)


def test_of_two_jobs_with_one_writer_id_the_second_is_refused(platform: str, name: str, shared: Objects) -> None:
    shared.apply(job(platform, f"{name}-a", writerId=name))
    kubelet = Kubelet(shared, f"{name}-a")
    kubelet.uid()
    shared.apply(job(platform, f"{name}-b", writerId=name))
    said = shared.await_reason("Compute", f"{name}-b", "WriterIdInUse")
    assert f"{name}-a" in said["message"]
    assert shared.get("Pod", f"{name}-b-driver") is None
    shared.delete("Compute", f"{name}-a")
    eventually("a driver", lambda: shared.get("Pod", f"{name}-b-driver"))


def test_the_driver_s_pod_fits_the_restricted_profile(
    platform: str, name: str, shared: Objects, objects: Objects
) -> None:
    """A namespace that enforces the profile accepts the same pod, and refuses one that runs as root."""
    shared.apply(job(platform, name))
    pod = eventually("a driver", lambda: shared.get("Pod", f"{name}-driver"))
    shared.patch(
        "Namespace", objects.namespace, {"metadata": {"labels": {"pod-security.kubernetes.io/enforce": "restricted"}}}
    )
    spec = {key: value for key, value in pod["spec"].items() if key != "nodeName"}
    same = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "driver"}, "spec": spec}
    objects.apply(same)
    root = {**same, "metadata": {"name": "root"}, "spec": {**spec, "securityContext": {}}}
    with pytest.raises(ForbiddenError, match="restricted"):
        objects.apply(root)
