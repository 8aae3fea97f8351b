"""Thousands of random operations compared with plain dicts, in stores with levels, spills and old versions."""

import pytest

from support.models.differential import History
from tussock.statestore.read.key_reader import KeyReader


@pytest.mark.parametrize("seed", range(101, 104))
def test_random_operations_equal_plain_dicts(seed: int) -> None:
    """`make differential OPERATIONS=1000000` runs more of them."""
    History(seed).run(2000)


def test_a_wrong_answer_is_reported_with_its_seed(monkeypatch: pytest.MonkeyPatch) -> None:
    """Otherwise the comparison could compare nothing."""
    found = KeyReader.find
    monkeypatch.setattr(KeyReader, "find", lambda reader, key, epoch: found(reader, key + b"\0", epoch))
    with pytest.raises(AssertionError, match=r"seed 101, operation \d+, after .*'_get'\]"):
        History(101).run(500)
