"""What a replica is told: plain values, so that the core knows nothing of where settings come from."""

from dataclasses import dataclass, field

from tussock.meta.compaction.assignment import STUCK_SECONDS, TASKS_PER_TABLE
from tussock.meta.compaction.picker_config import PickerConfig
from tussock.meta.log.bucket_clock import MAX_AHEAD_MS
from tussock.meta.retention.pins import PIN_LEASE_SECONDS

__all__ = ["NodeOptions"]


@dataclass(frozen=True)
class NodeOptions:
    """The options of one replica. `model.py` documents each, and takes its defaults from here."""

    store_url: str = ""
    """Handed to clients, which read and write the bucket themselves."""
    store_options: dict[str, str] = field(default_factory=dict)
    """Endpoint, region and the like, handed to clients; no secrets."""
    hands_out_to_readers: bool = True
    """Where clients are handed credentials of the bucket: also those who may only read."""
    address: str = ""
    """Where clients reach this replica; told by the others when it leads."""
    leader_lease_seconds: float = 3.0
    session_lease_seconds: float = 20.0
    pin_lease_seconds: float = PIN_LEASE_SECONDS
    log_poll_seconds: float = 0.5
    """How often to look for log entries of others: of the leader, and of embedded processes."""
    linger_seconds: float = 0.005
    """How long an entry waits for as many commits as the last one had, if those were several."""
    retention_seconds: float | None = None
    gc_grace_seconds: float | None = None
    max_clock_ahead_seconds: float = MAX_AHEAD_MS / 1000
    """By which this machine's clock, or an epoch, may be ahead of the bucket's clock."""
    picker: PickerConfig = field(default_factory=PickerConfig)
    tasks_per_table: int = TASKS_PER_TABLE
    """Compaction tasks of one table that run at once."""
    stuck_task_seconds: float = STUCK_SECONDS
    """Seconds without progress after which a compaction task is taken back."""
    vacuum_interval_seconds: float = 300.0
    checkpoint_interval_seconds: float = 1.0
    checkpoint_timeout_seconds: float = 60.0
    message_bytes_max: int = 16 << 20
    """The largest request that names SSTs; told to clients, which then do not send it."""
    tick_seconds: float = 0.1
    """How often the leader looks whether something is due, if nothing wakes it before."""
