"""Errors that Python could raise nowhere, in the line that says why a test failed: a log's end often has no more."""

from collections.abc import Generator

import pytest

__all__ = ["pytest_runtest_makereport"]

TEXT_MAX = 400


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(call: "pytest.CallInfo[None]") -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """Name the first of several; pytest alone says how many there were."""
    report = yield
    error = call.excinfo.value if call.excinfo is not None else None
    crash = getattr(report.longrepr, "reprcrash", None)
    if crash is not None and isinstance(error, BaseExceptionGroup):
        first = error.exceptions[0]
        cause = f"{first.__cause__!r} after {first}" if first.__cause__ is not None else str(first)
        crash.message = f"{error}; the first: {' '.join(cause.split()):.{TEXT_MAX}}"
    return report
