"""PySpark's loggers, kept from changing how the tests see the log; a plugin of pytest.

A logger of PySpark sets the formatter of each handler that it is given. Pytest gives its handler to every logger that
does not propagate, and those of PySpark stop to propagate with the first error of SQL: all that later tests find in
`caplog.text` would be JSON.
"""

import logging
from collections.abc import Generator

import pytest

__all__ = ["pytest_runtest_call", "pytest_runtest_setup", "pytest_runtest_teardown"]


@pytest.hookimpl(wrapper=True, tryfirst=True)
def _before_pytest_looks() -> Generator[None, None, None]:
    for logger in list(logging.root.manager.loggerDict.values()):
        if type(logger).__module__.startswith("pyspark.") and isinstance(logger, logging.Logger):
            logger.propagate = True
    yield


pytest_runtest_setup = pytest_runtest_call = pytest_runtest_teardown = _before_pytest_looks
"""Each part of a test, since each may have met an error before the next."""
