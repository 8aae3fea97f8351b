"""What probes find out, as values: about the bucket of a store, its platform and its backups."""

from typing import NamedTuple

from tussock.operator.planning.words.conditions import Reason

__all__ = ["LASTING_TIMES", "BackupsFact", "BucketFact", "DriverFact", "HeldBackup", "PlatformFact"]


class BucketFact(NamedTuple):
    """Whether a store's bucket can be used by it."""

    reason: Reason | None
    """What stands in the way; `None` if nothing does."""
    message: str = ""
    """What is wrong with which bucket, and what to do."""
    has_store: bool = False
    """A store was there before this one's marker was: data to go on with, into which no backup is restored."""


LASTING_TIMES = 3
"""An election, or a node that is being replaced, is over after one probe or two: more than that has a reason."""


class PlatformFact(NamedTuple):
    """What the meta nodes of a store say of themselves."""

    problem: str
    """Why they could not be asked; empty if they could."""
    version: str = ""
    """Of the software that answered: `0.1.0`."""
    leader: str = ""
    """Address of the leader as it advertises it, `IP:port`; empty while nobody leads."""
    term: int = 0
    committed_epoch: int = 0
    committed_ms: int = 0
    """When it was committed, as Unix time in milliseconds; 0 for never."""
    slots: int = 0
    """Of the compactors with a session."""
    tasks: int = 0
    """Compaction tasks that are worked on."""
    is_blind: bool = False
    """It is the operator that cannot see them: no network leads there, as outside of the cluster, or by a policy."""
    times: int = 0
    """How many probes in a row have found a problem or no leader, up to `LASTING_TIMES`."""

    @property
    def leader_ip(self) -> str:
        """The leader's address without its port."""
        return self.leader.rpartition(":")[0].strip("[]")


class DriverFact(NamedTuple):
    """What the driver of a job says it has committed."""

    committed_epoch: int
    """0: nothing yet."""
    committed_batch: int
    committed_ms: int
    """When, as Unix time in milliseconds."""


class HeldBackup(NamedTuple):
    """A backup that is in a store."""

    name: str
    id: str
    epoch: int
    """The newest committed epoch in it."""
    bytes: int
    """Of the SSTs that it names."""
    created_ms: int
    """Unix time in milliseconds."""


class BackupsFact(NamedTuple):
    """The backups of a store, and what came of making and deleting some."""

    backups: tuple[HeldBackup, ...] | None
    """All finished ones, whoever made them; `None` if they could not be listed."""
    problem: str = ""
    """What failed, if anything did."""
    leaving: bool = False
    """Begun after the resource was deleted, so that nothing is made after this list."""
