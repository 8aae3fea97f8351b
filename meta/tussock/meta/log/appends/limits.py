"""`LogLimits`: how much one entry holds, and how long an append goes on; nobody has to choose, tests shrink them."""

import msgspec

__all__ = ["DEFAULT_LOG_LIMITS", "LogLimits"]


class LogLimits(msgspec.Struct, frozen=True, kw_only=True):
    """Of one process. None is stored."""

    entry_calls: int = 256
    entry_payload_bytes: int = 4 << 20
    """Bytes of SSTs after which an entry takes no further call: an entry is written, and read by replicas, at one go.
    """
    append_attempts: int = 100
    """Entries that others may append before this one, one after the other."""


DEFAULT_LOG_LIMITS = LogLimits()
