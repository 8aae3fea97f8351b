"""`Compactor`: compactor nodes of a store."""

from collections.abc import Mapping
from typing import Any, ClassVar

from msgspec import field

from tussock.operator.resources.common import CamelStruct, PodTemplate, Resource, ResourceRequirements, StoreRef, parse

__all__ = ["Compactor", "CompactorSection", "CompactorSpec", "parse_compactor"]


class CompactorSection(CamelStruct, frozen=True, kw_only=True):
    """The part of a `StateStore` about its compactors."""

    replicas: int = 1
    slots: int = 1
    """Processes of a node, each of which keeps a core busy."""
    image: str = ""
    """Empty: the store's, or the operator's."""
    memory_bytes: int | None = None
    """For all slots of a node together; none: from the memory limit of its container, if that has one."""
    resources: ResourceRequirements | None = None
    pod_template: PodTemplate = field(default_factory=dict)


class CompactorSpec(CompactorSection, frozen=True, kw_only=True):
    """Compactors and their store."""

    store_ref: StoreRef


class Compactor(Resource, frozen=True, kw_only=True):
    """Compactor nodes: they hold no data, so any number of them may come and go."""

    kind: ClassVar[str] = "Compactor"

    spec: CompactorSpec


def parse_compactor(body: Mapping[str, Any]) -> Compactor:
    """The body of a `Compactor`; `InvalidResource` if it does not fit."""
    return parse(body, Compactor)
