"""Which backups of a schedule a retention does not keep."""

from collections.abc import Sequence
from datetime import datetime

from tussock.meta.retention.unkept import unkept
from tussock.operator.planning.words.facts import HeldBackup
from tussock.operator.resources.backup import Retention

__all__ = ["expired_backups"]


def expired_backups(held: Sequence[HeldBackup], retention: Retention, now: datetime) -> list[HeldBackup]:
    """Those of a schedule's backups that no rule keeps, oldest first; none without a rule, and never the newest."""
    if retention.count is None and retention.seconds is None:
        return []
    return unkept(held, retention.count, retention.seconds, now.timestamp() * 1000)
