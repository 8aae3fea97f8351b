"""`Meta`: the meta nodes of a store."""

from collections.abc import Mapping
from typing import Any, ClassVar, Literal

from msgspec import field

from tussock.operator.resources.common import CamelStruct, PodTemplate, Resource, ResourceRequirements, StoreRef, parse

__all__ = ["ConsoleIngress", "ConsoleSection", "Meta", "MetaSection", "MetaSpec", "OutsideSection", "parse_meta"]


class OutsideSection(CamelStruct, frozen=True, kw_only=True):
    """How clients outside of the cluster reach each meta node."""

    type: Literal["LoadBalancer", "NodePort"]
    host: str = ""
    """Of a replica, whose number stands for `{replica}`. Empty: that of its load balancer."""
    annotations: dict[str, str] = field(default_factory=dict)
    """Of the Services, with the same `{replica}` in the values."""
    load_balancer_source_ranges: tuple[str, ...] = ()


class ConsoleIngress(CamelStruct, frozen=True, kw_only=True):
    """An Ingress to the console."""

    host: str
    tls_secret: str
    """The certificate that browsers see; a Secret of the same namespace, for the Ingress controller."""
    class_name: str = ""
    """Empty: the cluster's default."""
    annotations: dict[str, str] = field(default_factory=dict)


class ConsoleSection(CamelStruct, frozen=True, kw_only=True):
    """How browsers outside of the cluster reach the console."""

    namespace: str
    """Of the pods that bring them: of the Ingress controller, or of a Gateway."""
    ingress: ConsoleIngress | None = None
    """Without one, users route to the Service by themselves."""


class MetaSection(CamelStruct, frozen=True, kw_only=True):
    """The part of a `StateStore` about its meta nodes."""

    replicas: int = 1
    image: str = ""
    """Empty: the store's, or the operator's."""
    resources: ResourceRequirements | None = None
    config: dict[str, Any] = field(default_factory=dict)
    """Settings of the meta service by their names in the file, groups nested; those of the operator override them."""
    outside: OutsideSection | None = None
    console: ConsoleSection | None = None
    pod_template: PodTemplate = field(default_factory=dict)


class MetaSpec(MetaSection, frozen=True, kw_only=True):
    """Meta nodes and their store."""

    store_ref: StoreRef


class Meta(Resource, frozen=True, kw_only=True):
    """Meta nodes: one leads, the others follow and take over."""

    kind: ClassVar[str] = "Meta"

    spec: MetaSpec


def parse_meta(body: Mapping[str, Any]) -> Meta:
    """The body of a `Meta`; `InvalidResource` if it does not fit."""
    return parse(body, Meta)
