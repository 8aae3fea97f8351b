"""The certificates of a store and of its clients: checks whether they are due, and issues them.

Whether one is due depends on the content of secrets, which the operator does not keep in memory. So it reads them when
one has changed, and once an hour.
"""

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from tussock.operator.certificates.renewal import (
    first_end,
    is_due,
    is_own_due,
    renew_certificates,
    renew_own_certificate,
)
from tussock.operator.cluster.application import apply_child
from tussock.operator.cluster.errors import ApiNotFound
from tussock.operator.cluster.seen import Key
from tussock.operator.handlers.world import World
from tussock.operator.manifests.certificates import Certificate, ca_secret, desired_certificates
from tussock.operator.planning.certificates import first_end_of
from tussock.operator.planning.words.model import Manifest, Ref, stamp
from tussock.operator.planning.words.ownership import holder_of
from tussock.operator.resources.common import Resource
from tussock.operator.resources.store import StoreResource

__all__ = [
    "CertificatesFact",
    "certificates_end",
    "certificates_fact",
    "issue_certificates",
    "issue_own_certificate",
    "own_certificate_fact",
]

LOOK_SECONDS = 3600.0
"""Certificates live for months."""


class CertificatesFact(NamedTuple):
    """The state of the certificates of a store, or of a client."""

    due: bool
    expire: str
    """When the first of them ends (RFC 3339); empty if there are none."""


def certificates_end(
    store: StoreResource,
    found: CertificatesFact | None,
    status: Mapping[str, Any],
    children: Mapping[Ref, Manifest],
) -> str:
    """When the first certificate of a store, or of a client of it, ends (RFC 3339); empty if that is not known.

    `found` is the newest look at secrets. Before the first one, and while one that has changed is looked at, the
    status keeps what it has: an operator that starts changes no status.
    """
    if store.spec.tls.mode != "managed":
        return first_end_of(children)
    return found.expire if found is not None else str(status.get("certificatesExpireTime", ""))


def certificates_fact(
    world: World, store: StoreResource, metas: Sequence[str], hosts: Sequence[str]
) -> CertificatesFact | None:
    """Whether certificates are due; `None` if that is not known yet, or if the operator does not issue them."""
    if store.spec.tls.mode != "managed":
        return None
    wanted = desired_certificates(store, metas, world.defaults, hosts)
    names = _names(store, wanted)

    async def run() -> CertificatesFact:
        secrets = await _secrets(world, store.namespace, names)
        ends = first_end(wanted, secrets)
        expire = stamp(ends) if ends else ""
        return CertificatesFact(is_due(store, wanted, secrets, world.now()), expire)

    about = ("certificates", store.metadata.uid, wanted, _versions(world, store.namespace, names))
    return world.probes.fact(Key("StateStore", store.namespace, store.name), about, run, LOOK_SECONDS)


async def issue_certificates(world: World, store: StoreResource, arguments: Mapping[str, Any]) -> None:
    """Make and renew what is due for the `Meta` objects named in `metas`, with their `hosts` outside; the CA first."""
    wanted = desired_certificates(store, arguments["metas"], world.defaults, arguments["hosts"])
    secrets = await _secrets(world, store.namespace, _names(store, wanted))
    for manifest in renew_certificates(store, wanted, secrets, world.now()):
        world.seen.put("Secret", await apply_child(world.api, manifest, store.namespace, holder_of(store)))


def own_certificate_fact(
    world: World, owner: Resource, store: StoreResource, wanted: Certificate
) -> CertificatesFact | None:
    """Whether to issue the certificate of a job, a service or a declared client.

    `None` if the operator does not issue it, or before the first look.
    """
    if store.spec.tls.mode != "managed":
        return None

    async def run() -> CertificatesFact:
        secrets = await _own_secrets(world, owner, store, wanted)
        ends = first_end((wanted,), secrets)
        return CertificatesFact(is_own_due(store, wanted, secrets, world.now()), stamp(ends) if ends else "")

    versions = (
        *_versions(world, store.namespace, [ca_secret(store)]),
        *_versions(world, owner.namespace, [wanted.secret]),
    )
    about = ("certificate", owner.metadata.uid, wanted, versions)
    return world.probes.fact(Key(owner.kind, owner.namespace, owner.name), about, run, LOOK_SECONDS)


async def issue_own_certificate(world: World, owner: Resource, store: StoreResource, wanted: Certificate) -> None:
    """Make or renew the certificate of a job, a service or a declared client; does nothing while its store has no CA.

    The Secret is the owner's, or there is none: what belongs to somebody else is not overwritten (`apply_child`).
    """
    if store.spec.tls.mode != "managed":
        return
    secrets = await _own_secrets(world, owner, store, wanted)
    manifest = renew_own_certificate(owner, store, wanted, secrets, world.now())
    if manifest is not None:
        made = await apply_child(world.api, manifest, owner.namespace, holder_of(owner))
        world.seen.put("Secret", made)


async def _own_secrets(
    world: World, owner: Resource, store: StoreResource, wanted: Certificate
) -> dict[str, dict[str, str]]:
    """The CA of the store, and what its client has, perhaps in another namespace."""
    own = await _secrets(world, owner.namespace, [wanted.secret])
    return own | await _secrets(world, store.namespace, [ca_secret(store)])


def _versions(world: World, namespace: str, names: Sequence[str]) -> tuple[str, ...]:
    found = [world.seen.get("Secret", namespace, name) for name in names]
    return tuple(body["metadata"].get("resourceVersion", "") if body else "" for body in found)


async def _secrets(world: World, namespace: str, names: Sequence[str]) -> dict[str, dict[str, str]]:
    found = {}
    for name in names:
        try:
            found[name] = (await world.api.get("Secret", namespace, name)).get("data") or {}
        except ApiNotFound:
            continue
    return found


def _names(store: StoreResource, wanted: Sequence[Certificate]) -> list[str]:
    return [ca_secret(store), *(one.secret for one in wanted)]
