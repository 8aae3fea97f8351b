"""Errors over the wire: the client raises the class that the application raised, whatever its facts are."""

import pytest

from tussock.compute.applications.errors import ApplicationStopped, Full, ProcedureError, TransactionAborted
from tussock.compute.service.rpc.application_errors import FACTS_BYTES_MAX, TEXT_BYTES_MAX, error_of, message_of
from tussock.statestore.errors import TussockError

ERRORS: list[TussockError] = [
    ProcedureError("no", "take", 3, "ValueError"),
    TransactionAborted("not enough", "NotEnough", "account", "p1", "transfer"),
    TransactionAborted("not enough", "NotEnough", "purse", 7, "give"),
    TransactionAborted("not enough", "NotEnough", "purse", b"\x00\xff", "give"),
    Full("later", 50),
    ApplicationStopped("no more"),
]


@pytest.mark.parametrize("error", ERRORS, ids=lambda error: type(error).__name__)
def test_an_error_comes_as_it_was_raised(error: TussockError) -> None:
    """Class, text and facts."""
    found = error_of(message_of(error))
    assert type(found) is type(error)
    assert found.args == error.args


@pytest.mark.parametrize("key", ["k" * 1024, "\U0001f600" * 1024, b"\xff" * 4096, 1 << 62])
@pytest.mark.parametrize("name", ["f", "f" * 1500, "\U0001f600" * 5000])
def test_facts_that_are_too_long_are_cut_and_the_class_stays(key: str | int | bytes, name: str) -> None:
    """Story: with more than 4 KiB of them an abort came without facts, and so as a plain `TussockError`."""
    error = TransactionAborted("x" * 10_000, name, name, key, name)
    message = message_of(error)
    assert len(message.facts) <= FACTS_BYTES_MAX
    assert len(message.message.encode()) <= TEXT_BYTES_MAX
    found = error_of(message)
    assert type(found) is TransactionAborted
    for given, came in zip(error.args, found.args, strict=True):
        if came != given:
            assert isinstance(came, str | bytes)
            stem = came[:-4]
            assert len(stem.encode() if isinstance(stem, str) else stem) > 200
            assert given.startswith(stem)
            assert came[-4:] in (" ...", b" ...")
