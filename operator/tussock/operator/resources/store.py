"""`StateStore`: the platform of one store, and everything that its components share."""

from collections.abc import Mapping
from typing import Any, ClassVar, Literal

from tussock.operator.resources.common import CamelStruct, Resource, parse
from tussock.operator.resources.compactor import CompactorSection
from tussock.operator.resources.meta import MetaSection
from tussock.operator.resources.object_store import ObjectStoreSpec

__all__ = [
    "CloneFrom",
    "CompactionSpec",
    "ImagesSpec",
    "IssuerRef",
    "RestoreFrom",
    "StateStoreSpec",
    "StoreResource",
    "TlsSpec",
    "UpgradeSpec",
    "parse_store",
]

PullPolicy = Literal["IfNotPresent", "Always", "Never"]


class CompactionSpec(CamelStruct, frozen=True, kw_only=True):
    """When and how to compact tables; omitted fields have the meta service's defaults (`docs/meta-service.md`)."""

    tasks_per_table: int | None = None
    stuck_seconds: float | None = None
    base_bytes: int | None = None
    level_ratio: int | None = None
    l0_merge_min: int | None = None
    l0_merge_max: int | None = None
    l0_runs_max: int | None = None
    l0_stall_runs: int | None = None
    task_bytes_max: int | None = None
    tombstone_percent: int | None = None


class IssuerRef(CamelStruct, frozen=True, kw_only=True):
    """An issuer of cert-manager."""

    name: str
    kind: str = "Issuer"
    group: str = "cert-manager.io"


class TlsSpec(CamelStruct, frozen=True, kw_only=True):
    """Encryption and certificates between nodes."""

    mode: Literal["none", "managed", "secret", "certManager"] = "managed"
    """`managed`: the operator's own CA; `secret`: the user's certificate; `certManager`: an issuer's certificates."""
    secret_name: str = ""
    """`secret`: has `tls.crt`, `tls.key` and `ca.crt`, for the service and for every client alike."""
    issuer_ref: IssuerRef | None = None


class ImagesSpec(CamelStruct, frozen=True, kw_only=True):
    """Images of this store's pods; empty: the operator's defaults."""

    node: str = ""
    spark: str = ""
    minio: str = ""
    pull_policy: PullPolicy = "IfNotPresent"
    pull_secrets: tuple[str, ...] = ()


class UpgradeSpec(CamelStruct, frozen=True, kw_only=True):
    """How pods of this store change to another image."""

    mode: Literal["", "Automatic", "Approve"] = ""
    """`Approve`: after somebody has named the image in an annotation; empty: the operator's default."""


class RestoreFrom(CamelStruct, frozen=True, kw_only=True):
    """A backup from which a new store starts: an object of this namespace, or by name in the bucket of its store."""

    backup: str = ""
    """A `StateStoreBackup` of this namespace."""
    backup_name: str = ""
    object_store: ObjectStoreSpec | None = None
    """With `backup_name`: the place of the store that was backed up."""


class CloneFrom(CamelStruct, frozen=True, kw_only=True):
    """A store of this namespace as whose clone a new one starts; both are in reach of the same credentials."""

    store: str
    backup_name: str = ""
    """Empty: the newest version."""


class StateStoreSpec(CamelStruct, frozen=True, kw_only=True):
    """The platform."""

    object_store: ObjectStoreSpec
    retention_seconds: float | None = None
    """Seconds for which epochs stay readable without a pin."""
    gc_grace_seconds: float | None = None
    """Vacuum leaves younger objects alone."""
    max_clock_ahead_seconds: float | None = None
    """How far an epoch, and a leader's clock, may be ahead of the bucket's clock."""
    compaction: CompactionSpec = CompactionSpec()
    tls: TlsSpec = TlsSpec()
    images: ImagesSpec = ImagesSpec()
    upgrade: UpgradeSpec = UpgradeSpec()
    paused: bool = False
    """The operator changes nothing of this store and its components."""
    deletion_policy: Literal["Retain", "Delete"] = "Retain"
    deletion_deadline_seconds: float = 120.0
    """Seconds after which a deletion that cannot clean up gives up."""
    network_policy: bool = True
    token_reviews: bool = False
    """Meta nodes ask the cluster's API whose tokens of service accounts are."""
    allowed_namespaces: tuple[str, ...] = ()
    """Other namespaces whose declared clients may name this store."""
    adopt: str = ""
    """The uid of the StateStore whose data in the bucket this one takes over, as a message has asked for."""
    restore_from: RestoreFrom | None = None
    clone_from: CloneFrom | None = None
    meta: MetaSection | None = None
    compactor: CompactorSection | None = None


class StoreResource(Resource, frozen=True, kw_only=True):
    """A store and its platform."""

    kind: ClassVar[str] = "StateStore"

    spec: StateStoreSpec


def parse_store(body: Mapping[str, Any]) -> StoreResource:
    """The body of a `StateStore`; `InvalidResource` if it does not fit."""
    return parse(body, StoreResource)
