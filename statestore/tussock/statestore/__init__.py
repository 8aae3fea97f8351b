"""The state store: tables of versioned rows in a bucket, written epoch by epoch, read at any epoch that is kept.

`connect` opens a store; everything else is reached from what it returns. These names are the public API; the modules
beside are internal. Every error derives from `TussockError`.
"""

from tussock.statestore.client import StateStore, connect
from tussock.statestore.copies import clone, restore
from tussock.statestore.errors import (
    BackupExists,
    BackupNotFound,
    Conflict,
    CorruptLog,
    CorruptObject,
    CorruptSst,
    EpochOutOfOrder,
    EpochTooOld,
    Fenced,
    InvalidBatch,
    InvalidOption,
    ObjectNotFound,
    ObjectStoreUnavailable,
    SchemaMismatch,
    SnapshotExpired,
    StaleUpload,
    StoreClosed,
    StoreNotEmpty,
    TableExists,
    TableNotFound,
    TussockError,
    WaitTimeout,
)
from tussock.statestore.raw_table import RawTable
from tussock.statestore.snapshot import Snapshot
from tussock.statestore.typed_table import TypedTable

__all__ = [
    "BackupExists",
    "BackupNotFound",
    "Conflict",
    "CorruptLog",
    "CorruptObject",
    "CorruptSst",
    "EpochOutOfOrder",
    "EpochTooOld",
    "Fenced",
    "InvalidBatch",
    "InvalidOption",
    "ObjectNotFound",
    "ObjectStoreUnavailable",
    "RawTable",
    "SchemaMismatch",
    "Snapshot",
    "SnapshotExpired",
    "StaleUpload",
    "StateStore",
    "StoreClosed",
    "StoreNotEmpty",
    "TableExists",
    "TableNotFound",
    "TussockError",
    "TypedTable",
    "WaitTimeout",
    "clone",
    "connect",
    "restore",
]
