"""`ApplicationLimits`: how much may wait in an application; nobody has to choose it, and tests shrink it."""

import msgspec

__all__ = ["DEFAULT_APPLICATION_LIMITS", "ApplicationLimits"]


class ApplicationLimits(msgspec.Struct, frozen=True, kw_only=True):
    """Of one run. None is stored: an application may be started with others each time."""

    queue_requests: int = 10_000
    """Requests that wait; a client that asks for more waits, too."""
    queue_bytes: int = 256 << 20
    """The same for bytes. A request that is larger goes alone."""
    log_groups: int = 64
    """Groups of records that have run, and wait to be durable: the bucket may be away for long."""
    log_bytes: int = 256 << 20
    """The same for bytes."""
    records_behind: int = 50_000
    """From this many records on that no commit holds one begins, and from twice as many on requests wait for it: a
    recovery replays them, at some 75 us for the smallest, so it takes less than ten seconds."""
    waiting_batches: int = 10_000
    """Batches in streams that wait for other ones."""
    rebuild_rows: int = 10_000
    """Of one transaction of a stream that is made anew."""
    rebuild_bytes: int = 64 << 20
    """From this many bytes on that a rebuild has written a commit begins."""
    exit_ms: int = 30_000
    """Milliseconds for which the end of a `with` block waits while the bucket is away."""


DEFAULT_APPLICATION_LIMITS = ApplicationLimits()
