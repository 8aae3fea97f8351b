"""Errors over the wire: each class of the store's errors has one gRPC status, and travels whole beside it.

The status is for proxies, dashboards and clients in other languages; Tussock's own client raises the very class that
the service raised, with its facts. `docs/errors.md` has the table.
"""

from collections.abc import Iterable

from tussock.meta.rpc import meta_pb2 as pb
from tussock.statestore import errors
from tussock.statestore.errors import TussockError

__all__ = [
    "DETAILS_BYTES_MAX",
    "ERROR_METADATA",
    "FAILED",
    "TOO_MANY_CALLS",
    "clip",
    "decode_error",
    "encode_error",
    "status_of",
    "status_of_kind",
]

ERROR_METADATA = "tussock-error-bin"
"""The trailing metadata that carries an `ErrorDetail`."""

FAILED = "the service failed"
"""How the text of status `INTERNAL` begins, where the service met an error that nobody had thought of."""

TOO_MANY_CALLS = "Concurrent RPC limit exceeded"
"""How the text of status `RESOURCE_EXHAUSTED` begins, where gRPC refused a call itself since there are too many."""

MESSAGE_BYTES_MAX = 2048
FACT_BYTES_MAX = 256
FACTS_MAX = 8
DETAILS_BYTES_MAX = 512
"""What a refused call was given may be in the error, and gRPC carries errors in metadata, of which it takes 8 KiB."""

_STATUS: dict[type[TussockError], str] = {
    errors.AccessDenied: "PERMISSION_DENIED",
    errors.Unauthenticated: "UNAUTHENTICATED",
    errors.BackupExists: "ALREADY_EXISTS",
    errors.BackupNotFound: "NOT_FOUND",
    errors.StoreNotEmpty: "FAILED_PRECONDITION",
    errors.StoreNotFound: "NOT_FOUND",
    errors.CheckpointAborted: "ABORTED",
    errors.ClockAhead: "FAILED_PRECONDITION",
    errors.Conflict: "ABORTED",
    errors.CorruptObject: "DATA_LOSS",
    errors.NewerFormat: "FAILED_PRECONDITION",
    errors.DuplicateName: "ALREADY_EXISTS",
    errors.EpochOutOfOrder: "FAILED_PRECONDITION",
    errors.EpochTooOld: "FAILED_PRECONDITION",
    errors.Fenced: "FAILED_PRECONDITION",
    errors.InvalidBatch: "INVALID_ARGUMENT",
    errors.InvalidOption: "INVALID_ARGUMENT",
    errors.MetaUnavailable: "UNAVAILABLE",
    errors.NotLeader: "FAILED_PRECONDITION",
    errors.ObjectNotFound: "DATA_LOSS",
    errors.ObjectStoreUnavailable: "UNAVAILABLE",
    errors.ProtocolMismatch: "UNIMPLEMENTED",
    errors.RateLimited: "RESOURCE_EXHAUSTED",
    errors.LimitReached: "RESOURCE_EXHAUSTED",
    errors.MessageTooLarge: "RESOURCE_EXHAUSTED",
    errors.SchemaMismatch: "INVALID_ARGUMENT",
    errors.SessionExpired: "FAILED_PRECONDITION",
    errors.SnapshotExpired: "OUT_OF_RANGE",
    errors.StaleUpload: "FAILED_PRECONDITION",
    errors.StoreClosed: "UNAVAILABLE",
    errors.TableExists: "ALREADY_EXISTS",
    errors.TableNotFound: "NOT_FOUND",
    errors.WaitTimeout: "DEADLINE_EXCEEDED",
    errors.WriteStalled: "UNAVAILABLE",
}


def status_of(error: TussockError) -> str:
    """The name of the gRPC status that goes with an error; subclasses take their parent's."""
    for kind in type(error).__mro__:
        if kind in _STATUS:
            return _STATUS[kind]
    return "UNKNOWN"


def status_of_kind(name: str) -> str:
    """The name of the gRPC status that goes with errors of a class, by its name."""
    return status_of(getattr(errors, name)("")) if name in errors.__all__ else "UNKNOWN"


def encode_error(error: TussockError) -> bytes:
    """The `ErrorDetail` of an error."""
    return pb.ErrorDetail(
        kind=type(error).__name__,
        message=clip(str(error), MESSAGE_BYTES_MAX),
        facts=list(_facts(error.args[1 : 1 + FACTS_MAX])),
    ).SerializeToString()


def clip(text: str, bytes_max: int) -> str:
    """The text, or the beginning of it that has `most` bytes, less a few for the sign that it goes on."""
    # A message has to be UTF-8, which half of a surrogate pair is not.
    data = text.encode(errors="backslashreplace")
    return data.decode() if len(data) <= bytes_max else data[: bytes_max - 4].decode(errors="ignore") + " ..."


def decode_error(data: bytes) -> TussockError:
    """The error in an `ErrorDetail`; a kind that is not known here comes as `TussockError`."""
    detail = pb.ErrorDetail.FromString(data)
    kind = getattr(errors, detail.kind, None) if detail.kind in errors.__all__ else None
    if kind is None:
        return TussockError(f"{detail.kind}: {detail.message}")
    facts = [getattr(fact, fact.WhichOneof("value") or "text") for fact in detail.facts]
    error: TussockError = kind(detail.message, *facts)
    return error


def _facts(values: Iterable[object]) -> Iterable[pb.Fact]:
    for value in values:
        if isinstance(value, int) and -(2**63) <= value < 2**63:
            yield pb.Fact(number=value)
        elif isinstance(value, bytes):
            yield pb.Fact(data=value[:FACT_BYTES_MAX])
        else:
            yield pb.Fact(text=clip(str(value), FACT_BYTES_MAX))
