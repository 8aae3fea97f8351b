"""`Meta`: the meta nodes of a store."""

from collections.abc import Mapping
from typing import Any, ClassVar

from msgspec import field

from tussock.operator.resources.common import CamelStruct, PodTemplate, Resource, ResourceRequirements, StoreRef, parse

__all__ = ["Meta", "MetaSection", "MetaSpec", "parse_meta"]


class MetaSection(CamelStruct, frozen=True, kw_only=True):
    """The part of a `StateStore` about its meta nodes."""

    replicas: int = 1
    image: str = ""
    """Empty: the store's, or the operator's."""
    resources: ResourceRequirements | None = None
    config: dict[str, Any] = field(default_factory=dict)
    """Settings of the meta service by their names in the file, groups nested; those of the operator override them."""
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
