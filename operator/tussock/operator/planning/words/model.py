"""The words of planning: what was observed, and what is to be done about it.

`plan(resource, observed, now) -> Plan` of each kind is a pure function of values: no API, no bucket, no clock. It is
level-triggered: it never asks what happened, only what there is, so the same inputs give the same plan, however often
it is asked, and a plan that was carried out half way is simply made again. A resource of which nothing differs gets a
plan without actions, and costs no request.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, Generic, NamedTuple, TypeAlias, TypeVar

__all__ = [
    "Action",
    "Annotate",
    "Apply",
    "Delete",
    "Emit",
    "Hold",
    "Manifest",
    "Observed",
    "Plan",
    "Ref",
    "Release",
    "Work",
    "ref_of",
    "seconds_since",
]

Manifest: TypeAlias = dict[str, Any]
"""An object of the API as JSON: `apiVersion`, `kind`, `metadata` and the rest."""

Facts = TypeVar("Facts")


class Ref(NamedTuple):
    """An object in the namespace of the resource that is planned for."""

    kind: str
    name: str


class Apply(NamedTuple):
    """Make a child, or apply it as `tussock-operator` and with force: what others set on these fields is lost.

    An object of that name that is not the resource's is not touched (`cluster/application.py`).
    """

    manifest: Manifest


class Delete(NamedTuple):
    """Delete a child, if it is still there."""

    ref: Ref


class Annotate(NamedTuple):
    """Set annotations of an object that is not ours to apply, such as a pod of a Deployment; `None` removes one."""

    ref: Ref
    annotations: dict[str, str | None]


class Emit(NamedTuple):
    """Post an event about the resource: one for each transition, not for each pass."""

    type: str
    """`Normal` or `Warning`, which is all that Kubernetes has."""
    reason: str
    message: str


class Hold(NamedTuple):
    """Put our finalizer on the resource, before anything is made that only we can take away."""


class Release(NamedTuple):
    """Take our finalizer off, so that the resource can go."""


class Work(NamedTuple):
    """Something outside the Kubernetes API, such as emptying a prefix; the handler of the kind knows it by name.

    What came of it is seen in the next pass, among the facts.
    """

    name: str
    arguments: dict[str, Any]


Action: TypeAlias = Apply | Delete | Annotate | Emit | Hold | Release | Work


class Plan(NamedTuple):
    """What to do now, in this order, and then what the status is to be."""

    actions: tuple[Action, ...]
    status: dict[str, Any]
    """The whole status; written if it differs from the one that the resource has."""
    again_seconds: float | None = None
    """Look again after so long, though nothing should happen by then; `None`: at the next resync."""


@dataclass(frozen=True)
class Observed(Generic[Facts]):
    """What is known about a resource's surroundings, without a request to the API.

    `children` are the objects that carry our labels with this resource as their owner, and the pods that these made.
    `others` are objects that it refers to: its store, the other kinds of that store, and the digests of secrets.
    `facts` are what probes found, of a type of the kind's own.
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


def seconds_since(timestamp: str | None, now: datetime) -> float:
    """How long ago a time of the API (RFC 3339, such as `2026-11-21T14:33:16Z`) was; 0 if there is none."""
    return max(0.0, (now - datetime.fromisoformat(timestamp)).total_seconds()) if timestamp else 0.0
