"""How a driver ends: streams stop between two batches, if a batch ends soon enough.

Stopping a stream in the middle of a batch is safe: the batch runs again at the next start, and the store takes it once.
But its work so far is lost, so each stream gets some time to finish its batch.
"""

from collections.abc import Sequence

from pyspark.sql.streaming.query import StreamingQuery

from tussock.statestore.base.logs import get_logger
from tussock.statestore.base.system import System

__all__ = ["stop_queries"]

log = get_logger("tussock.compute")

_LOOK_SECONDS = 0.05
"""Between two looks at a batch, which takes at least 0.1 s."""


def stop_queries(queries: Sequence[StreamingQuery], seconds: float, system: System) -> int:
    """Stop these streams, each when its current batch ends, or after `seconds` in the middle of it.

    Returns how many were stopped in the middle of a batch.
    """
    deadline = system.monotonic() + seconds
    waiting = [(query, _batches_done(query)) for query in queries]
    while waiting and system.monotonic() < deadline:
        still = []
        for query, done in waiting:
            # A batch that has just begun is stopped, too: little is lost with it.
            if not query.isActive or not query.status["isTriggerActive"] or _batches_done(query) != done:
                query.stop()
            else:
                still.append((query, done))
        waiting = still
        if waiting:
            system.sleep(_LOOK_SECONDS)
    for query, _ in waiting:
        log.warning("stopping a stream in the middle of a batch", query=query.name or query.id, waited=seconds)
        query.stop()
    return len(waiting)


def _batches_done(query: StreamingQuery) -> int:
    """The id of the newest batch that ended; -1: none yet."""
    progress = query.lastProgress
    return -1 if progress is None else int(progress["batchId"])
