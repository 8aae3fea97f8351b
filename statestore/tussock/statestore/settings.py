"""`StoreSettings`: what `connect` was given, as the store and its backend take it."""

from dataclasses import dataclass, field

from tussock.statestore.base.identity import Access
from tussock.statestore.base.limits import DEFAULT_LIMITS, Limits

__all__ = ["StoreSettings"]


@dataclass(frozen=True)
class StoreSettings:
    """The options of `connect`, checked; seconds and bytes. `None`: what the store says."""

    url: str
    retention: float | None = None
    gc_grace: float | None = None
    cache_bytes: int = 256 << 20
    buffer_bytes: int = 64 << 20
    deadline: float = 30.0
    compaction: bool = True
    access: Access = field(default_factory=Access)
    """What is shown to a meta service."""
    max_clock_ahead: float = 3600.0
    limits: Limits = DEFAULT_LIMITS
    max_staleness: float | None = None
    """Seconds for which reads do not look for a newer version."""
