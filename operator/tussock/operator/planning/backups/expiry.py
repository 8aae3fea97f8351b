"""Which backups of a schedule a retention does not keep."""

from collections.abc import Sequence
from datetime import datetime

from tussock.operator.planning.words.facts import HeldBackup
from tussock.operator.resources.backup import Retention

__all__ = ["backup_age", "expired_backups"]


def expired_backups(held: Sequence[HeldBackup], retention: Retention, now: datetime) -> list[HeldBackup]:
    """Those of a schedule's backups that no rule keeps, oldest first; none without a rule.

    The newest always stays: if backups fail for a long time, age must not remove the last one.
    """
    if retention.count is None and retention.seconds is None:
        return []
    newest_first = sorted(held, key=backup_age, reverse=True)
    kept = {found.name for found in newest_first[: max(1, retention.count or 0)]}
    if retention.seconds is not None:
        oldest_ms = (now.timestamp() - retention.seconds) * 1000
        kept |= {found.name for found in held if found.created_ms > oldest_ms}
    return [found for found in reversed(newest_first) if found.name not in kept]


def backup_age(held: HeldBackup) -> tuple[int, str]:
    """By which backups are in order of time."""
    return held.created_ms, held.name
