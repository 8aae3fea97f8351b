"""`key_order` sorts bytewise and stably in each of its ways."""

import subprocess
import sys
from itertools import pairwise

import numpy as np
import pyarrow as pa
import pytest

from tussock.statestore.rows.key_arrays import key_order, repeats

ROWS = 3000


def random_keys(width: int, rows: int = ROWS) -> list[bytes]:
    data = np.random.default_rng(width).bytes(width * rows)
    return [data[at * width : (at + 1) * width] for at in range(rows)]


def tied(width: int) -> list[bytes]:
    """Keys that share their first eight bytes in pairs and differ behind them, the larger one first."""
    return [key[:8] + bytes([1 - at % 2]) * (width - 8) for key in random_keys(width, ROWS // 2) for at in (0, 1)]


def shuffle(keys: list[bytes]) -> list[bytes]:
    return [keys[at] for at in np.random.default_rng(5).permutation(len(keys))]


CASES = {
    "random": random_keys(16),
    "shorter than a word": random_keys(5),
    "one word": random_keys(8),
    "runs": [key for run in range(4) for key in sorted(random_keys(16)[run::4])],
    "runs of the same keys": 4 * sorted(random_keys(16)),
    "shuffled with repeats": shuffle(2 * random_keys(16)),
    "tied words in runs": tied(12),
    "tied words, shuffled": shuffle(tied(12)),
    "same first bytes": shuffle([b"prefix--" + key for key in random_keys(4)]),
    "zero bytes at the end": shuffle([key + bytes(8) for key in random_keys(8)] + [bytes(16), bytes(15) + b"\1"]),
    "several widths": shuffle(random_keys(16) + random_keys(9)),
    "sorted": sorted(random_keys(16)),
    "reversed": sorted(random_keys(16), reverse=True),
    "one": [b"only"],
    "none": [],
}


@pytest.mark.parametrize("name", CASES)
@pytest.mark.parametrize("skip", [0, 3])
def test_key_order_is_the_stable_bytewise_order(name: str, skip: int):
    """The order is that of Python's stable sort of the keys, also of a slice that does not begin at row 0."""
    keys = CASES[name]
    array = pa.array(keys, pa.binary()).slice(skip)
    expected = sorted(range(len(keys[skip:])), key=keys[skip:].__getitem__)
    assert key_order(array).tolist() == expected


def test_few_keys_need_no_threads() -> None:
    """A process that merges a few rows at a time starts none: handing keys to Polars costs more than their sort."""
    script = (
        "import sys\n"
        "import pyarrow as pa\n"
        "from tussock.statestore.rows.key_arrays import key_order, repeats\n"
        "keys = pa.array([b'b', b'aa', b'b', b'a'] * 256, pa.binary())\n"
        "order = key_order(keys)\n"
        "assert keys.take(pa.array(order)).to_pylist() == sorted(keys.to_pylist())\n"
        "assert repeats(keys.take(pa.array(order))).sum() == 1021\n"
        "assert 'polars' not in sys.modules\n"
    )
    subprocess.run([sys.executable, "-c", script], check=True)


@pytest.mark.parametrize("width", [1, 7, 8, 9, 15, 16, 17, 31])
@pytest.mark.parametrize("rows", [1, 2, 255, 256, 700])
def test_repeats_are_found_in_keys_of_any_width(width: int, rows: int) -> None:
    """Also where keys differ in one byte only, wherever that is, and where the array is a slice."""
    base = random_keys(width, rows)
    keys = [*base, *base[::3], *(key[:at] + b"x" + key[at + 1 :] for at, key in enumerate(base) if at < width)]
    keys.sort()
    expected = [False, *(left == right for left, right in pairwise(keys))]
    assert repeats(pa.array(keys, pa.binary())).tolist() == expected
    assert repeats(pa.array([b"before", *keys], pa.binary()).slice(1)).tolist() == expected
