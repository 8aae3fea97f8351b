"""The types of planning: what was observed, and what to do about it.

`plan(resource, observed, now) -> Plan` of each kind is a pure function of values: no API, no bucket, no clock. It is
level-triggered: it depends on the present state and not on events, so the same inputs always give the same plan, and a
plan that was carried out half way is simply made again. A resource that matches its spec gets a plan without actions,
and costs no request.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any, Generic, NamedTuple, TypeAlias, TypeVar

__all__ = [
    "RUN_PODS",
    "Action",
    "Annotate",
    "Apply",
    "Delete",
    "Emit",
    "Hold",
    "Label",
    "Manifest",
    "Observed",
    "Plan",
    "Ref",
    "Release",
    "Work",
    "moment_of",
    "ref_of",
    "seconds_since",
    "stamp",
    "workload_in",
]

Manifest: TypeAlias = dict[str, Any]
"""An object of the API as JSON: `apiVersion`, `kind`, `metadata` and the rest."""

Facts = TypeVar("Facts")

RUN_PODS = ("Deployment", "Pod", "StatefulSet")
"""The kinds of children that run pods, made from a user's pod template, too."""


class Ref(NamedTuple):
    """An object in the namespace of the planned resource."""

    kind: str
    name: str


class Apply(NamedTuple):
    """Create a child, or apply it as `tussock-operator` and with force, which overwrites others' values of its fields.

    An object of that name that does not belong to the resource stays untouched (`cluster/application.py`).
    """

    manifest: Manifest


class Delete(NamedTuple):
    """Delete a child, if it exists and is provably the resource's own at that moment (`cluster/actions.py`)."""

    ref: Ref


class Annotate(NamedTuple):
    """Set annotations of an object that we do not apply, such as a pod of a Deployment; `None` removes one."""

    ref: Ref
    annotations: dict[str, str | None]


class Label(NamedTuple):
    """The same for labels."""

    ref: Ref
    labels: dict[str, str | None]


class Emit(NamedTuple):
    """Post an event about the resource: one for each transition, not for each pass."""

    type: str
    """`Normal` or `Warning`, which is all that Kubernetes has."""
    reason: str
    message: str


class Hold(NamedTuple):
    """Put our finalizer on the resource, before anything is made that only we can remove."""


class Release(NamedTuple):
    """Remove our finalizer, so that the resource can go."""


class Work(NamedTuple):
    """Something outside the Kubernetes API, such as emptying a prefix; the handler of the kind knows it by name.

    The next pass sees the result among the facts.
    """

    name: str
    arguments: dict[str, Any]


Action: TypeAlias = Apply | Delete | Annotate | Label | Emit | Hold | Release | Work


class Plan(NamedTuple):
    """What to do now, in this order, and then the new status."""

    actions: tuple[Action, ...]
    status: dict[str, Any]
    """The whole status; written if it differs from the resource's."""
    again_seconds: float | None = None
    """Look again after this time, even without an event; `None`: at the next resync."""


@dataclass(frozen=True)
class Observed(Generic[Facts]):
    """What is known about a resource's surroundings, without a request to the API.

    `children` are the objects that carry our labels with this resource as their owner, and the pods of these. `others`
    are objects that it refers to: its store, the other kinds of that store, and the digests of secrets. `facts` are the
    results of probes, in a type that belongs to the kind.
    """

    facts: Facts
    children: Mapping[Ref, Manifest] = field(default_factory=dict)
    others: Mapping[Ref, Manifest] = field(default_factory=dict)

    def pods(self) -> list[Manifest]:
        """The observed pods, in the order of their names."""
        return [body for ref, body in sorted(self.children.items()) if ref.kind == "Pod"]


def ref_of(manifest: Mapping[str, Any]) -> Ref:
    """The kind and the name of an object."""
    return Ref(manifest["kind"], manifest["metadata"]["name"])


def workload_in(manifests: Iterable[Manifest]) -> Manifest:
    """The one of these objects that runs pods; there has to be one."""
    return next(one for one in manifests if one["kind"] in RUN_PODS)


def moment_of(text: Any) -> datetime | None:
    """A time of the API (RFC 3339, such as `2026-11-21T14:33:16Z`) in UTC; `None` if it is no such time, or absent.

    Whatever anybody wrote into a status or an annotation: the API server accepts times that do not exist.
    """
    try:
        found = datetime.fromisoformat(text.upper()) if isinstance(text, str) else None
        return None if found is None or found.tzinfo is None else found.astimezone(UTC)
    except (ValueError, OverflowError):
        return None


def stamp(moment: datetime) -> str:
    """A time in the format of the API."""
    return moment.astimezone(UTC).isoformat(timespec="seconds").replace("+00:00", "Z")


def seconds_since(timestamp: str | None, now: datetime) -> float:
    """Seconds since a time of the API; 0 if there is none."""
    moment = moment_of(timestamp)
    return max(0.0, (now - moment).total_seconds()) if moment is not None else 0.0
