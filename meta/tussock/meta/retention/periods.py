"""For how long a store keeps what nobody needs now: what this process was told, what the store says, what is asked for.

A process that was given its own periods goes by them, and makes them the store's with its next write; all others go
by the store's.
"""

from dataclasses import dataclass

from tussock.meta.version.deltas.delta import Delta
from tussock.meta.version.deltas.retention import Configure
from tussock.meta.version.version import Version
from tussock.statestore.contract.records import TableState
from tussock.statestore.errors import InvalidOption

__all__ = ["Periods"]


@dataclass(frozen=True)
class Periods:
    """Retention and grace period of one process, in milliseconds; `None` is what the store says."""

    own_retention_ms: int | None
    own_grace_ms: int | None

    @classmethod
    def of_seconds(cls, retention: float | None, gc_grace: float | None) -> "Periods":
        """From what users give; `InvalidOption` if one is negative."""
        if (retention or 0) < 0 or (gc_grace or 0) < 0:
            raise InvalidOption(f"retention={retention} and gc_grace={gc_grace} must not be negative")
        return cls(
            None if retention is None else int(retention * 1000), None if gc_grace is None else int(gc_grace * 1000)
        )

    def retention_ms(self, version: Version) -> int:
        """For how long epochs stay readable without a pin after a newer one was committed."""
        return version.retention_ms if self.own_retention_ms is None else self.own_retention_ms

    def retention_of(self, version: Version, table: TableState) -> int:
        """The same of one table, which may have its own retention."""
        own_ms = table.spec.retention_ms
        return self.retention_ms(version) if own_ms is None else own_ms

    def grace_ms(self, version: Version) -> int:
        """For how long vacuum leaves alone what was dropped, or uploaded and not committed."""
        return version.gc_grace_ms if self.own_grace_ms is None else self.own_grace_ms

    def deltas(self, version: Version) -> list[Delta]:
        """What makes the own periods the store's; empty if they are already."""
        return _deltas(version, self.retention_ms(version), self.grace_ms(version))

    def asked(self, version: Version, retention_ms: int | None, grace_ms: int | None) -> list[Delta]:
        """What makes these the store's, `None` leaves one as it is; empty if that changes nothing.

        Raises `InvalidOption` for one that differs from this process's own, which would overrule it.
        """
        for name, asked_ms, own_ms in (
            ("retention", retention_ms, self.own_retention_ms),
            ("gc_grace", grace_ms, self.own_grace_ms),
        ):
            if own_ms is not None and asked_ms not in (None, own_ms):
                raise InvalidOption(
                    f"a {name} of {(asked_ms or 0) / 1000:g} seconds is asked for, and the settings of the meta "
                    f"service say {own_ms / 1000:g} (versions.{name}_seconds), which no client may change: ask for "
                    "that or for nothing, or have the setting changed"
                )
        return _deltas(
            version,
            version.retention_ms if retention_ms is None or self.own_retention_ms is not None else retention_ms,
            version.gc_grace_ms if grace_ms is None or self.own_grace_ms is not None else grace_ms,
        )


def _deltas(version: Version, retention_ms: int, grace_ms: int) -> list[Delta]:
    if (retention_ms, grace_ms) == (version.retention_ms, version.gc_grace_ms):
        return []
    return [Configure(retention_ms=retention_ms, gc_grace_ms=grace_ms)]
