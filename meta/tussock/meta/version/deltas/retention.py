"""What a store keeps, and for how long: the deltas of vacuum, of the safe epoch and of the store's own settings."""

from collections.abc import Mapping
from typing import TypeVar

import msgspec
from msgspec.structs import replace

from tussock.meta.version.history import claimed_history, without_expired
from tussock.meta.version.names import WriterNames
from tussock.meta.version.version import Version
from tussock.statestore.errors import InvalidOption

__all__ = ["AdvanceHorizon", "AdvanceSafeEpoch", "Configure", "ExpireHistory", "ForgetDropped", "ForgetWriters"]

T = TypeVar("T")


class AdvanceSafeEpoch(
    msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, tag="advance_safe_epoch", tag_field="type"
):
    """From now on, nothing below `epoch` can be pinned. Only grows; never above the newest committed epoch."""

    epoch: int
    table: int = 0
    """Of which table with its own epochs; 0: of all others."""

    def validate(self, version: Version) -> None:
        """Raise `InvalidOption` unless it lies above the present one and is committed."""
        state = version.tables.get(self.table)
        if self.table and (state is None or not state.own_epochs):
            raise InvalidOption(f"table with id {self.table} has no own safe epoch to be raised to {self.epoch}")
        present = version.safe_epoch if state is None else version.safe_epoch_of(state)
        if not present < self.epoch <= version.max_committed_epoch:
            raise InvalidOption(
                f"safe epoch {self.epoch} must be above the present one, {present}, and at most the newest "
                f"committed one, {version.max_committed_epoch}"
            )

    def apply(self, version: Version) -> Version:
        """The version with that safe epoch."""
        return version.with_safe_epoch(self.table, self.epoch)


class ExpireHistory(
    msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, tag="expire_history", tag_field="type"
):
    """SSTs of history that no reader at `epoch` or a later one needs become dropped, but those that a task claims."""

    epoch: int
    """Of the tables without their own epochs."""
    at_ms: int
    tables: dict[int, int] = {}
    """The same for each of the others of which something expires, by its id; one that is gone is ignored."""

    def validate(self, version: Version) -> None:
        """Raise `InvalidOption` if a reader may still ask for an epoch below it."""
        if self.epoch > version.safe_epoch:
            raise InvalidOption(
                f"history cannot expire up to epoch {self.epoch}, above the safe epoch {version.safe_epoch}"
            )
        for table_id, epoch in self.tables.items():
            state = version.tables.get(table_id)
            if state is not None and not (state.own_epochs and epoch <= version.safe_epoch_of(state)):
                raise InvalidOption(
                    f"history of table {state.spec.name!r} cannot expire up to epoch {epoch}, above its safe epoch "
                    f"{version.safe_epoch_of(state)}"
                )

    def apply(self, version: Version) -> Version:
        """The version without those SSTs."""
        claimed = claimed_history(version.tasks.values())
        tables, expired = dict(version.tables), []
        for table_id, state in version.tables.items():
            epoch = self.tables.get(table_id, 0) if state.own_epochs else self.epoch
            levels, gone = without_expired(state.levels, epoch, claimed)
            if gone:
                tables[table_id] = replace(state, levels=levels)
                expired += gone
        after = replace(version, tables=tables).with_compacted(0, self.epoch)
        for table_id, epoch in self.tables.items():
            if table_id in after.tables:
                after = after.with_compacted(table_id, epoch)
        return after.with_ssts_dropped(expired, self.at_ms)


class AdvanceHorizon(msgspec.Struct, frozen=True, kw_only=True, tag="advance_horizon", tag_field="type"):
    """From now on, no commit may name an SST id below `horizon`. Only grows."""

    horizon: str

    def validate(self, version: Version) -> None:
        """Raise `InvalidOption` unless it lies above the present one."""
        if self.horizon <= version.gc_horizon:
            raise InvalidOption(
                f"garbage horizon {self.horizon!r} must be above the present one, {version.gc_horizon!r}"
            )

    def apply(self, version: Version) -> Version:
        """The version with that horizon."""
        return replace(version, gc_horizon=self.horizon)


class ForgetDropped(
    msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, tag="forget_dropped", tag_field="type"
):
    """The objects of these dropped SSTs are deleted; unknown ids are ignored (another vacuum was faster)."""

    ids: tuple[str, ...]
    tables: tuple[int, ...] = ()
    """Ids of gone tables that no pin needs any more: their SSTs become dropped. Unknown ones are ignored, too."""

    def validate(self, version: Version) -> None:
        """It may be applied to every version."""

    def apply(self, version: Version) -> Version:
        """The version without those SSTs and gone tables."""
        forgotten = set(self.ids)
        if forgotten:
            version = replace(version, dropped=tuple(sst for sst in version.dropped if sst.id not in forgotten))
        for table_id in self.tables:
            gone = version.gone.get(table_id)
            if gone is not None:
                without = version.with_gone({key: one for key, one in version.gone.items() if key != table_id})
                # As of the drop: since then nobody begins to read it without a pin, and what a pin kept is done.
                version = without.with_ssts_dropped(gone.state.levels.ssts(), gone.dropped_ms, gone.dropped_seq)
        return version


class ForgetWriters(msgspec.Struct, frozen=True, kw_only=True, tag="forget_writers", tag_field="type"):
    """Names of writers leave the store with all that is known of their batches; unknown ones are ignored."""

    writers: tuple[str, ...]

    def validate(self, version: Version) -> None:
        """It may be applied to every version."""

    def apply(self, version: Version) -> Version:
        """The version without those names; processes that opened one of them are fenced."""
        gone, names = set(self.writers), version.names

        def without(known: Mapping[str, T]) -> dict[str, T]:
            return {name: kept for name, kept in known.items() if name not in gone}

        floor = max((version.generations.get(name, 0) for name in gone), default=0)
        return replace(
            version,
            ledger=without(version.ledger),
            writers=without(version.writers),
            generations=without(version.generations),
            known_names=WriterNames(
                origins=without(names.origins),
                generation_floor=max(names.generation_floor, floor),
            ),
        )


class Configure(msgspec.Struct, frozen=True, kw_only=True, tag="configure", tag_field="type"):
    """The store's own retention and grace period, which hold for every process that is not told otherwise."""

    retention_ms: int
    gc_grace_ms: int

    def validate(self, version: Version) -> None:  # noqa: ARG002 -- every version may have them
        """Raise `InvalidOption` if one is negative."""
        if self.retention_ms < 0 or self.gc_grace_ms < 0:
            raise InvalidOption(
                f"retention {self.retention_ms} ms and grace {self.gc_grace_ms} ms must not be negative"
            )

    def apply(self, version: Version) -> Version:
        """The version with these settings."""
        return replace(version, retention_ms=self.retention_ms, gc_grace_ms=self.gc_grace_ms)
