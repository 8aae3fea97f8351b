"""A streaming query over a table's changes, run as Spark runs it, without Spark."""

import json
import pickle
from typing import Any

import pyarrow as pa

from support import inside
from support.models.change_history import Change, changes_in
from tussock.compute.spark.reads.connections import working_store
from tussock.compute.spark.source import TussockDataSource

__all__ = ["Query"]


class Query:
    """A streaming query as Spark runs it: one process for the source, a copy of it for the tasks, a checkpoint."""

    def __init__(self, url: str, checkpoint: list[dict[str, Any]] | None = None, **options: str) -> None:
        source = TussockDataSource({"store": url, "path": "t", "readChangeFeed": "true"} | options)
        self.schema = source.schema()
        self._source: TussockDataSource = pickle.loads(pickle.dumps(source))
        self.reader = self._source.streamReader(self.schema)
        self.log = [] if checkpoint is None else checkpoint
        """The ends of batches; the last one may be unfinished."""
        self.done = len(self.log)

    def plan(self) -> dict[str, Any] | None:
        """Note the end of the next batch; `None` if there is nothing to do."""
        # Else what was committed a moment ago may be seen at the next question only.
        working_store(self.reader.options.address).version()
        start = self.log[-1] if self.log else self.reader.initialOffset()
        end = self.reader.latestOffset(start, self.reader.getDefaultReadLimit())
        if self.log and json.dumps(end) == json.dumps(start):
            return None
        if self.log:
            self.reader.commit(json.loads(json.dumps(self.log[-1])))
        self.log.append(json.loads(json.dumps(end)))
        return end

    def run(self) -> list[pa.RecordBatch]:
        """Run the noted batch in tasks; may be repeated, as after a crash."""
        start = self.log[-2] if len(self.log) > 1 else self.reader.initialOffset()
        parts = pickle.loads(pickle.dumps(self.reader.partitions(start, self.log[-1])))
        task = self._source.streamReader(self.schema)
        return [batch for part in parts for batch in task.read(part)]

    def drain(self) -> list[list[Change]]:
        """Run until there is nothing to do; returns the changes of each batch."""
        batches = []
        while self.plan() is not None:
            batches.append(changes_in(self.run(), "_op", "_epoch"))
        return batches

    def die(self) -> list[dict[str, Any]]:
        """End as `kill -9` would once the lease is over; returns the checkpoint."""
        inside.release_cursor(self.reader)
        return self.log
