"""Every error that Tussock raises on purpose, grouped by what the caller should do.

A message names the thing, what was expected, what was found and what to do. The same facts ride along as
positional arguments, so an error survives pickling between processes (Spark sends errors from executors to the
driver). A new class exists only where a caller would act differently; `docs/errors.md` has the table.
"""

__all__ = [
    "AccessDenied",
    "BackupExists",
    "BackupNotFound",
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
    "SchemaMismatch",
    "SessionExpired",
    "SnapshotExpired",
    "StaleUpload",
    "StoreClosed",
    "StoreNotEmpty",
    "StoreNotFound",
    "TableExists",
    "TableNotFound",
    "TussockError",
    "Unauthenticated",
    "WaitTimeout",
    "WriteStalled",
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


class StoreNotFound(InvalidOption):
    """No store is at the URL, and none is to be created."""


class TableNotFound(TussockError, LookupError):
    """No table of that name in the store."""


class TableExists(TussockError, ValueError):
    """A table of that name is already there."""


class BackupExists(TussockError, ValueError):
    """A backup of that name is already there; backups never change."""


class BackupNotFound(TussockError, LookupError):
    """No backup of that name in the store."""


class StoreNotEmpty(TussockError, ValueError):
    """A store is to be restored or cloned into a place that holds something else already."""


class DuplicateName(TussockError, ValueError):
    """A live compactor or participant has that name already."""


class LimitReached(TussockError, RuntimeError):
    """The store, or the meta service, has as many of something as it keeps."""


class MessageTooLarge(TussockError, ValueError):
    """A call is larger than the meta service takes."""


class ProtocolMismatch(TussockError, RuntimeError):
    """Client and meta service speak different versions of the protocol."""


class Unauthenticated(TussockError, PermissionError):
    """The meta service does not know who calls: no token or certificate, or one that it does not accept."""


class AccessDenied(TussockError, PermissionError):
    """The caller is known, and its role does not allow the call, or brings no credentials of the bucket."""


class StoreClosed(TussockError, RuntimeError):
    """The store, snapshot or task was closed before the call."""


class ClockAhead(TussockError, ValueError):
    """A clock, or an epoch, is further ahead of the bucket's clock than is allowed; nothing was stored."""


# --- Too late: take a new epoch or snapshot, then do it again. ---------------------------------------------------


class EpochTooOld(TussockError, ValueError):
    """The epoch was sealed, committed or given up by this client before."""


class EpochOutOfOrder(TussockError, ValueError):
    """An older epoch of this client is still open on the same table; commit or abort that one first."""


class SnapshotExpired(TussockError, LookupError):
    """The epoch is older than what the store still keeps."""


class Conflict(TussockError, RuntimeError):
    """Another writer committed to what this commit depends on, a table or a transaction's key; read again and retry."""


class CheckpointAborted(TussockError, RuntimeError):
    """What a participant wrote since the job's newest checkpoint is given up; go back there and go on."""


# --- Try again: nothing is wrong with the call. ------------------------------------------------------------------


class ObjectStoreUnavailable(TussockError, OSError):
    """The object store did not do it within the deadline; the call is safe to repeat."""

    nothing_written = False
    """It is sure that the request had no effect, as on a full disk; else it may still have happened."""


class StaleUpload(TussockError, RuntimeError):
    """A commit names SSTs whose upload is old enough for vacuum to have deleted them; upload them again."""


class WaitTimeout(TussockError, TimeoutError):
    """What was waited for did not happen in time."""


class MetaUnavailable(TussockError, ConnectionError):
    """No leader of the meta service answered within the deadline; the call is safe to repeat."""


class NotLeader(TussockError, RuntimeError):
    """This replica of the meta service does not lead.

    Internal to the rooms: the client goes to the leader, whose address is `args[1]` (empty if there is none yet).
    """


class RateLimited(TussockError, RuntimeError):
    """The caller made more calls than it may; wait as long as `args[1]` says, in milliseconds."""


class SessionExpired(TussockError, RuntimeError):
    """The meta service does not know the session (any more): it lapsed, or another leader has taken over.

    Internal to the rooms: the client opens its session again, with all that it holds.
    """


class WriteStalled(TussockError, TimeoutError):
    """Compaction is behind, and writes to a table had to wait for longer than the deadline."""


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


class NewerFormat(CorruptLog):
    """An object of the log is intact, and a newer release wrote it: this process is to be upgraded."""
