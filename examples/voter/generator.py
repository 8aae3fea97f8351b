"""Seeded votes of a television show: some contestants are liked more, some phones try again, some numbers are wrong."""

import numpy as np
import pyarrow as pa
from voter.board import VOTE

__all__ = ["make_votes"]

WRONG = 0.02
"""Votes for contestants that never were."""
VALID = 0.8
"""About as large a share of all votes counts; by it the generator guesses how many contestants are left."""
FIRST_PHONE = 2_000_000_000


def make_votes(
    count: int, seed: int, *, contestants: int = 25, remove_every: int = 1000, phones: int | None = None
) -> pa.Table:
    """`count` votes in the order in which they come; `phones` are four times as many as votes, if not said.

    Each vote is for one of the contestants that are probably left: those that are liked least go first. Some are gone
    sooner than that, so some votes come too late.
    """
    random = np.random.default_rng(seed)
    liking = (1 / (np.arange(contestants) + 3)).cumsum()
    left = np.maximum(contestants - (np.arange(count) * VALID / remove_every).astype(np.int64), 1)
    ranks = np.searchsorted(liking, random.random(count) * liking[left - 1])
    numbers = 1 + random.permutation(contestants)[ranks]
    is_wrong = random.random(count) < WRONG
    numbers[is_wrong] = np.where(random.random(is_wrong.sum()) < 0.5, 0, contestants + 1)
    callers = FIRST_PHONE + random.integers(phones or 4 * count, size=count)
    return pa.table({"phone": callers, "contestant": numbers}, schema=VOTE)
