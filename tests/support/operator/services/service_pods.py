"""What controllers and a kubelet make of a service at an API server, where there are none."""

from datetime import UTC, datetime
from typing import Any

from support.operator.process import Body, Objects, eventually
from tussock.operator.planning.words.model import stamp

__all__ = ["ServicePods", "service_job"]


def service_job(store: str, name: str, **spec: Any) -> Body:
    """The manifest of a service; `of` are the other fields of the spec."""
    made = {"storeRef": {"name": store}, **spec.pop("of", {}), "service": {"module": "bank:make", **spec}}
    return {"apiVersion": "tussock.dev/v1alpha1", "kind": "Compute", "metadata": {"name": name}, "spec": made}


class ServicePods:
    """The node's pod of one service."""

    def __init__(self, objects: Objects, name: str) -> None:
        self._objects = objects
        self._node = f"{name}-service"
        self.pod_name = f"{name}-service-0"

    def template(self) -> Body:
        """That of the StatefulSet, once there is one."""
        found = eventually(f"StatefulSet {self._node}", lambda: self._objects.get("StatefulSet", self._node))
        template: Body = found["spec"]["template"]
        return template

    def make(self) -> None:
        """The pod by the present template, as a StatefulSet makes it, and ready, as a kubelet says."""
        owner = eventually(f"StatefulSet {self._node}", lambda: self._objects.get("StatefulSet", self._node))
        template = owner["spec"]["template"]
        reference = {
            "apiVersion": "apps/v1",
            "kind": "StatefulSet",
            "name": self._node,
            "uid": owner["metadata"]["uid"],
            "controller": True,
        }
        metadata = {**template["metadata"], "name": self.pod_name, "ownerReferences": [reference]}
        # An account that no controller has made.
        spec = {**template["spec"], "serviceAccountName": "default", "terminationGracePeriodSeconds": 0}
        self._objects.apply({"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": spec}, "statefulset")
        began = stamp(datetime.now(UTC))
        container = {
            "name": "compute",
            "ready": True,
            "state": {"running": {"startedAt": began}},
            "image": "localhost/tussock-node:test",
            "imageID": "",
            "restartCount": 0,
        }
        ready = [{"type": "Ready", "status": "True", "lastTransitionTime": began}]
        status = {"phase": "Running", "conditions": ready, "containerStatuses": [container]}
        self._objects.patch("Pod", self.pod_name, {"status": status}, "status")

    def end(self) -> None:
        """The pod has gone."""
        self._objects.delete("Pod", self.pod_name)
        eventually("the pod's end", lambda: self._objects.get("Pod", self.pod_name) is None)
