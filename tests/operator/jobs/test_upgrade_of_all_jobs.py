"""An upgrade of the operator with another image of Spark: a few jobs at a time, at a real API server."""

from pathlib import Path

import pytest

from support.buckets.minio import MinioServer
from support.operator.kubelet import Kubelet, job
from support.operator.process import Objects, eventually, kept_operator
from support.operator.stores_in_cluster import serving, store_on

pytestmark = [pytest.mark.minio, pytest.mark.slow, pytest.mark.timeout(600)]
NEXT = "localhost/tussock-spark:next"
PARALLEL = 4
JOBS = [f"job{number:02}" for number in range(20)]
EDITED, UNPULLED, FAILING = JOBS[15], JOBS[1], JOBS[7]
UPGRADED = {"spark_image": NEXT, "max_unavailable": str(PARALLEL)}
"""An operator with the new image that changes four jobs at a time."""


class Jobs:
    """The jobs of a namespace and their drivers; nothing runs before a test says so."""

    def __init__(self, objects: Objects) -> None:
        self._objects = objects
        self.kubelets = {name: Kubelet(objects, name) for name in JOBS}
        self.new: set[str] = set()
        """Those whose driver has the new image."""
        self.stopped: set[str] = set()
        """Those without a driver that is ready."""
        self.tried: set[str] = set()
        """Those whose new image is being tried."""

    def look(self) -> None:
        """See how far the jobs are."""
        pods = {body["metadata"]["name"]: body for body in self._objects.list("Pod")}
        drivers = {name: pods.get(kubelet.pod_name) for name, kubelet in self.kubelets.items()}
        self.new = {name for name, pod in drivers.items() if pod and pod["spec"]["containers"][0]["image"] == NEXT}
        self.stopped = {name for name, pod in drivers.items() if not (pod and pod["status"].get("conditions"))}
        trials = {name: pods.get(kubelet.trial_name) for name, kubelet in self.kubelets.items()}
        self.tried = {name for name, pod in trials.items() if pod and not pod["status"].get("containerStatuses")}
        self.tried -= {name for name, pod in trials.items() if pod and pod["status"].get("phase") == "Succeeded"}

    def begun(self) -> set[str]:
        """The jobs whose turn has begun and not ended."""
        self.look()
        return self.stopped | self.tried


def unpulled(jobs: Jobs, name: str) -> None:
    """The new image of a job cannot be pulled."""
    state = {"waiting": {"reason": "ErrImagePull", "message": "not found"}}
    container = {"name": "compute", "image": NEXT, "imageID": "", "ready": False, "restartCount": 0, "state": state}
    jobs.kubelets[name].tries(containerStatuses=[container])


def test_twenty_jobs_take_their_turns(objects: Objects, minio: MinioServer, tmp_path: Path) -> None:
    """Four at a time, in the order of their names, and they say for which one they wait.

    An operator that is killed in the middle changes nothing about it; a user's edit waits for no turn; a job whose
    image cannot be pulled keeps its driver, one whose driver fails is tried again, and both stop no others.
    """
    first = kept_operator(objects, tmp_path)
    serving(objects, store_on(minio, objects, "s"))
    jobs = Jobs(objects)
    for name in JOBS:
        objects.apply(job("s", name, restartPolicy={"backoffSeconds": 1}))
    for kubelet in jobs.kubelets.values():
        kubelet.runs()
    for name in JOBS:
        objects.await_reason("Compute", name, "Ready")
    assert first.stop() == 0
    second = kept_operator(objects, tmp_path, "two", **UPGRADED)
    eventually("the first turns", lambda: jobs.begun() == set(JOBS[:PARALLEL]))
    told = "An upgrade of the operator changes its driver after that of other jobs."
    eventually("what the last one waits for", lambda: told in objects.ready("Compute", JOBS[-1])["message"])
    assert objects.ready("Compute", JOBS[-1])["status"] == "True"

    objects.patch("Compute", EDITED, {"spec": {"arguments": ["--fast"]}})
    eventually("what its user asks for", lambda: EDITED in jobs.begun())
    jobs.kubelets[EDITED].tries()
    eventually("its driver's end", lambda: EDITED in jobs.begun() and EDITED in jobs.stopped)
    eventually("its next driver", lambda: EDITED in jobs.begun() and EDITED in jobs.new)
    assert jobs.begun() == {EDITED, *JOBS[:PARALLEL]}
    jobs.kubelets[EDITED].runs()
    unpulled(jobs, UNPULLED)
    eventually("the next turn", lambda: jobs.begun() == set(JOBS[: PARALLEL + 1]) - {UNPULLED})
    objects.await_reason("Compute", UNPULLED, "ImagePullFailed")
    second.kill()
    third = kept_operator(objects, tmp_path, "three", **UPGRADED)

    order: list[str] = []
    left = set(JOBS) - {EDITED, UNPULLED}
    while left:
        eventually("turns", lambda: len(jobs.begun()) >= min(PARALLEL, len(left)))
        for name in sorted(jobs.begun()):
            assert len(jobs.begun()) <= PARALLEL, (jobs.stopped, jobs.tried)
            if name in jobs.tried:
                jobs.kubelets[name].tries()
            eventually("its next driver", lambda name=name: name in jobs.begun() and name in jobs.new)
            if name == FAILING:
                first_try = jobs.kubelets[name].uid()
                jobs.kubelets[name].ends(1, "ValueError: so")
                jobs.kubelets[name].another(first_try)
            jobs.kubelets[name].runs()
            order.append(name)
            left.remove(name)
    assert order == [name for name in JOBS if name not in (EDITED, UNPULLED)]

    jobs.kubelets[UNPULLED].tries()
    eventually("the image after all", lambda: UNPULLED in jobs.begun() and UNPULLED in jobs.new)
    jobs.kubelets[UNPULLED].runs()
    for name in JOBS:
        objects.await_reason("Compute", name, "Ready")
    assert jobs.begun() == set()
    assert jobs.new == set(JOBS)
    assert third.stop() == 0, third.log()[-2000:]
