"""A store with TLS at an API server, and its meta node as a process behind forwarded ports."""

from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import NamedTuple

from support.operator.plugin.commands import Kubelets
from support.operator.process import Body, Objects
from support.operator.resources import DEFAULTS
from support.operator.stores_in_cluster import unprobed_store
from support.service.encrypted_meta import encrypted_meta
from support.service.meta_process import MetaProcess
from tussock.operator.certificates.renewal import renew_certificates
from tussock.operator.manifests.certificates import desired_certificates
from tussock.operator.manifests.labels import COMPONENT_LABEL, MANAGED_BY, MANAGED_BY_LABEL, STORE_LABEL
from tussock.operator.resources.store import StoreResource, parse_store

__all__ = ["EncryptedStore", "encrypted_store", "make_pod", "make_store"]


def make_pod(objects: Objects, name: str, ip: str, *, ready: bool = True, **labels: str) -> None:
    """A pod of a meta node of the store `s`, as operator and kubelet would have made it."""
    found = {MANAGED_BY_LABEL: MANAGED_BY, STORE_LABEL: "s", COMPONENT_LABEL: "meta", **labels}
    spec = {"containers": [{"name": "meta", "image": "localhost/tussock-node:test"}]}
    objects.apply({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name, "labels": found}, "spec": spec})
    held = [{"type": "Ready", "status": str(ready)}]
    objects.patch("Pod", name, {"status": {"podIP": ip, "podIPs": [{"ip": ip}], "conditions": held}}, "status")


class EncryptedStore(NamedTuple):
    """The store `s`, led by the pod `s-meta-0`."""

    meta: MetaProcess
    kubelets: Kubelets
    resource: StoreResource


def make_store(objects: Objects) -> tuple[StoreResource, list[Body]]:
    """The store `s`, and the secrets with its certificates, as the operator writes them."""
    objects.apply(unprobed_store("s", tls={"mode": "managed"}))
    objects.patch("StateStore", "s", {"status": {"leader": "s-meta-0"}}, "status")
    store = parse_store(objects.get("StateStore", "s") or {})
    made = list(renew_certificates(store, desired_certificates(store, (), DEFAULTS), {}, datetime.now(UTC)))
    for secret in made:
        objects.apply(secret)
    return store, made


@contextmanager
def encrypted_store(objects: Objects, folder: Path) -> Iterator[EncryptedStore]:
    """The store, and the meta node that leads it."""
    store, made = make_store(objects)
    make_pod(objects, "s-meta-0", "10.1.0.0")
    secrets = folder / "secrets"
    secrets.mkdir()
    with encrypted_meta({one["metadata"]["name"]: one["data"] for one in made}, store, secrets) as meta:
        kubelets = Kubelets(folder)
        ports = {7370: meta.address, 7371: meta.http}
        kubelets.know({f"s-meta-0:{port}": int(found.rpartition(":")[2]) for port, found in ports.items()})
        yield EncryptedStore(meta, kubelets, store)
