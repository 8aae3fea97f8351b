"""What the handlers of all kinds share, and what each kind adds.

A pass over a resource is the same for all kinds: observe, plan, act, write the status (`reconciler.py`). A kind is a
`Controller`: how to parse its body, which facts it needs, its pure plan, and what it can do outside the cluster.
"""

from collections.abc import Awaitable, Callable, Hashable, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any, Generic, TypeVar

from tussock.operator.cluster.api import Api
from tussock.operator.cluster.errors import ApiConflict
from tussock.operator.cluster.seen import Key, Seen
from tussock.operator.manifests.settings import Defaults
from tussock.operator.metrics import OperatorMetrics
from tussock.operator.planning.clients.declarations import StoreClients
from tussock.operator.planning.compute.turns import DriverTemplate
from tussock.operator.planning.words.allowances import ONE_AT_A_TIME, Allowance
from tussock.operator.planning.words.model import Manifest, Observed, Plan, Ref
from tussock.operator.probes.cache import Probes
from tussock.operator.resources.common import Resource
from tussock.statestore.base.system import System

__all__ = ["Controller", "World", "make_once"]

AnyResource = TypeVar("AnyResource", bound=Resource)
Facts = TypeVar("Facts")


@dataclass(frozen=True)
class World:
    """Everything that a handler may use."""

    api: Api
    seen: Seen
    probes: Probes
    wake: Callable[[Key], None]
    system: System
    metrics: OperatorMetrics
    identity: str
    """The name of this replica."""
    has_cert_manager: bool
    """cert-manager is in the cluster, so the operator can request and watch its Certificates."""
    defaults: Defaults
    """Defaults for fields that resources leave out: images, domain."""
    max_unavailable: Allowance = ONE_AT_A_TIME
    """How many of the stores, of the services and of the jobs an upgrade of the operator changes at a time."""
    holders: set[str] = field(default_factory=set)
    """The uids of stores whose bucket was usable, even if their status does not say so yet."""
    templates: dict[Hashable, DriverTemplate | None] = field(default_factory=dict)
    """What drivers have to be made from, by all that it depends on (`job_turns.py`)."""
    standings: dict[tuple[int, datetime], Any] = field(default_factory=dict)
    """How far all jobs are, at the newest moment at which one asked (`job_turns.py`)."""

    declarations: dict[tuple[str, str], tuple[tuple[Any, ...], StoreClients]] = field(default_factory=dict)
    """The declared clients of stores, by namespace and name, with all that they depend on (`clients/admissions.py`)."""

    def now(self) -> datetime:
        """The time, in UTC and whole seconds, as in the API."""
        return datetime.fromtimestamp(self.system.now_ms() // 1000, UTC)

    def refs(self, namespace: str, *kinds: str) -> dict[Ref, Manifest]:
        """All objects of some kinds in a namespace, for `Observed.others`."""
        return {
            Ref(kind, body["metadata"]["name"]): body for kind in kinds for body in self.seen.all_of(kind, namespace)
        }


async def make_once(world: World, secret: Manifest, namespace: str) -> None:
    """Create a Secret with a value that was just drawn; keeps an existing one, which may be in use already."""
    try:
        world.seen.put("Secret", await world.api.create(secret, namespace))
    except ApiConflict:
        return


Work = Callable[[World, AnyResource, Mapping[str, Any]], Awaitable[None]]
"""Does something outside the cluster's API for a resource, with the arguments from its plan."""


@dataclass(frozen=True)
class Controller(Generic[AnyResource, Facts]):
    """One kind of resource."""

    kind: str
    parse: Callable[[Mapping[str, Any]], AnyResource]
    observe: Callable[[World, AnyResource, Manifest], Observed[Facts]]
    """Gathers what the plan needs, from memory only; the body is the resource from the API."""
    plan: Callable[[AnyResource, Observed[Facts], datetime], Plan]
    works: Mapping[str, Work[AnyResource]] = field(default_factory=dict)
    """By the name in `model.Work`."""
