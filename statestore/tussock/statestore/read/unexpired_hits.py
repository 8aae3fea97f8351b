"""Which of the rows that lookups have found are not expired."""

import numpy as np

from tussock.statestore.format.expiry import Milliseconds, TimeToLive
from tussock.statestore.sst.lookups.lookup_many import Hits

__all__ = ["unexpired_hits"]


def unexpired_hits(hits: Hits, expiry: TimeToLive, ms: Milliseconds) -> Hits:
    """The hits that are not expired at that time, or at the one for each key by its number."""
    latest = expiry.latest(ms)
    by_key = latest if isinstance(latest, np.ndarray) else None
    points, pieces = [], []
    for block, at, slot in hits.points:
        if expiry.time_of(block.rows, at) > (latest if by_key is None else int(by_key[slot])):
            points.append((block, at, slot))
    for rows, places, into in hits.pieces:
        alive = np.asarray(expiry.times(rows, expiry.column)[places] > (latest if by_key is None else by_key[into]))
        if alive.any():
            pieces.append((rows, places[alive], into[alive]))
    return Hits(points, pieces)
