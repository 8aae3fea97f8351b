"""What a client has written at one epoch and not yet committed."""

from dataclasses import dataclass, field

from tussock.statestore.base.system import Lock
from tussock.statestore.contract.records import Run
from tussock.statestore.write.buffered_run import BufferedRun

__all__ = ["EpochBuffer"]


@dataclass
class EpochBuffer:
    """All runs of one epoch, per table newest first, and what a commit that failed had uploaded already."""

    epoch: int
    committing: Lock
    """Held by the thread that commits the epoch."""
    sealed: bool = False
    runs: dict[int, tuple[BufferedRun, ...]] = field(default_factory=dict)
    uploaded: dict[int, tuple[Run, ...]] = field(default_factory=dict)
    payloads: dict[str, bytes] = field(default_factory=dict)
    """Of `uploaded`, what is not in the bucket but goes along with the commit, by SST id."""
    sealed_before: int = 0
    """The newest epoch that was sealed when this one was."""
    refused: bool = False
    """The number cannot be committed: it says nothing of which others are too old."""
    oldest_upload: str | None = None
    """No SST of this epoch has a smaller id; `None` if none was uploaded."""
