"""Errors of transactional functions; each derives from `TussockError`."""

from tussock.compute.applications.arguments import clean_text
from tussock.statestore.errors import TussockError

__all__ = ["FunctionFault", "ReplayDiffers", "StateUnread", "TransactionAborted", "text_of"]


TEXT_MAX = 10_000


class TransactionAborted(TussockError, RuntimeError):
    """A function raised, so that nothing of its transaction is stored; the text is the function's own.

    `operator`, `key` and `function` say which one it was, and `kind` is the class of what it raised.
    """

    def __init__(self, message: str, kind: str, operator: str, key: str | int | bytes, function: str) -> None:
        super().__init__(message, kind, operator, key, function)
        self.kind = kind
        self.operator = operator
        self.key = key
        self.function = function

    def __str__(self) -> str:
        return str(self.args[0])


def text_of(error: BaseException) -> str:
    """What a user's error says, as text that can be kept and sent; its class, if it says nothing."""
    try:
        text = clean_text(str(error)[:TEXT_MAX])
    except BaseException:  # noqa: BLE001 - the text is a user's code, too
        text = ""
    return text or type(error).__name__


class ReplayDiffers(BaseException):
    """A replay asked for what the first run had not asked for. Not an `Exception`, for the same reason as below."""


class StateUnread(BaseException):
    """The store could not say what an entity's state is. Not an `Exception`, so that no user's code catches it."""

    def __init__(self, cause: Exception) -> None:
        super().__init__(str(cause))
        self.cause = cause


class FunctionFault(TussockError, ValueError):
    """What a function asks of its context cannot be: a state, a call or a reply that nobody can keep.

    It ends the function's transaction, and callers get it as a `TransactionAborted` of this kind.
    """
