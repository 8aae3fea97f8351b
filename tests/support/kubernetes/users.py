"""A user of a namespace: commands of kubectl, clients in pods, and conditions."""

import json
from collections.abc import Mapping, Sequence
from itertools import count
from typing import Any, NamedTuple

from cluster.view.client import Cluster, NeverHappened
from support.kubernetes.programs_in_pods import run_program

__all__ = ["SECONDS", "Condition", "User", "resource"]

SECONDS = 900
"""Spark takes twenty times as long on a machine that is busy with other things."""
TLS = "/etc/tussock/tls"


class Condition(NamedTuple):
    """The condition `Ready` of a resource."""

    status: str = ""
    reason: str = ""
    message: str = ""


def resource(kind: str, name: str, **spec: Any) -> dict[str, Any]:
    """One of Tussock's custom resources."""
    return {"apiVersion": "tussock.dev/v1alpha1", "kind": kind, "metadata": {"name": name}, "spec": spec}


class User:
    """A user with a namespace; `node_image` is that of the pods in which clients run."""

    def __init__(self, cluster: Cluster, namespace: str, node_image: str) -> None:
        self.cluster, self.namespace, self._node_image = cluster, namespace, node_image
        self._numbers = count(1)

    def kubectl(self, *arguments: str, seconds: float = 120) -> str:
        """Run a command in the namespace; returns its output."""
        return self.cluster.kubectl(*arguments, f"--namespace={self.namespace}", seconds=seconds)

    def patch(self, what: str, **spec: Any) -> None:
        """Change fields of a spec (`tss/board`), as `kubectl edit` would."""
        self.kubectl("patch", what, "--type=merge", "--patch", json.dumps({"spec": spec}))

    def get(self, what: str) -> dict[str, Any]:
        """An object that exists (`tsc/board`)."""
        found = self.cluster.get(*what.split("/"), self.namespace)
        assert found is not None, what
        return found

    def condition(self, what: str) -> Condition:
        """The condition `Ready` of a resource, of its newest spec; all empty if it has none yet."""
        body = self.get(what)
        for one in body.get("status", {}).get("conditions", []):
            if one["type"] == "Ready" and one["observedGeneration"] == body["metadata"]["generation"]:
                return Condition(one["status"], one["reason"], one["message"])
        return Condition()

    def await_reason(self, what: str, reason: str, *words: str, status: str = "") -> Condition:
        """Wait until a resource has this reason, with these words in its message; returns the whole condition."""

        def find_condition() -> Condition | None:
            now = self.condition(what)
            fits = now.reason == reason and status in ("", now.status) and all(word in now.message for word in words)
            return now if fits else None

        wanted = " ".join([reason, status, *words])
        try:
            return self.cluster.wait_for(f"{what} that is {wanted}", find_condition, SECONDS)
        except NeverHappened as error:
            raise NeverHappened(f"{error}; it is {self.condition(what)}") from error

    def run(
        self,
        program: str,
        *,
        store: str = "",
        role: str = "reader",
        secret_names: Sequence[str] = (),
        files: Mapping[str, str] | None = None,
        environment: Mapping[str, str] | None = None,
    ) -> dict[str, object]:
        """Run one of `programs` in a pod, with `store` as its client with the certificate of a role; the result."""
        host = f"{store}-meta.{self.namespace}.svc"
        pem = {"CA": "ca.crt", "CERT": "tls.crt", "KEY": "tls.key"}
        client = {
            "TUSSOCK_STORE": f"tussock://{host}:7370",
            "TUSSOCK_TLS_SERVER_NAME": host,
            **{f"TUSSOCK_TLS_{name}": f"{TLS}/{file}" for name, file in pem.items()},
        }
        certificate = {"secret": {"secretName": f"{store}-client-{role}-tls", "defaultMode": 0o440}}
        return run_program(
            self.cluster,
            self.namespace,
            program,
            self._node_image,
            called=f"{program.replace('_', '-')}-{next(self._numbers)}",
            secret_names=secret_names,
            files=files,
            environment={**(environment or {}), **(client if store else {})},
            volumes={TLS: certificate} if store else None,
            labels={"tussock.dev/client": store} if store else None,
        )
