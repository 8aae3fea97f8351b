"""Changes of workloads that fail at the API server: each stays its user's, whatever other stores do meanwhile."""

import asyncio
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from support.operator.cluster_in_memory import NAMESPACE, ClusterInMemory, cluster_of
from tussock.operator.cluster.errors import ApiError, ApiRefused, ApiUnavailable, FieldsUnknown
from tussock.operator.cluster.seen import Key
from tussock.operator.handlers.components import COMPACTOR, META
from tussock.operator.handlers.passes.reconciler import Reconciler
from tussock.operator.manifests.labels import SPEC_ANNOTATION
from tussock.operator.planning.words.model import Apply, Manifest

KINDS = ("Meta", "Compactor")
Check = Callable[[Manifest], ApiError | None]


class ServerInMemory:
    """The API server of a cluster in memory; `check` says of an object why it is not taken."""

    def __init__(self, cluster: ClusterInMemory, check: Check) -> None:
        self.check = check
        self._cluster = cluster

    async def look(self, kind: str, _: str, name: str) -> Manifest | None:
        return self._cluster.find(kind, name)

    async def apply(self, manifest: Manifest, _: str, subresource: str = "", *, strict: bool = False) -> Manifest:
        del strict
        kind, name = manifest["kind"], manifest["metadata"]["name"]
        if subresource:
            self._cluster.put(kind, {**self._cluster.get(kind, name), "status": manifest["status"]})
            return self._cluster.get(kind, name)
        if (error := self.check(manifest)) is not None:
            raise error
        self._cluster.act(Apply(manifest))
        return self._cluster.get(kind, name)

    async def merge(self, kind: str, _: str, name: str, patch: Any) -> Manifest:
        assert set(patch["metadata"]) == {"managedFields", "uid"}
        return self._cluster.get(kind, name)

    async def create(self, event: Manifest, _: str) -> None:
        assert event["kind"] == "Event", "all children are there"


class Case:
    """Two stores that serve, of which the first keeps changing: its pods are never replaced."""

    def __init__(self, kind: str, check: Check) -> None:
        self.cluster = cluster_of("ab", 1)
        self.cluster.edit("Meta", "a", replicas=3)
        self.cluster.look([Key("Meta", NAMESPACE, "a")])
        self.server = ServerInMemory(self.cluster, check)
        self._kind = kind
        world: Any = replace(self.cluster.world, api=self.server)  # type: ignore[arg-type]
        self._reconciler = Reconciler(world, [META, COMPACTOR])

    def edit(self, **pods: Any) -> None:
        """Edit the pod template of the second store's component."""
        self.cluster.edit(self._kind, "b", podTemplate={"spec": pods})

    def look(self) -> str:
        """A pass over that component; returns the reason in its status."""
        asyncio.run(self._reconciler.run(Key(self._kind, NAMESPACE, "b")))
        return str(self.cluster.get(self._kind, "b")["status"]["conditions"][0]["reason"])

    def disk(self) -> Any:
        """The disk that its pods ask for."""
        pods = self.cluster.get("Deployment", f"b-{self._kind.lower()}")["spec"]["template"]["spec"]
        return (pods.get("nodeSelector") or {}).get("disk")

    def made_from(self) -> str:
        """The specs from which its workload was made, by what is kept beside it."""
        annotations = self.cluster.get("PodDisruptionBudget", f"b-{self._kind.lower()}")["metadata"]["annotations"]
        return str(annotations[SPEC_ANNOTATION]).partition("/")[0]


def refuse_numbers(manifest: Manifest) -> ApiError | None:
    """As a server whose nodes are selected by text."""
    if manifest["kind"] != "Deployment":
        return None
    disk = (manifest["spec"]["template"]["spec"].get("nodeSelector") or {}).get("disk")
    return ApiRefused("nodeSelector.disk: expected string", 500) if isinstance(disk, int) else None


@pytest.mark.parametrize("kind", KINDS)
def test_a_refused_change_stays_its_users(kind: str) -> None:
    """Whether the server is asked again or not, and the corrected one waits for no turn.

    Story: a pass later it counted as an upgrade's, and its refusal was forgotten for as long as another store changed.
    """
    case = Case(kind, refuse_numbers)
    case.edit(nodeSelector={"disk": 5})
    for seconds in (0, 0, 1, 5, 60):
        case.cluster.after(seconds)
        assert case.look() == "ApplyRefused"
    assert case.made_from() == "1.1"
    case.edit(nodeSelector={"disk": "5"})
    case.look()
    assert (case.disk(), case.made_from()) == ("5", "1.3")


@pytest.mark.parametrize("kind", KINDS)
def test_a_change_whose_pass_broke_off_stays_its_users(kind: str) -> None:
    """Story: the pass after it waited for a turn."""
    case = Case(kind, lambda manifest: ApiUnavailable("away") if manifest["kind"] == "Deployment" else None)
    case.edit(nodeSelector={"disk": "5"})
    with pytest.raises(ApiUnavailable):
        case.look()
    assert (case.disk(), case.made_from()) == (None, "1.1")
    case.server.check = lambda _: None
    case.look()
    assert (case.disk(), case.made_from()) == ("5", "1.2")


@pytest.mark.parametrize("kind", KINDS)
def test_a_change_without_a_misspelt_field_is_made(kind: str) -> None:
    """So what comes with the next upgrade does not count as a change by its user."""

    def refuse_misspelt(manifest: Manifest) -> ApiError | None:
        path = "spec.template.spec.nodeSelectr"
        misspelt = manifest["kind"] == "Deployment" and "nodeSelectr" in manifest["spec"]["template"]["spec"]
        return FieldsUnknown("unknown field", 400, (path,)) if misspelt else None

    case = Case(kind, refuse_misspelt)
    case.edit(nodeSelectr={"disk": "6"}, nodeSelector={"disk": "5"})
    for _ in range(2):
        assert case.look() == "ApplyRefused"
    assert (case.disk(), case.made_from()) == ("5", "1.2")
