"""Objects of a cluster, read over one connection: a test that waits asks often, and each `kubectl` costs a core.

What users do and see goes by `kubectl`; this is for what a test looks at meanwhile.
"""

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from kubernetes import config
from kubernetes.client.exceptions import ApiException
from urllib3.exceptions import HTTPError

__all__ = ["ClusterFailed", "Objects"]

SECONDS_MAX = 30


class ClusterFailed(Exception):
    """The cluster refused a request, or was not reached; the text has the request and the answer."""


class NoObject(ClusterFailed):
    """There is nothing at this path."""


class Objects:
    """Reads objects by kind, in any of the names that `kubectl` takes: `pod`, `pods`, `po`, `statefulset`, `tss`."""

    def __init__(self, kubeconfig: Path) -> None:
        self._kubeconfig = kubeconfig
        self._client: Any = None
        self._paths: dict[str, str] = {}

    def get(self, kind: str, name: str, namespace: str) -> dict[str, Any] | None:
        """One object, or `None` if there is none of this name."""
        path = self._path(kind, namespace)
        try:
            found: dict[str, Any] = self.answer(f"{path}/{name}")
        except NoObject:
            return None
        return found

    def list(self, kind: str, namespace: str, selector: str) -> Sequence[dict[str, Any]]:
        """All objects of a kind that have these labels."""
        items = self.answer(self._path(kind, namespace), labelSelector=selector)["items"]
        assert isinstance(items, list)
        return items

    def answer(self, path: str, **query: str) -> Any:
        """The API server's answer, from JSON; raises `ClusterFailed`."""
        return json.loads(self.text(path, **query))

    def text(self, path: str, **query: str) -> str:
        """The API server's answer; raises `ClusterFailed`."""
        if self._client is None:  # not before: a kubeconfig is read only where it is used
            self._client = config.new_client_from_config(str(self._kubeconfig))
        request = self._client.param_serialize(
            "GET", path, query_params=[*query.items()], auth_settings=["BearerToken"]
        )
        try:
            response = self._client.call_api(*request, _request_timeout=SECONDS_MAX)
            body = response.read().decode(errors="replace")
        except (ApiException, HTTPError) as error:
            raise ClusterFailed(f"GET {path}: {error}") from error
        if response.status == 404:
            raise NoObject(f"GET {path}: not found")
        if response.status != 200:
            raise ClusterFailed(f"GET {path}: {response.status} {body[:1000]}")
        return str(body)

    def _path(self, kind: str, namespace: str) -> str:
        """Where the objects of a kind are; for an unknown kind the cluster is asked again."""
        if kind not in self._paths:
            self._paths = self._discover()
        if kind not in self._paths:
            raise ClusterFailed(f"the cluster has no kind {kind!r}")
        return self._paths[kind].format(namespace=namespace)

    def _discover(self) -> dict[str, str]:
        """The path of each kind, by each of its names; the first group that has a name wins, as in `kubectl`."""
        versions = ["/api/v1"]
        versions += [f"/apis/{one['preferredVersion']['groupVersion']}" for one in self.answer("/apis")["groups"]]
        paths: dict[str, str] = {}
        for version in versions:
            for one in self.answer(version)["resources"]:
                if "/" not in one["name"]:
                    place = f"{version}/namespaces/{{namespace}}" if one["namespaced"] else version
                    for name in (one["name"], one["singularName"], *one.get("shortNames", ())):
                        paths.setdefault(name, f"{place}/{one['name']}")
        return paths
