"""Checks of what users pass to a store, each with an error that names the argument, and what becomes of it."""

import math
from collections.abc import Mapping

from tussock.statestore.barriers import JobOptions, OnMissing
from tussock.statestore.errors import InvalidOption

__all__ = ["check_limits", "check_writer", "job_options"]


def check_writer(writer: str | None, batch_id: int | None, generation: int | None = None) -> None:
    """Check what makes a commit idempotent, and what fences it."""
    if (writer is None) != (batch_id is None):
        raise InvalidOption(f"writer {writer!r} and batch_id {batch_id!r} go together: give both or neither")
    if writer is not None and (not isinstance(writer, str) or not writer):
        raise InvalidOption(f"writer is {writer!r}; expected a non-empty string")
    if batch_id is not None and (isinstance(batch_id, bool) or not isinstance(batch_id, int) or batch_id < 0):
        raise InvalidOption(f"batch_id is {batch_id!r}; expected an integer of 0 or more")
    if generation is not None and (isinstance(generation, bool) or not isinstance(generation, int) or generation < 1):
        raise InvalidOption(f"generation is {generation!r}; expected what store.open_writer() gave")
    if generation is not None and writer is None:
        raise InvalidOption(f"generation is {generation}, but no writer is named; it belongs to one")


def job_options(
    job: str,
    participants: int,
    interval: float | None,
    timeout: float | None,
    on_missing: OnMissing,
) -> JobOptions:
    """Check the arguments of `join_checkpoint`; seconds, `None` for what the service is set to."""
    if not isinstance(job, str) or not 0 < len(job) <= 255:
        raise InvalidOption(f"job {job!r}: expected a name of 1 to 255 characters")
    if isinstance(participants, bool) or not isinstance(participants, int) or not 0 < participants < 1 << 16:
        raise InvalidOption(f"job {job!r}: participants is {participants!r}; expected a number from 1 to 65535")
    for name, seconds in (("interval", interval), ("timeout", timeout)):
        if seconds is not None and not (isinstance(seconds, int | float) and 0.001 <= seconds < math.inf):
            raise InvalidOption(f"job {job!r}: {name} is {seconds!r}; expected seconds, 0.001 or more")
    if on_missing not in ("abort", "wait"):
        raise InvalidOption(f"job {job!r}: on_missing is {on_missing!r}; expected 'abort' or 'wait'")
    return JobOptions(
        participants=participants,
        interval_ms=round((interval or 0) * 1000),
        timeout_ms=round((timeout or 0) * 1000),
        on_missing=on_missing,
    )


def check_limits(seconds: Mapping[str, float | None], deadline: float, cache_bytes: int, buffer_bytes: int) -> None:
    """`InvalidOption` unless these options of `connect` are numbers of at least 0; of `seconds`, `None` is fine."""
    given = {name: value for name, value in seconds.items() if value is not None} | {"deadline": deadline}
    for name, value in given.items():
        if not isinstance(value, int | float) or not math.isfinite(value) or value < 0:
            raise InvalidOption(f"{name} is {value!r}; expected seconds, 0 or more")
    for name, value in {"cache_bytes": cache_bytes, "buffer_bytes": buffer_bytes}.items():
        if not isinstance(value, int) or value < 0:
            raise InvalidOption(f"{name} is {value!r}; expected bytes, 0 or more")
