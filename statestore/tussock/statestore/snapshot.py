"""A snapshot: the store at one epoch, kept readable by a pin until it is closed."""

from types import TracebackType

from tussock.statestore.arguments import check_table
from tussock.statestore.backend import PinHandle
from tussock.statestore.catalog import TableSpec
from tussock.statestore.core import Core
from tussock.statestore.errors import TableNotFound
from tussock.statestore.tables.raw_table import RawTable
from tussock.statestore.tables.typed_table import TypedTable

__all__ = ["Snapshot", "open_table"]


def open_table(core: Core, spec: TableSpec, pin: PinHandle | None = None) -> RawTable | TypedTable:
    """The table as its kind wants to be used."""
    return RawTable(core, spec, pin) if spec.schema is None else TypedTable(core, spec, pin)


class Snapshot:
    """Reads at one epoch, the same whatever is committed, compacted or vacuumed meanwhile.

    The lease behind it renews itself while the process lives. Close it, or use it as a context manager: what it
    keeps cannot be compacted away before.
    """

    def __init__(self, core: Core, pin: PinHandle) -> None:
        self._core = core
        self._pin = pin

    @property
    def epoch(self) -> int:
        """The epoch that is read."""
        return self._pin.info.epoch

    def table(self, name: str) -> RawTable | TypedTable:
        """A table of the store as of the snapshot's epoch; `TableNotFound` if the store has none of that name."""
        check_table(name)
        state = self._core.backend.recent().find_table(name)
        if state is None:
            raise TableNotFound(f"no table {name!r} in the store at {self._core.settings.url}", name)
        return open_table(self._core, state.spec, self._pin)

    def close(self) -> None:
        """Let go of the epoch; reads through this snapshot then raise `StoreClosed`."""
        self._pin.release()

    def __enter__(self) -> "Snapshot":
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()
