"""Seeded votes of a television show: some contestants are liked more, some phones try again, some numbers are wrong."""

import numpy as np
import pyarrow as pa
from voter.board import VOTE

__all__ = ["make_votes"]

WRONG = 0.02
"""Votes for contestants that never were."""
FIRST_PHONE = 2_000_000_000


def make_votes(count: int, seed: int, *, contestants: int = 25, phones: int | None = None) -> pa.Table:
    """`count` votes in the order in which they come; from as many `phones` as there are votes, if not said."""
    random = np.random.default_rng(seed)
    liking = 1 / (np.arange(contestants) + 3)
    numbers = 1 + random.choice(random.permutation(contestants), count, p=liking / liking.sum())
    is_wrong = random.random(count) < WRONG
    numbers[is_wrong] = np.where(random.random(is_wrong.sum()) < 0.5, 0, contestants + 1)
    callers = FIRST_PHONE + random.integers(phones or count, size=count)
    return pa.table({"phone": callers, "contestant": numbers}, schema=VOTE)
