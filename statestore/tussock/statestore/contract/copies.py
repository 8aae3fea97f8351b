"""Copies of backups in a destination, as callers see them and as its catalogue has them."""

import msgspec

__all__ = ["BackupCheck", "CopyInfo", "CopyReport", "CopyRule"]


class CopyInfo(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The copy of a backup in a destination."""

    name: str
    """Of the backup."""
    id: str
    """Of the backup: 32 hex digits."""
    part: int
    """The catalogue's entry that began it; what it has brought lies in the folder of this number."""
    owner: str
    """Host and process that began it, for people."""
    begun_ms: int
    created_ms: int
    """When the backup was made."""
    epoch: int
    """The newest committed epoch in it."""
    ssts: int
    bytes: int
    """Of all its SSTs, those that earlier copies have brought too."""
    comment: str = ""
    finished_ms: int = 0
    """0: it is being made."""


class CopyRule(msgspec.Struct, frozen=True, kw_only=True):
    """Which copies in a destination stay: those that count or age keeps. One of the two is given."""

    prefix: str = ""
    """Copies whose names begin otherwise are left alone."""
    count: int | None = None
    """How many of the newest stay."""
    seconds: float | None = None
    """The age of a backup up to which its copy stays."""


class CopyReport(msgspec.Struct, frozen=True, kw_only=True):
    """What a copy did."""

    info: CopyInfo
    copied_ssts: int
    """SSTs that this call has copied, or found whole of an attempt before; the others came with earlier copies."""
    copied_bytes: int


class BackupCheck(msgspec.Struct, frozen=True, kw_only=True):
    """What a drill has read of a backup, all of it whole: it ends with an error at the first damage."""

    name: str
    id: str
    epoch: int
    tables: int
    ssts: int
    rows: int
    """Every version and delete counted."""
    bytes: int
    at_ms: int
    """When it began."""
