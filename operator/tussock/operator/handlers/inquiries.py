"""Facts about a store's bucket and platform: which probe runs, how often, and with which credentials.

Credentials are read from their secret when a probe runs, and kept nowhere.
"""

import base64
from collections.abc import Hashable, Mapping
from dataclasses import replace

from tussock.operator.cluster.errors import ApiError, ApiNotFound
from tussock.operator.cluster.seen import Key
from tussock.operator.handlers.world import World
from tussock.operator.manifests.bucket_access import (
    bucket_secret,
    managed_name,
    minio_endpoint,
    operator_looks_into,
    reader_secret,
    secrets_of_bucket,
    volume_claim,
)
from tussock.operator.manifests.meta import meta_address
from tussock.operator.manifests.transport_security import Identity, has_tls, server_name, tls_secret
from tussock.operator.planning.deletion import EmptiedFact
from tussock.operator.planning.words.conditions import Reason, is_serving
from tussock.operator.planning.words.facts import LASTING_TIMES, BucketFact, PlatformFact
from tussock.operator.planning.words.model import Ref
from tussock.operator.planning.words.ownership import belongs, holder_of, name_in_use_message
from tussock.operator.probes.bucket import S3Target, check, check_readers, clean
from tussock.operator.probes.claim import claim_problem
from tussock.operator.probes.cloud import CloudTarget, check_cloud, clean_cloud
from tussock.operator.probes.disk import used_percent
from tussock.operator.probes.marker import Owner
from tussock.operator.probes.platform import Certificates, ask
from tussock.operator.resources.object_store import (
    MANAGED_BUCKET,
    AzureStore,
    ManagedStore,
    S3Store,
    VolumeStore,
    bucket_url,
)
from tussock.operator.resources.store import StoreResource

__all__ = [
    "CertificatesUnreadable",
    "SecretUnusable",
    "bucket_fact",
    "certificates_of",
    "disk_fact",
    "emptied_fact",
    "platform_fact",
    "returned_fact",
]

GOOD_SECONDS = 30.0
"""A usable bucket is checked again this often, by the next pass after that."""
BAD_SECONDS = 8.0
OWN_BAD_SECONDS = 1.0
"""A managed object store is asked once its server is ready; then only its Service can be a moment behind."""
PLATFORM_SECONDS = 10.0
DISK_SECONDS = 30.0
CLEANING_SECONDS = 4.0


class SecretUnusable(Exception):
    """A secret has a value that cannot be a key; the message names the secret and its key, and not the value."""


class CertificatesUnreadable(Exception):
    """The operator has no certificate for requests to a store's meta nodes; the message says why."""


def bucket_fact(world: World, store: StoreResource) -> BucketFact | None:
    """Whether the store's bucket is usable; `None` before the first probe, or while its own server is not ready."""
    backend = store.spec.object_store.backend
    if isinstance(backend, VolumeStore):
        return _claim_fact(world, store, backend)
    if not operator_looks_into(store):
        return BucketFact(None)
    if isinstance(backend, ManagedStore) and not _serves(world, store):
        # It would not answer now, and the next question would come some seconds after it could.
        return None
    owner, about = _key(store), ("bucket", *_place(world, store))
    last: BucketFact | None = world.probes.latest_fact(owner, about)
    # Only a write shows that a bucket is full; and a missing leader may be a sign of that.
    good = last is not None and last.reason is None and not _is_leaderless(world, store)

    async def run() -> BucketFact:
        try:
            target = await _target(world, store)
            readers = None if good else await _readers_target(world, store, target)
        except ApiError as error:
            return BucketFact(Reason.SECRET_NOT_FOUND, f"The operator cannot read the secret of the bucket: {error}")
        except SecretUnusable as error:
            return BucketFact(Reason.SECRET_VALUE_INVALID, str(error))
        if isinstance(target, CloudTarget):
            return await world.probes.call_in_thread(
                check_cloud, target, _owner(store), store.spec.adopt, world.system, write=not good
            )
        about_store = target, _owner(store), store.spec.adopt
        if readers is not None:
            # Before the marker is put: a store that is refused must not keep others out by it.
            fact = await world.probes.call_in_thread(check, *about_store, write=False, mark=False)
            if fact.reason is None:
                fact = await world.probes.call_in_thread(check_readers, readers, target, store.metadata.uid)
            if fact.reason is not None:
                return fact
        return await world.probes.call_in_thread(check, *about_store, write=not good)

    bad_seconds = OWN_BAD_SECONDS if isinstance(backend, ManagedStore) else BAD_SECONDS
    return world.probes.fact(owner, about, run, GOOD_SECONDS if good else bad_seconds)


