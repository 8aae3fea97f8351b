"""What a replica is told: plain values, so that the core knows nothing of where settings come from."""

from dataclasses import dataclass, field

from tussock.meta.compaction.picker_config import PickerConfig

__all__ = ["NodeOptions"]


@dataclass(frozen=True)
class NodeOptions:
    """The options of one replica; seconds, except where the name says otherwise. `model.py` documents each."""

    store_url: str = ""
    """Handed to clients, which read and write the bucket themselves."""
    store_options: dict[str, str] = field(default_factory=dict)
    """Endpoint, region and the like, handed to clients; no secrets."""
    hands_out_to_readers: bool = True
    """Where clients are handed credentials of the bucket: also those who may only read."""
    address: str = ""
    """Where clients reach this replica; told by the others when it leads."""
    leader_lease: float = 3.0
    session_lease: float = 20.0
    pin_lease: float = 60.0
    log_poll: float = 0.5
    """How often to look for log entries of others: of the leader, and of embedded processes."""
    linger: float = 0.005
    """How long an entry waits for as many commits as the last one had, if those were several."""
    retention: float | None = None
    gc_grace: float | None = None
    max_clock_ahead: float = 3600.0
    """By which this machine's clock, or an epoch, may be ahead of the bucket's clock."""
    picker: PickerConfig = field(default_factory=PickerConfig)
    tasks_per_table: int = 4
    """Compaction tasks of one table that run at once."""
    stuck_task: float = 60.0
    """A compaction task without progress for so long is taken back."""
    vacuum_interval: float = 300.0
    checkpoint_interval: float = 1.0
    checkpoint_timeout: float = 60.0
    message_bytes_max: int = 16 << 20
    """The largest request that names SSTs; told to clients, which then do not send it."""
    tick: float = 0.1
    """How often the leader looks whether something is due, if nothing wakes it before."""
