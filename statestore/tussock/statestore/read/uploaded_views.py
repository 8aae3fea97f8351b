"""What a reader sees that puts uploaded, uncommitted rows over the store: the tasks of a Spark transaction."""

from collections.abc import Sequence

from tussock.statestore.contract.backend import PinHandle
from tussock.statestore.contract.records import Run, UploadedRun
from tussock.statestore.errors import InvalidBatch, InvalidOption
from tussock.statestore.read.table_views import TableViews
from tussock.statestore.read.views import ReadView, Views
from tussock.statestore.shown import show_value
from tussock.statestore.write.buffered_run import BufferedRun
from tussock.statestore.write.writes import UNCOMMITTED_EPOCH

__all__ = ["UploadedViews", "check_runs"]


def check_runs(runs: object, table: int, name: str) -> None:
    """`InvalidOption` unless these are runs that `upload` returned; `InvalidBatch` if it did so for another table."""
    if not isinstance(runs, list | tuple) or not all(isinstance(run, Run) for run in runs):
        raise InvalidOption(
            f"table {name!r}: the uploaded runs are {show_value(runs)}; expected what upload() returned"
        )
    for run in runs:
        if isinstance(run, UploadedRun) and run.ssts and run.table_id not in (0, table):
            raise InvalidBatch(
                f"table {name!r} with id {table}: SST {run.ssts[0].id} was uploaded for table {run.table!r} with id "
                f"{run.table_id}; nothing was added",
                run.ssts[0].id,
            )


class UploadedViews(TableViews):
    """The views of one table with uploaded runs on top, whatever epoch is read: their commit will be above all."""

    def __init__(
        self, views: Views, table: int, name: str, uploaded: Sequence[Run], pin: PinHandle | None = None
    ) -> None:
        """`uploaded`: newest first."""
        super().__init__(views, table, name, pin)
        self._uploaded = tuple(BufferedRun(UNCOMMITTED_EPOCH, None, run) for run in uploaded if run.ssts)

    def take(self, epoch: int | None) -> ReadView:
        """What is committed, and the uploaded rows as own ones."""
        return super().take(epoch)._replace(own=self._uploaded)
