"""What a kubelet reports about the driver of a job: at an API server alone there is none."""

from datetime import UTC, datetime, timedelta
from typing import Any

from support.operator.process import Body, Objects, eventually
from tussock.operator.planning.words.model import stamp

__all__ = ["Kubelet", "job"]


def job(store: str, name: str, **spec: Any) -> Body:
    """The manifest of a job."""
    base = {"storeRef": {"name": store}, "application": {"file": "/opt/app.py"}, "checkpoint": {"size": "1Gi"}}
    metadata = {"name": name}
    return {"apiVersion": "tussock.dev/v1alpha1", "kind": "Compute", "metadata": metadata, "spec": {**base, **spec}}


class Kubelet:
    """Writes into the driver's pod what a kubelet would report."""

    def __init__(self, objects: Objects, job: str) -> None:
        self._objects = objects
        self.pod_name = f"{job}-driver"
        self.trial_name = f"{job}-image"

    def pod(self) -> Body | None:
        """The driver's pod, if there is one."""
        return self._objects.get("Pod", self.pod_name)

    def uid(self) -> str:
        """Wait for a driver; returns the uid of its pod."""
        return str(eventually(f"Pod {self.pod_name}", self.pod)["metadata"]["uid"])

    def another(self, uid: str) -> str:
        """Wait for a pod of another uid; returns it."""
        return str(
            eventually("another driver", lambda: (pod := self.pod()) and pod["metadata"]["uid"] != uid and self.uid())
        )

    def runs(self) -> None:
        """The driver is ready."""
        self.uid()
        container = {"name": "compute", "ready": True, "state": {"running": {"startedAt": _stamp()}}, **self._image()}
        ready = [{"type": "Ready", "status": "True", "lastTransitionTime": _stamp()}]
        self._status({"phase": "Running", "conditions": ready, "containerStatuses": [container]})

    def ends(self, code: int, message: str = "") -> None:
        """The driver's container ends with a code."""
        ended = {"exitCode": code, "startedAt": _stamp(2), "finishedAt": _stamp(), "message": message}
        container = {"name": "compute", "ready": False, "state": {"terminated": ended}, **self._image()}
        ready = [{"type": "Ready", "status": "False", "lastTransitionTime": _stamp()}]
        phase = "Failed" if code else "Succeeded"
        self._status({"phase": phase, "conditions": ready, "containerStatuses": [container]})

    def tries(self, **status: Any) -> None:
        """Report about the pod that tries an image; by default it ends well."""
        self._objects.patch("Pod", self.trial_name, {"status": status or {"phase": "Succeeded"}}, "status")

    def trial(self) -> Body | None:
        """The pod that tries an image, if there is one."""
        return self._objects.get("Pod", self.trial_name)

    def delete_pod(self) -> None:
        """Delete the pod as a user would. It goes at once, because no node has it."""
        self._objects.delete("Pod", self.pod_name)

    def loses_node(self) -> None:
        """The driver's node falls silent: what the control plane then writes, and its deletion, which nobody ends."""
        self._objects.bind(self.pod_name, "lost")
        states = {"Ready": "False", "ContainersReady": "True", "DisruptionTarget": "True"}
        found = [{"type": type_, "status": state, "lastTransitionTime": _stamp()} for type_, state in states.items()]
        found[-1]["reason"] = "DeletionByTaintManager"
        container = {"name": "compute", "ready": True, "started": True, **self._image()}
        running = {"running": {"startedAt": _stamp(60)}}
        self._status({"phase": "Running", "conditions": found, "containerStatuses": [{**container, "state": running}]})
        self._objects.delete("Pod", self.pod_name)

    def _image(self) -> dict[str, Any]:
        return {"image": "localhost/tussock-spark:test", "imageID": "", "restartCount": 0}

    def _status(self, status: dict[str, Any]) -> None:
        self._objects.patch("Pod", self.pod_name, {"status": status}, "status")


def _stamp(seconds_ago: float = 0) -> str:
    """A time that is past."""
    return stamp(datetime.now(UTC) - timedelta(seconds=seconds_ago))