def disk_fact(world: World, store: StoreResource) -> int | None:
    """How full the disk of a managed object store is, in percent; `None` for other stores, or if it is not known."""
    backend = store.spec.object_store.backend
    if not isinstance(backend, ManagedStore) or backend.ephemeral or not _serves(world, store):
        return None
    owner, about = _key(store), ("disk", *_place(world, store))

    async def run() -> int | None:
        try:
            target = await _target(world, store)
        except (ApiError, SecretUnusable):
            return None  # the probe of the bucket says so
        assert isinstance(target, S3Target)
        return await world.probes.call_in_thread(used_percent, target)

    return world.probes.fact(owner, about, run, DISK_SECONDS)


def _is_leaderless(world: World, store: StoreResource) -> bool:
    """Whether the store's meta nodes have had a leader and no longer serve."""
    metas = [
        body for body in world.seen.all_of("Meta", store.namespace) if body["spec"]["storeRef"]["name"] == store.name
    ]
    return any("term" in (body.get("status") or {}) and not is_serving(body) for body in metas)


def emptied_fact(world: World, store: StoreResource) -> EmptiedFact | None:
    """Clean up in the bucket of a store that is being deleted, and return the progress."""

    async def run() -> EmptiedFact:
        ends = await _is_namespace_ending(world, store.namespace)
        if ends and isinstance(store.spec.object_store.backend, ManagedStore):
            # Server and disk go with the namespace, whatever the deletion policy is.
            return EmptiedFact(done=True)
        try:
            target = await _target(world, store)
        except ApiNotFound as error:
            told = f"The secret of the bucket is gone: {error}"
            return EmptiedFact(done=False, message=told, stuck=True, hopeless=ends)
        except ApiError as error:
            return EmptiedFact(
                done=False, message=f"The operator cannot read the secret of the bucket: {error}", stuck=True
            )
        except SecretUnusable as error:
            return EmptiedFact(done=False, message=str(error), stuck=True)
        delete = store.spec.deletion_policy == "Delete"
        if isinstance(target, CloudTarget):
            return await world.probes.call_in_thread(clean_cloud, target, _owner(store), world.system, delete=delete)
        return await world.probes.call_in_thread(clean, target, _owner(store), world.system, delete=delete)

    if not operator_looks_into(store):
        return _untouched_fact(store)
    return world.probes.fact(_key(store), ("emptied", *_place(world, store)), run, CLEANING_SECONDS)


def returned_fact(world: World, store: StoreResource) -> EmptiedFact | None:
    """Remove the marker of a store that never had the place to itself, if it is the store's own, and nothing else."""

    async def run() -> EmptiedFact:
        try:
            target = await _target(world, store)
        except (ApiError, SecretUnusable) as error:
            return EmptiedFact(done=False, message=str(error), stuck=True)
        if isinstance(target, CloudTarget):
            return await world.probes.call_in_thread(clean_cloud, target, _owner(store), world.system, delete=False)
        return await world.probes.call_in_thread(clean, target, _owner(store), world.system, delete=False)

    if not operator_looks_into(store):
        return EmptiedFact(done=True)
    return world.probes.fact(_key(store), ("returned", *_place(world, store)), run, CLEANING_SECONDS)


