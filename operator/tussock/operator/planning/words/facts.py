"""The results of probes, as values: about the bucket of a store, its platform and its backups."""

from typing import NamedTuple

from tussock.operator.planning.words.conditions import Reason

__all__ = ["LASTING_TIMES", "BackupsFact", "BucketFact", "DriverFact", "HeldBackup", "NodeFact", "PlatformFact"]


class BucketFact(NamedTuple):
    """Whether a store can use its bucket."""

    reason: Reason | None
    """The obstacle; `None` if there is none."""
    message: str = ""
    """What is wrong with which bucket, and what to do."""
    has_store: bool = False
    """A store existed before this one's marker: it continues with those data, and no backup is restored into them."""
    is_full: bool = False
    """The bucket takes no write for lack of room."""


LASTING_TIMES = 3
"""An election, or the replacement of a node, takes one or two probes: anything longer has another cause."""


class PlatformFact(NamedTuple):
    """What the meta nodes of a store report."""

    problem: str
    """Why they could not be asked; empty if they could."""
    version: str = ""
    """The version of the software that answered: `0.1.0`."""
    leader: str = ""
    """The leader's address as it advertises it, `IP:port`; empty without a leader."""
    term: int = 0
    committed_epoch: int = 0
    committed_ms: int = 0
    """When the epoch was committed, as Unix time in milliseconds; 0 for never."""
    slots: int = 0
    """The number of compactors with a session."""
    tasks: int = 0
    """The number of running compaction tasks."""
    quarantined_ssts: int = 0
    """The number of damaged SSTs that were put aside and are kept; like the next, of the newest 500."""
    lost_rows: int = 0
    """The number of rows in damaged SSTs that somebody has accepted as lost."""
    log_format: int = 0
    """The format in which the leader writes the log; 0 if it is not known."""
    is_blind: bool = False
    """Only the operator cannot reach them: it has no route, as outside of the cluster, or a policy forbids it."""
    times: int = 0
    """How many probes in a row have found a problem or no leader, up to `LASTING_TIMES`."""

    @property
    def leader_ip(self) -> str:
        """The leader's address without its port."""
        return self.leader.rpartition(":")[0].strip("[]")


class DriverFact(NamedTuple):
    """What the driver of a job reports as committed."""

    committed_epoch: int
    """0: nothing yet."""
    committed_batch: int
    committed_ms: int
    """When, as Unix time in milliseconds."""
    program_sha256: str = ""
    """Digest of the program that it runs; empty before it begins."""
    checkpoint_used_percent: int | None = None
    """How full the checkpoint's volume is; `None`: not known."""
    executors_wanted: int | None = None
    """`None`: not known, or Spark decides."""
    scaling: str = ""
    """Why there are as many executors, where the driver decides."""


class NodeFact(NamedTuple):
    """What the node of a service says of its application."""

    problem: str = ""
    """Why it could not be asked; empty if it could, and then all else is known."""
    is_blind: bool = False
    """Only the operator cannot reach it, as outside of the cluster."""
    application: str = ""
    layer: str = ""
    """`procedures`, `functions`, or what else it is made of."""
    version: str = ""
    state: str = ""
    """`starting`, `running`, `paused`, `draining` or `failed`."""
    workers: int = 0
    """How many the program wants, where they join; 0 without workers."""
    workers_joined: int = 0
    waiting: int = 0
    """Requests that have not begun."""
    outstanding: int = 0
    """Requests whose replies are not out."""
    uncommitted: int = 0
    """Records that no committed epoch holds."""
    trouble: str = ""
    """Of the first feed that gives nothing, or output that is not sent."""


class HeldBackup(NamedTuple):
    """A backup in a store."""

    name: str
    id: str
    epoch: int
    """The newest committed epoch in it."""
    bytes: int
    """The bytes of the SSTs that it names."""
    created_ms: int
    """Unix time in milliseconds."""


class BackupsFact(NamedTuple):
    """The backups of a store, and the results of making and deleting some."""

    backups: tuple[HeldBackup, ...] | None
    """All finished ones, of any maker; `None` if they could not be listed."""
    problem: str = ""
    """The failure, if there was one."""
    leaving: bool = False
    """Begun after the resource was deleted, so that nothing is made after this list."""
    failures: int = 0
    """Times in a row that making or deleting failed."""
