"""A managed object store: one MinIO with one disk, for a store without its own bucket."""

from collections.abc import Mapping
from typing import Any

from tussock.operator.manifests.bucket_access import MINIO_PORT, BucketAccess, managed_name
from tussock.operator.manifests.labels import SPEC_ANNOTATION, Manifest, metadata, secret_data, selector
from tussock.operator.manifests.pod.pods import Main, Rendered, http_probe, node_template, requirements
from tussock.operator.manifests.pod.volumes import claim
from tussock.operator.manifests.settings import Defaults, image_note, minio_image
from tussock.operator.manifests.transport_security import Mounted
from tussock.operator.resources.object_store import ManagedStore
from tussock.operator.resources.store import StoreResource

__all__ = ["MINIO_KEYS", "SECRET_VERSION", "minio_manifests", "minio_secret"]

MINIO_KEYS = ("access-key-id", "secret-access-key")
"""The keys of the secret of a managed object store: its user and the password."""

SECRET_VERSION = "tussock.dev/secret-version"  # noqa: S105 - the name of an annotation
"""Annotation of the server's pods: a server reads user and password only when it starts."""

_DATA = "/data"
_ROOT = "/etc/tussock/minio"
_DRAIN_SECONDS = 10.0
_RESOURCES = {"requests": {"cpu": "100m", "memory": "256Mi"}, "limits": {"memory": "1Gi"}}


def minio_secret(store: StoreResource, user: str, password: str) -> Manifest:
    """The secret of a managed object store. Made once, with values that the caller drew; never again from a spec.

    It goes with the store even if the data stay, and a new one opens them: MinIO keeps this user nowhere else.
    """
    return {
        "apiVersion": "v1",
        "kind": "Secret",
        "metadata": metadata(store, managed_name(store), store.name, "minio"),
        "type": "Opaque",
        "data": secret_data(dict(zip(MINIO_KEYS, (user, password), strict=True))),
    }


def minio_manifests(store: StoreResource, managed: ManagedStore, defaults: Defaults, secret_version: str) -> Rendered:
    """StatefulSet, Service and claim; the secret is made apart (`minio_secret`), and the bucket by its client.

    Another `secret_version` restarts the server.
    """
    name, image = managed_name(store), minio_image(managed, store, defaults)
    disk: dict[str, Any] = {"emptyDir": {}} if managed.ephemeral else {"persistentVolumeClaim": {"claimName": name}}
    main = Main(
        component="minio",
        image=image,
        # Named, because images of MinIO differ in their entrypoints.
        command=("minio",),
        args=("server", _DATA, "--address", f":{MINIO_PORT}", "--quiet"),
        env=(
            {"name": "MINIO_ROOT_USER_FILE", "value": f"{_ROOT}/{MINIO_KEYS[0]}"},
            {"name": "MINIO_ROOT_PASSWORD_FILE", "value": f"{_ROOT}/{MINIO_KEYS[1]}"},
            {"name": "MINIO_BROWSER", "value": "off"},
        ),
        ports={"s3": MINIO_PORT},
        probes=_probes(),
        resources=requirements(managed.resources, _RESOURCES),
        drain_seconds=_DRAIN_SECONDS,
        access=BucketAccess(),
        tls=Mounted(),
        volumes=(
            {"name": "data", **disk},
            {"name": "root", "secret": {"secretName": name, "defaultMode": 0o440}},
        ),
        mounts=(
            {"name": "data", "mountPath": _DATA},
            {"name": "root", "mountPath": _ROOT, "readOnly": True},
        ),
        annotations={SECRET_VERSION: secret_version},
        # A StatefulSet makes no other one before it is gone: an eviction would only end a server that comes back.
        leaves_lost_nodes=False,
    )
    template, kept = node_template(store, store, main, managed.pod_template)
    found = [_service(store, name), _stateful_set(store, name, image, template, image_note(store, defaults, image))]
    if not managed.ephemeral:
        found.insert(0, claim(store, name, "minio", managed.size, managed.storage_class_name, ("ReadWriteOnce",)))
    return Rendered(tuple(found), kept)


def _stateful_set(
    store: StoreResource, name: str, image: str, template: Manifest, notes: Mapping[str, str]
) -> Manifest:
    return {
        "apiVersion": "apps/v1",
        "kind": "StatefulSet",
        # Not on the pods: a change of the spec that does not concern the server must not restart it.
        "metadata": {
            **metadata(store, name, store.name, "minio", image=image),
            "annotations": {SPEC_ANNOTATION: str(store.metadata.generation), **notes},
        },
        "spec": {
            # Two servers on one disk would destroy it; a StatefulSet never runs both.
            "replicas": 1,
            "serviceName": name,
            "revisionHistoryLimit": 3,
            "selector": {"matchLabels": selector(store, "minio")},
            "template": template,
        },
    }


def _service(store: StoreResource, name: str) -> Manifest:
    return {
        "apiVersion": "v1",
        "kind": "Service",
        "metadata": metadata(store, name, store.name, "minio"),
        "spec": {
            "type": "ClusterIP",
            "selector": selector(store, "minio"),
            "ports": [{"name": "s3", "port": MINIO_PORT, "targetPort": "s3", "protocol": "TCP"}],
        },
    }


def _probes() -> dict[str, Any]:
    def probe(path: str, period: int, failures: int) -> dict[str, Any]:
        return http_probe(path, tls=False, period=period, failures=failures, port="s3")

    return {
        "startupProbe": probe("/minio/health/live", 1, 120),
        "readinessProbe": probe("/minio/health/ready", 2, 3),
        "livenessProbe": probe("/minio/health/live", 10, 6),
    }