def _untouched_fact(store: StoreResource) -> EmptiedFact:
    """The fact for a bucket that the operator never reached: nothing to clean up, and no marker either."""
    if store.spec.deletion_policy == "Retain":
        return EmptiedFact(done=True)
    told = (
        f"the operator has no credentials for {bucket_url(store.spec.object_store)}, so there is no marker that "
        "shows which store its objects belong to. They stay; delete them by hand."
    )
    return EmptiedFact(done=False, message=told, stuck=True, hopeless=True)


def _claim_fact(world: World, store: StoreResource, volume: VolumeStore) -> BucketFact | None:
    """Whether a claim can hold a store; only the nodes can see whether its volume is writable."""
    name = volume_claim(store)

    async def run() -> BucketFact:
        try:
            if volume.claim_name:
                return claim_problem(await world.api.get("PersistentVolumeClaim", store.namespace, name))
            found = await world.api.look("PersistentVolumeClaim", store.namespace, name)
        except ApiNotFound:
            told = f"There is no PersistentVolumeClaim {name} in namespace {store.namespace}; create it."
            return BucketFact(Reason.BUCKET_NOT_FOUND, told)
        except ApiError as error:
            return BucketFact(
                Reason.BUCKET_UNREACHABLE, f"The operator cannot read PersistentVolumeClaim {name}: {error}"
            )
        if found is None or belongs(found, holder_of(store)):
            return BucketFact(None)
        # Nodes are pods of other plans, and would mount whatever has the name.
        told = name_in_use_message(Ref("PersistentVolumeClaim", name), store.namespace, holder_of(store))
        return BucketFact(Reason.NAME_IN_USE, told)

    return world.probes.fact(_key(store), ("claim", store.metadata.uid, name), run, BAD_SECONDS)


async def _is_namespace_ending(world: World, name: str) -> bool:
    """Whether a namespace is being deleted, so that nothing more can be made in it."""
    try:
        return bool((await world.api.get("Namespace", None, name))["metadata"].get("deletionTimestamp"))
    except ApiError:
        # Without the right to ask, a deletion only takes until its deadline.
        return False


def platform_fact(world: World, store: StoreResource, meta: str) -> PlatformFact | None:
    """What the meta nodes of the `Meta` of that name report; `None` before the first answer."""
    address, secret = meta_address(meta, store.namespace), tls_secret(store, "client-reader")
    about = ("platform", address, _version(world, store.namespace, secret))
    owner = Key("Meta", store.namespace, meta)

    async def run() -> PlatformFact:
        try:
            certificates = await certificates_of(world, store, "client-reader")
        except CertificatesUnreadable as error:
            return PlatformFact(problem=str(error))
        found = await world.probes.call_in_thread(ask, address, certificates, server_name(store))
        if found.leader:
            return found
        before: PlatformFact | None = world.probes.latest_fact(owner, about)
        return found._replace(times=min((before.times if before is not None else 0) + 1, LASTING_TIMES))

    return world.probes.fact(owner, about, run, PLATFORM_SECONDS)


async def certificates_of(world: World, store: StoreResource, identity: Identity) -> Certificates | None:
    """The certificates for requests to the meta nodes of `store` as that client; `None` without TLS.

    Raises `CertificatesUnreadable` with the reason if they cannot be read.
    """
    if not has_tls(store):
        return None
    secret = tls_secret(store, identity)
    try:
        data = (await world.api.get("Secret", store.namespace, secret)).get("data") or {}
        return Certificates(*(base64.b64decode(data[name]) for name in ("ca.crt", "tls.crt", "tls.key")))
    except ApiError as error:
        raise CertificatesUnreadable(f"The operator cannot read the certificate for its requests: {error}") from error
    except KeyError as error:
        raise CertificatesUnreadable(f"Secret {secret} has no key {error.args[0]}.") from error


