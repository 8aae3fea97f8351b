"""What the options of a runtime may be."""

from typing import Any

from tussock.compute.applications.arguments import check_seconds, is_name
from tussock.compute.functions.program.values import is_text
from tussock.statestore import InvalidOption
from tussock.statestore.buckets.urls import parse_bucket_url

__all__ = ["REQUEST_ID_MAX", "check_options", "check_workers", "checked_request_id", "is_request_id"]

EPOCH_MS_MAX = 60_000
EPOCH_TRANSACTIONS_MAX = 100_000
WORKERS_MAX = 64
TIMEOUT_LEAST = 0.001
"""Seconds: with less no function would end in time."""
REQUEST_ID_MAX = 200
"""Characters of a request's id."""


def check_options(
    name: Any,
    *,
    epoch_ms: Any,
    epoch_max: Any,
    conflicts: Any,
    lock_phase: Any,
    group_commit: Any,
    checkpoint: Any,
    timeout: Any,
    keep_replies: Any,
    cache_bytes: Any,
    input: Any,  # noqa: A002 - the public API's name
    workers: Any,
) -> None:
    """`InvalidOption` for the first that cannot be."""
    what = f"program {name!r:.120}"
    if not is_name(name):
        raise InvalidOption(
            f"{what} is no name; expected at most 100 letters, digits, '_' and '-', beginning with a letter or '_'"
        )
    if isinstance(epoch_ms, bool) or not isinstance(epoch_ms, int | float) or not 0 <= epoch_ms <= EPOCH_MS_MAX:
        raise InvalidOption(f"{what}: epoch_ms={epoch_ms!r:.100}; expected milliseconds from 0 to {EPOCH_MS_MAX:,}")
    if type(epoch_max) is not int or not 1 <= epoch_max <= EPOCH_TRANSACTIONS_MAX:
        raise InvalidOption(f"{what}: epoch_max={epoch_max!r:.100}; expected 1 to {EPOCH_TRANSACTIONS_MAX:,}")
    if type(lock_phase) is not bool:
        raise InvalidOption(f"{what}: lock_phase={lock_phase!r:.100}; expected True or False")
    if conflicts not in ("serializable", "reorder", "snapshot"):
        raise InvalidOption(f"{what}: conflicts={conflicts!r:.100}; expected 'serializable', 'reorder' or 'snapshot'")
    check_seconds(group_commit, f"{what}: group_commit", none=True)
    check_seconds(checkpoint, f"{what}: checkpoint", none=False)
    check_seconds(timeout, f"{what}: timeout", none=False)
    check_seconds(keep_replies, f"{what}: keep_replies", none=False)
    if timeout < TIMEOUT_LEAST:
        raise InvalidOption(f"{what}: timeout={timeout!r}; expected at least {TIMEOUT_LEAST} s")
    if type(cache_bytes) is not int or cache_bytes < 1 << 20:
        raise InvalidOption(f"{what}: cache_bytes={cache_bytes!r:.100}; expected at least 1 MiB")
    if input is not None:
        if not isinstance(input, str):
            raise InvalidOption(f"{what}: input={input!r:.100}; expected the URL of a place, or None")
        parse_bucket_url(input)
    check_workers(workers, 0, what)


def check_workers(workers: Any, least: int, what: str) -> None:
    """`InvalidOption` unless a program can have that many."""
    if type(workers) is not int or not least <= workers <= WORKERS_MAX:
        raise InvalidOption(f"{what}: workers={workers!r:.100}; expected {least} to {WORKERS_MAX}")


def checked_request_id(request_id: Any) -> str:
    """The id as plain text, as the log cannot have NumPy's; `InvalidOption` unless a request can have it."""
    if not is_request_id(request_id):
        raise InvalidOption(
            f"request_id={request_id!r:.100}; expected a string of 1 to {REQUEST_ID_MAX} characters, none of them half "
            "of a surrogate pair"
        )
    return str.__str__(request_id)


def is_request_id(given: Any) -> bool:
    """Whether a request can have that id: tables and the log keep it as UTF-8."""
    return isinstance(given, str) and 0 < len(given) <= REQUEST_ID_MAX and is_text(given)
