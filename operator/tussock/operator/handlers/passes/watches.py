"""The use of kopf: it watches the cluster, and changes nothing.

In kopf's own model a handler is called for each difference between a spec and the one that it handled last, which it
keeps in annotations. Our model looks at the present state, however it came about, so it uses only two of kopf's hooks:

- an index, which kopf fills with all objects of all kinds before it calls anything else: so no pass ever sees half the
  cluster and believes that the other half is missing;
- events, each of which only wakes the resources that depend on it.

kopf never writes a finalizer, annotation or status. Children and their pods are watched by our label, on the server's
side; secrets are all watched except Helm's, since users name their own, with only names, keys and versions kept.
"""

from collections.abc import Iterator, Mapping
from typing import Any

import kopf

from tussock.operator.cluster.kinds import CHILDREN, KINDS, RESOURCES, Kind, selectors_of
from tussock.operator.handlers.passes.wakeups import concerned_keys
from tussock.operator.handlers.world import World

__all__ = ["kopf_settings", "registry_of", "watched_kinds"]

REQUEST_SECONDS = 20.0
LISTED_AT_ONCE = 20
"""Objects in one page, at the start: a secret may have a megabyte, and only its name and keys are kept."""


class _Pauses:
    """Seconds between kopf's repetitions of a request: they never end.

    A watch that gave up would leave the operator blind for one kind of objects, and a new process could neither bring
    the API server back nor get a missing right. Each attempt is logged.
    """

    def __iter__(self) -> Iterator[float]:
        yield from (0.5, 1.0, 2.0, 4.0)
        while True:
            yield 8.0


def watched_kinds(*, certificates: bool) -> dict[str, Kind]:
    """The kinds that are watched; `certificates`: cert-manager is in the cluster."""
    names = [*RESOURCES, *CHILDREN, "Secret", *(["Certificate"] if certificates else [])]
    return {name: KINDS[name] for name in names}


def kopf_settings(kinds: Mapping[str, Kind], *, clusterwide: bool) -> kopf.OperatorSettings:
    """The settings with which kopf speaks to the API server."""
    settings = kopf.OperatorSettings()
    settings.networking.request_timeout = REQUEST_SECONDS
    settings.networking.connect_timeout = REQUEST_SECONDS
    settings.networking.error_backoffs = _Pauses()
    settings.watching.chunk_size = LISTED_AT_ONCE
    settings.posting.enabled = False
    settings.peering.standalone = True
    # Without rights on the whole cluster, kopf can watch neither its CRDs nor its namespaces.
    settings.scanning.disabled = not clusterwide
    settings.process.ultimate_exiting_timeout = 30.0
    # Our own queue merges events of one object that come at once.
    settings.queueing.idle_timeout = 1.0
    settings.queueing.exit_timeout = 0.5
    for name, kind in kinds.items():
        place, asked = (kind.group, kind.version, kind.plural), selectors_of(name)
        if asked.labels:
            settings.watching.label_selectors[place] = asked.labels
        if asked.fields:
            settings.watching.field_selectors[place] = asked.fields
    return settings


def registry_of(world: World, kinds: Mapping[str, Kind]) -> kopf.OperatorRegistry:
    """The handlers of all watched kinds, for `kopf.operator(registry=...)`."""
    registry = kopf.OperatorRegistry()
    kopf.on.login(registry=registry, errors=kopf.ErrorsMode.TEMPORARY, backoff=5.0)(kopf.login_via_client)
    for name, kind in kinds.items():
        _register(registry, world, name, kind)
    return registry


def _register(registry: kopf.OperatorRegistry, world: World, name: str, kind: Kind) -> None:
    async def see(*, body: kopf.Body, **_: Any) -> None:
        world.seen.put(name, dict(body))

    async def hear(*, type: str | None, body: kopf.Body, **_: Any) -> None:  # noqa: A002 - kopf's name for it
        if type == "DELETED":
            world.seen.drop(name, dict(body))
        for key in concerned_keys(world.seen, name, body):
            world.wake(key)

    index = kopf.index(
        group=kind.group, version=kind.version, plural=kind.plural, id=f"see-{kind.plural}", registry=registry
    )
    event = kopf.on.event(
        group=kind.group, version=kind.version, plural=kind.plural, id=f"hear-{kind.plural}", registry=registry
    )
    index(see)
    event(hear)
