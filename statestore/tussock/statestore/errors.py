"""Every error that Tussock raises on purpose, grouped by what the caller should do.

A message names the thing, what was expected, what was found and what to do. The same facts ride along as
positional arguments, so an error survives pickling between processes (Spark sends errors from executors to the
driver). A new class exists only where a caller would act differently; `docs/errors.md` has the table.
"""

__all__ = [
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
    "SchemaMismatch",
    "SnapshotExpired",
    "StaleUpload",
    "StoreClosed",
    "TableExists",
    "TableNotFound",
    "TussockError",
    "WaitTimeout",
]


class TussockError(Exception):
    """Root of all errors of Tussock; catch it to catch them all.

    `args[0]` is the message; further arguments are the facts in it (epochs, positions, keys), for programs.
    """

    def __str__(self) -> str:
        return str(self.args[0]) if self.args else type(self).__name__


# --- Fix the call: the same call can never succeed. ------------------------------------------------------------


class InvalidBatch(TussockError, ValueError):
    """A batch breaks the rules of `ingest_batch`; nothing of it was stored."""


class SchemaMismatch(TussockError, TypeError):
    """Columns, types or keys do not fit the table's schema; nothing was stored."""


class InvalidOption(TussockError, ValueError):
    """An option, a store URL or an argument has a value that cannot work."""


class TableNotFound(TussockError, LookupError):
    """No table of that name in the store."""


class TableExists(TussockError, ValueError):
    """A table of that name is already there."""


class StoreClosed(TussockError, RuntimeError):
    """The store, snapshot or task was closed before the call."""


# --- Too late: take a new epoch or snapshot, then do it again. ---------------------------------------------------


class EpochTooOld(TussockError, ValueError):
    """The epoch was sealed, committed or given up by this client before."""


class EpochOutOfOrder(TussockError, ValueError):
    """An older epoch of this client is still open on the same table; commit or abort that one first."""


class SnapshotExpired(TussockError, LookupError):
    """The epoch is older than what the store still keeps."""


class Conflict(TussockError, RuntimeError):
    """Another writer committed to a table that this commit had read; read again and retry."""


# --- Try again: nothing is wrong with the call. ------------------------------------------------------------------


class ObjectStoreUnavailable(TussockError, OSError):
    """The object store did not do it within the deadline; the call is safe to repeat."""


class StaleUpload(TussockError, RuntimeError):
    """A commit names SSTs that were uploaded so long ago that vacuum may have taken them; upload them again."""


class WaitTimeout(TussockError, TimeoutError):
    """What was waited for did not happen in time."""


# --- Replaced: stop, never retry on this connection. -------------------------------------------------------------


class Fenced(TussockError, RuntimeError):
    """Another writer or node has taken over; this one can no longer change anything."""


# --- Bad data: stop and restore what the message names. ----------------------------------------------------------


class ObjectNotFound(TussockError, LookupError):
    """An object that was asked for is not in the bucket.

    Internal to the rooms: the store either reads a newer version that no longer names the object, or turns it
    into `CorruptSst` or `CorruptLog`.
    """


class CorruptObject(TussockError):
    """Bytes in the bucket are not what was written; the base of the two below."""


class CorruptSst(CorruptObject):
    """An SST's `.data` or `.meta` is damaged, missing or foreign."""


class CorruptLog(CorruptObject):
    """An entry, a snapshot or a marker of the version log is damaged, missing or foreign."""
