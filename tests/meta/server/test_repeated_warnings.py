"""A failure that lasts is one line, and then one a minute."""

import pytest

from support.store.versions import FakeSystem
from tussock.meta.node.repeated_warnings import RepeatedWarnings
from tussock.statestore.base.logs import get_logger


def test_the_same_is_told_once_a_minute_with_a_count(caplog: pytest.LogCaptureFixture) -> None:
    """Two a second for two minutes are three lines; something else among them is told at once."""
    system = FakeSystem()
    warnings = RepeatedWarnings(get_logger("tussock.meta.test"), system)
    for _ in range(241):
        warnings.warn("the log could not be read", ValueError("entry 7 is damaged"))
        system.forward(0.5)
    warnings.warn("the log could not be read", ValueError("entry 8 is damaged"))
    lines = [record.getMessage() for record in caplog.records]
    assert len(lines) == 4
    assert "repeated" not in lines[0]
    assert "repeated=119" in lines[1]
    assert "repeated=119" in lines[2]
    assert "entry 8" in lines[3]


def test_many_different_failures_take_no_memory(caplog: pytest.LogCaptureFixture) -> None:
    """Each is told, and of old ones nothing is remembered."""
    warnings = RepeatedWarnings(get_logger("tussock.meta.test"), FakeSystem())
    for number in range(100):
        warnings.warn("failed", ValueError(number))
    warnings.warn("failed", ValueError(0))
    assert len(caplog.records) == 101
