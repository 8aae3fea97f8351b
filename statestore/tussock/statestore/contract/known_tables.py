"""Which table a client means by a name, where the table was dropped and another one has its name since.

`expect` names tables, and says by an epoch when they were read. That epoch tells two tables of one name apart, unless
the newer one was created while it was the newest epoch: then a reader may have seen either. The client that commits
knows which one it had opened.
"""

from collections.abc import Iterable, Sequence

import msgspec

from tussock.statestore.base.names import NAMES_SHOWN
from tussock.statestore.contract.backend import VersionView
from tussock.statestore.contract.records import TableSpec, TableState
from tussock.statestore.errors import TableNotFound
from tussock.statestore.shown import show_value

__all__ = ["KnownTables", "no_table"]


class KnownTables:
    """The oldest table that this client has opened under each name; safe to use from several threads."""

    def __init__(self) -> None:
        self._ids: dict[str, int] = {}

    def note_opened(self, spec: TableSpec) -> None:
        """The table was handed to the user, who may read it from now on."""
        self._ids[spec.name] = min(self._ids.get(spec.name, spec.id), spec.id)

    def note_created(self, spec: TableSpec) -> None:
        """This client created it: from now on the name means this one."""
        self._ids[spec.name] = spec.id

    def id_read_at(self, state: TableState, epoch: int) -> int:
        """The id of the table that was read at `epoch`, where `state` has its name now.

        In doubt the older one: to read again and retry is safe.
        """
        if state.created is not msgspec.UNSET and state.created_epoch != epoch:
            return state.spec.id
        return min(self._ids.get(state.spec.name, state.spec.id), state.spec.id)

    def id_of_gone(self, name: str, version: VersionView) -> int | None:
        """The id of a table that had this name, which none has now; `None` if nothing is known of one."""
        had = [table for table, one in version.gone.items() if one.state.spec.name == name]
        return max(had) if had else self._ids.get(name)

    def renew(self, names: Iterable[str], version: VersionView) -> None:
        """The user was told by `Conflict` to read the tables again, which are those of this version."""
        for name in names:
            state = version.find_table(name)
            if state is None:
                self._ids.pop(name, None)
            else:
                self._ids[name] = state.spec.id


def no_table(url: str, name: str, others: Sequence[str]) -> TableNotFound:
    """The error that tells of a table that is not there, and of some that are."""
    shown = ", ".join(map(show_value, others[:NAMES_SHOWN])) or "none"
    more = f" and {len(others) - NAMES_SHOWN:,} more" if len(others) > NAMES_SHOWN else ""
    return TableNotFound(f"no table {show_value(name)} in the store at {url}; its tables: {shown}{more}", name)