async def _target(world: World, store: StoreResource) -> S3Target | CloudTarget:
    backend = store.spec.object_store.backend
    credentials = bucket_secret(store)
    settings = {} if credentials is None else await _settings_in(world, store.namespace, *credentials)
    if not isinstance(backend, S3Store | ManagedStore):
        if isinstance(backend, AzureStore):
            settings["AZURE_STORAGE_ACCOUNT_NAME"] = backend.account
        return CloudTarget(bucket_url(store.spec.object_store), settings)
    access, secret = settings.get("AWS_ACCESS_KEY_ID", ""), settings.get("AWS_SECRET_ACCESS_KEY", "")
    if isinstance(backend, ManagedStore):
        endpoint = minio_endpoint(store)
        return S3Target(endpoint, MANAGED_BUCKET, "", "us-east-1", access, secret, create=True)
    region = backend.region or ("" if backend.endpoint else "us-east-1")
    endpoint = backend.endpoint or f"https://s3.{region}.amazonaws.com"
    return S3Target(endpoint, backend.bucket, backend.prefix.strip("/"), region, access, secret)


async def _readers_target(world: World, store: StoreResource, target: S3Target | CloudTarget) -> S3Target | None:
    """The same bucket with the key pair for readers; `None` if there is no such pair."""
    credentials = reader_secret(store)
    if credentials is None or isinstance(target, CloudTarget):
        return None
    settings = await _settings_in(world, store.namespace, *credentials)
    return replace(target, access_key=settings["AWS_ACCESS_KEY_ID"], secret_key=settings["AWS_SECRET_ACCESS_KEY"])


async def _settings_in(world: World, namespace: str, secret: str, keys: Mapping[str, str]) -> dict[str, str]:
    """The values of a secret, by the names of settings."""
    data = (await world.api.get("Secret", namespace, secret)).get("data") or {}
    found = {}
    for setting, key in keys.items():
        value = base64.b64decode(data.get(key, "")).decode(errors="replace").strip()
        if wrong := _flaw(setting, value):
            raise SecretUnusable(f"The value of {key} in Secret {secret} {wrong}. Correct it in the Secret.")
        found[setting] = value
    return found


def _flaw(setting: str, value: str) -> str:
    """Why a value cannot be that setting; empty if it can. White space at its ends does not count, as in the nodes."""
    if not value:
        return "is empty"
    if setting == "GOOGLE_SERVICE_ACCOUNT_KEY":
        return ""  # JSON on many lines
    if "\n" in value or "\r" in value:
        return "has several lines, and a key is one"
    if not (value.isascii() and value.isprintable()):
        return "has characters that no key has: other than ASCII, or unprintable ones"
    return ""


def _serves(world: World, store: StoreResource) -> bool:
    """Whether the server of a managed object store is ready."""
    workload = world.seen.get("StatefulSet", store.namespace, managed_name(store))
    return workload is not None and bool((workload.get("status") or {}).get("readyReplicas"))


def _place(world: World, store: StoreResource) -> tuple[Hashable, ...]:
    """Everything that an answer of the bucket depends on: its place, the version of its secret, and what is adopted."""
    backend = store.spec.object_store.backend
    versions = tuple(_version(world, store.namespace, secret.name) for secret in secrets_of_bucket(store))
    # Structs that contain lists cannot be hashed; their text can.
    return store.metadata.uid, repr(backend), versions, store.spec.adopt


def _version(world: World, namespace: str, secret: str) -> str:
    found = world.seen.get("Secret", namespace, secret)
    return str(found["metadata"].get("resourceVersion", "")) if found else ""


def _key(store: StoreResource) -> Key:
    return Key("StateStore", store.namespace, store.name)


def _owner(store: StoreResource) -> Owner:
    return Owner(store.metadata.uid, store.namespace, store.name)
