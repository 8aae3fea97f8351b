"""The certificates of a store: whether they are due, and issuing them.

What is due follows from the content of secrets, which the operator does not keep in memory. So it reads them when one
has changed, and once an hour.
"""

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from tussock.operator.certificates.renewing import first_end, is_due, renewed
from tussock.operator.cluster.applying import apply_child
from tussock.operator.cluster.errors import ApiNotFound
from tussock.operator.cluster.seen import Key
from tussock.operator.handlers.world import World
from tussock.operator.manifests.certificates import Certificate, ca_secret, desired_certificates
from tussock.operator.planning.ownership import holder_of
from tussock.operator.resources.store import StateStore

__all__ = ["CertificatesFact", "certificates_fact", "issue_certificates"]

LOOK_SECONDS = 3600.0
"""Certificates live for months."""


class CertificatesFact(NamedTuple):
    """How the certificates of a store are."""

    due: bool
    expire: str
    """When the first of them ends (RFC 3339); empty if there are none."""


def certificates_fact(world: World, store: StateStore, metas: Sequence[str]) -> CertificatesFact | None:
    """Whether certificates are due; `None` if nobody has looked, or if somebody else issues them."""
    if store.spec.tls.mode != "managed":
        return None
    wanted = desired_certificates(store, metas, world.defaults)
    found = [world.seen.get("Secret", store.namespace, name) for name in _names(store, wanted)]
    versions = tuple(body["metadata"].get("resourceVersion", "") if body else "" for body in found)

    async def run() -> CertificatesFact:
        secrets = await _secrets(world, store, wanted)
        ends = first_end(wanted, secrets)
        expire = ends.strftime("%Y-%m-%dT%H:%M:%SZ") if ends else ""
        return CertificatesFact(is_due(store, wanted, secrets, world.now()), expire)

    about = ("certificates", store.metadata.uid, wanted, versions)
    return world.probes.fact(Key("StateStore", store.namespace, store.name), about, run, LOOK_SECONDS)


async def issue_certificates(world: World, store: StateStore, arguments: Mapping[str, Any]) -> None:
    """Make and renew what is due, for the `Meta` objects called `metas`; the CA's secret is written first."""
    wanted = desired_certificates(store, arguments["metas"], world.defaults)
    secrets = await _secrets(world, store, wanted)
    for manifest in renewed(store, wanted, secrets, world.now()):
        world.seen.put("Secret", await apply_child(world.api, manifest, store.namespace, holder_of(store)))


async def _secrets(world: World, store: StateStore, wanted: Sequence[Certificate]) -> dict[str, dict[str, str]]:
    found = {}
    for name in _names(store, wanted):
        try:
            found[name] = (await world.api.get("Secret", store.namespace, name)).get("data") or {}
        except ApiNotFound:
            continue
    return found


def _names(store: StateStore, wanted: Sequence[Certificate]) -> list[str]:
    return [ca_secret(store), *(one.secret for one in wanted)]
