"""The state store: tables of versioned rows in a bucket, written epoch by epoch, read at any epoch that is kept.

`connect` opens a store; everything else is reached from what it returns. These names are the public API; the modules
beside are internal. Every error derives from `TussockError`.

What needs Arrow is imported when it is first asked for (PEP 562): the operator takes errors, clock and protocol from
here, and would otherwise hold Arrow and Polars in memory and in its image, without a table in its life.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

from tussock.statestore.errors import (
    AccessDenied,
    BackupExists,
    BackupNotFound,
    CheckpointAborted,
    ClockAhead,
    Conflict,
    CorruptLog,
    CorruptObject,
    CorruptSst,
    DuplicateName,
    EpochOutOfOrder,
    EpochTooOld,
    Fenced,
    InvalidBatch,
    InvalidOption,
    LimitReached,
    MessageTooLarge,
    MetaUnavailable,
    NewerFormat,
    NotLeader,
    ObjectNotFound,
    ObjectStoreUnavailable,
    ProtocolMismatch,
    RateLimited,
    SchemaMismatch,
    SessionExpired,
    SnapshotExpired,
    StaleUpload,
    StoreClosed,
    StoreNotEmpty,
    StoreNotFound,
    TableExists,
    TableNotFound,
    TussockError,
    Unauthenticated,
    WaitTimeout,
    WriteStalled,
)

if TYPE_CHECKING:
    from tussock.statestore.buckets.copies import clone, copy_backup, delete_copies, list_copies, restore, verify_backup
    from tussock.statestore.checkpoint.checkpoint import Checkpoint
    from tussock.statestore.client import StateStore
    from tussock.statestore.connection import connect
    from tussock.statestore.repairs import repair_clock
    from tussock.statestore.snapshot import Snapshot
    from tussock.statestore.tables.raw_table import RawTable
    from tussock.statestore.tables.typed_table import TypedTable
    from tussock.statestore.transactions.transaction import Transaction

__all__ = [
    "AccessDenied",
    "BackupExists",
    "BackupNotFound",
    "Checkpoint",
    "CheckpointAborted",
    "ClockAhead",
    "Conflict",
    "CorruptLog",
    "CorruptObject",
    "CorruptSst",
    "DuplicateName",
    "EpochOutOfOrder",
    "EpochTooOld",
    "Fenced",
    "InvalidBatch",
    "InvalidOption",
    "LimitReached",
    "MessageTooLarge",
    "MetaUnavailable",
    "NewerFormat",
    "NotLeader",
    "ObjectNotFound",
    "ObjectStoreUnavailable",
    "ProtocolMismatch",
    "RateLimited",
    "RawTable",
    "SchemaMismatch",
    "SessionExpired",
    "Snapshot",
    "SnapshotExpired",
    "StaleUpload",
    "StateStore",
    "StoreClosed",
    "StoreNotEmpty",
    "StoreNotFound",
    "TableExists",
    "TableNotFound",
    "Transaction",
    "TussockError",
    "TypedTable",
    "Unauthenticated",
    "WaitTimeout",
    "WriteStalled",
    "clone",
    "connect",
    "copy_backup",
    "delete_copies",
    "list_copies",
    "repair_clock",
    "restore",
    "verify_backup",
]

_MODULES = {
    "Checkpoint": "checkpoint.checkpoint",
    "RawTable": "tables.raw_table",
    "Snapshot": "snapshot",
    "StateStore": "client",
    "Transaction": "transactions.transaction",
    "TypedTable": "tables.typed_table",
    "clone": "buckets.copies",
    "connect": "connection",
    "copy_backup": "buckets.copies",
    "delete_copies": "buckets.copies",
    "list_copies": "buckets.copies",
    "repair_clock": "repairs",
    "restore": "buckets.copies",
    "verify_backup": "buckets.copies",
}


def __dir__() -> list[str]:
    """The public names, also those whose modules are not loaded yet."""
    return [*__all__]


def __getattr__(name: str) -> Any:
    """A public name whose module is not loaded yet; raises `AttributeError` for a name that is none."""
    if name not in _MODULES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value = getattr(import_module(f"{__name__}.{_MODULES[name]}"), name)
    globals()[name] = value  # the next look-up finds it without this function
    return value
