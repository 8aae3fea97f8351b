"""Moments that reads are asked for: one before the first commit is a mistake, and must not look like an empty table."""

from typing import Any, Protocol

from tussock.statestore.client import StateStore
from tussock.statestore.contract.records import TableSpec
from tussock.statestore.epochs import epoch_ms, iso
from tussock.statestore.errors import InvalidOption

__all__ = ["AnyTable", "check_begun"]


class AnyTable(Protocol):
    """A table, raw or typed."""

    @property
    def name(self) -> str:
        """Its name."""

    @property
    def spec(self) -> TableSpec:
        """What it was created with."""


def check_begun(store: StateStore, table: AnyTable, epoch: int, asked: str) -> None:
    """Raise `InvalidOption` if the epoch lies before all commits, where a wrong year or zone looks like no data.

    Of the table that is known as long as nothing was compacted, and then of the store, as far as its version remembers.
    """
    version: Any = store.recent_version()
    if not version.max_committed_epoch:
        raise InvalidOption(f"{asked}: nothing was committed in the store at {store.url} yet; read without it")
    state = version.tables.get(table.spec.id)
    mine = [sst.min_epoch for sst in state.levels.ssts()] if state is not None else []
    if state is not None and mine and not version.compacted_epoch_of(state):
        first, whose = min(mine), f"table {table.name!r}"
    else:
        all_known = [sst.min_epoch for state in version.tables.values() for sst in state.levels.ssts()]
        all_known += [sample[1] for sample in version.timeline[:1]]
        first, whose = min(all_known, default=version.max_committed_epoch), f"the store at {store.url}"
    if epoch < first:
        raise InvalidOption(
            f"{asked} lies before the earliest commit of {whose}, which is epoch {first} of {iso(epoch_ms(first))}; "
            "mind the year and the time zone, which is UTC where none is given"
        )
