"""`StateStoreBackup`: a backup of a store, or a schedule of them."""

from collections.abc import Mapping
from typing import Any, ClassVar, Literal

from tussock.operator.resources.common import CamelStruct, Resource, StoreRef, parse
from tussock.operator.resources.object_store import ObjectStoreSpec

__all__ = ["BackupSpec", "DestinationSpec", "Retention", "StateStoreBackup", "parse_backup"]


class Retention(CamelStruct, frozen=True, kw_only=True):
    """Which backups of a schedule stay: those that either rule keeps."""

    count: int | None = None
    """The number of newest backups to keep."""
    seconds: float | None = None
    """The age below which backups are kept."""


class DestinationSpec(ObjectStoreSpec, frozen=True, kw_only=True):
    """A place in another bucket, and for how long copies stay there."""

    retention: Retention | None = None
    """`None`: a copy goes with its backup."""


class BackupSpec(CamelStruct, frozen=True, kw_only=True):
    """What to back up, and when."""

    store_ref: StoreRef
    schedule: str = ""
    """Five fields of cron; empty: once, now."""
    time_zone: str = "UTC"
    retention: Retention = Retention()
    comment: str = ""
    destination: DestinationSpec | None = None
    """A place in another bucket that each backup is copied to."""
    verify: bool = False
    """Each backup is read whole, in the destination if there is one."""
    suspend: bool = False
    deletion_policy: Literal["Retain", "Delete"] = "Retain"
    """Whether the backup goes with the object."""


class StateStoreBackup(Resource, frozen=True, kw_only=True):
    """A backup, or a schedule of them."""

    kind: ClassVar[str] = "StateStoreBackup"

    spec: BackupSpec


def parse_backup(body: Mapping[str, Any]) -> StateStoreBackup:
    """The body of a `StateStoreBackup`; `InvalidResource` if it does not fit."""
    return parse(body, StateStoreBackup)
