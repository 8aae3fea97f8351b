"""The names of writers beside their batches: which identity brought each, and what remains of forgotten ones.

A name that is forgotten may be opened anew, while a process of its former job still lives. So the first generation of
any name is above all generations of names that were forgotten: what was fenced stays fenced.
"""

import msgspec

__all__ = ["NameOrigin", "WriterNames"]


class NameOrigin(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Where a name comes from."""

    by: str = ""
    """The identity that called the meta service; empty of an embedded process."""
    opened_ms: int = 0
    """When it was opened, by the clock of who appended that; 0: it came with a commit."""


class WriterNames(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """What is known of names of writers; nothing of those that older releases brought."""

    origins: dict[str, NameOrigin] = {}
    generation_floor: int = 0
    """The largest generation of any name that was forgotten; a new name begins above it."""
