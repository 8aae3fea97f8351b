"""What the options of a runtime may be."""

import re
from typing import Any

from tussock.compute.applications.arguments import check_seconds
from tussock.statestore import InvalidOption

__all__ = ["check_options", "check_workers"]

_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_-]{0,99}")
EPOCH_MS_MAX = 60_000
EPOCH_TRANSACTIONS_MAX = 100_000
WORKERS_MAX = 64


def check_options(
    name: Any,
    *,
    epoch_ms: Any,
    epoch_max: Any,
    conflicts: Any,
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
    if not isinstance(name, str) or not _NAME.fullmatch(name):
        raise InvalidOption(
            f"{what} is no name; expected at most 100 letters, digits, '_' and '-', beginning with a letter"
        )
    if isinstance(epoch_ms, bool) or not isinstance(epoch_ms, int | float) or not 0 <= epoch_ms <= EPOCH_MS_MAX:
        raise InvalidOption(f"{what}: epoch_ms={epoch_ms!r:.100}; expected milliseconds from 0 to {EPOCH_MS_MAX:,}")
    if type(epoch_max) is not int or not 1 <= epoch_max <= EPOCH_TRANSACTIONS_MAX:
        raise InvalidOption(f"{what}: epoch_max={epoch_max!r:.100}; expected 1 to {EPOCH_TRANSACTIONS_MAX:,}")
    if conflicts not in ("serializable", "reorder", "snapshot"):
        raise InvalidOption(f"{what}: conflicts={conflicts!r:.100}; expected 'serializable', 'reorder' or 'snapshot'")
    check_seconds(group_commit, f"{what}: group_commit", none=True)
    check_seconds(checkpoint, f"{what}: checkpoint", none=False)
    check_seconds(timeout, f"{what}: timeout", none=False)
    check_seconds(keep_replies, f"{what}: keep_replies", none=False)
    if not timeout:
        raise InvalidOption(f"{what}: timeout={timeout!r}; expected more than 0 s")
    if type(cache_bytes) is not int or cache_bytes < 1 << 20:
        raise InvalidOption(f"{what}: cache_bytes={cache_bytes!r:.100}; expected at least 1 MiB")
    if input is not None and not isinstance(input, str):
        raise InvalidOption(f"{what}: input={input!r:.100}; expected the URL of a place, or None")
    check_workers(workers, 0, what)


def check_workers(workers: Any, least: int, what: str) -> None:
    """`InvalidOption` unless a program can have that many."""
    if type(workers) is not int or not least <= workers <= WORKERS_MAX:
        raise InvalidOption(f"{what}: workers={workers!r:.100}; expected {least} to {WORKERS_MAX}")
