"""In which rounds the requests of a batch run, so that the result is that of one after the other.

A request runs in the first round in which it is the lowest that is left at each of its keys. So requests of one round
share no key, and one that shares a key with a lower request runs behind it. What each request touches is known before,
so nothing has to run twice.
"""

from collections.abc import Iterator

import numpy as np
import numpy.typing as npt

__all__ = ["rounds"]

Numbers = npt.NDArray[np.int64]


def rounds(codes: Numbers, keys: int) -> Iterator[Numbers]:
    """The rows of each round, ascending.

    `codes`: for each row the numbers of the keys that it touches, as an array (rows, keys of a row) of numbers below
    `keys`. Costs a few steps for each row and round in which the row is left; as many rounds as rows share one key.
    """
    left = np.arange(len(codes))
    lowest = np.empty(keys, np.int64)
    while len(left):
        touched = codes[left]
        lowest[touched] = len(codes)
        for column in range(codes.shape[1]):
            np.minimum.at(lowest, touched[:, column], left)
        runs = (lowest[touched] == left[:, None]).all(axis=1)
        yield left[runs]
        left = left[~runs]
