"""Numbers of which few are drawn often, after Gray et al., "Quickly generating billion-record synthetic databases"."""

import numpy as np
import numpy.typing as npt

__all__ = ["Numbers", "zipf"]

Numbers = npt.NDArray[np.int64]


def zipf(random: np.random.Generator, numbers: int, skew: float, count: int) -> Numbers:
    """`count` numbers from 0 to below `numbers`, which is at least 2.

    With a `skew` of 0 all are as likely as each other; below 1, the larger it is, the more often come the small ones.
    """
    if not skew:
        return random.integers(0, numbers, count)
    weights = 1 / np.arange(1, numbers + 1) ** skew
    total, two = weights.sum(), weights[:2].sum()
    eta = (1 - (2 / numbers) ** (1 - skew)) / (1 - two / total)
    drawn = random.random(count)
    found = (numbers * (eta * drawn - eta + 1) ** (1 / (1 - skew))).astype(np.int64)
    found[drawn * total < two] = 1
    found[drawn * total < 1] = 0
    return np.minimum(found, numbers - 1)
