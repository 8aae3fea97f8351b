"""What user's code raises, as the layer of functions sees it; the errors that callers get, too."""

from tussock.compute.applications.errors import FunctionFault, TransactionAborted

__all__ = ["FunctionFault", "StateUnread", "TransactionAborted", "text_of"]


TEXT_MAX = 10_000


def text_of(error: BaseException) -> str:
    """What a user's error says, as text that can be kept and sent; its class, if it says nothing."""
    try:
        text = str(error)[:TEXT_MAX]
    except Exception:  # noqa: BLE001 - of the user's class
        text = ""
    # A file name may have half a pair of surrogates, which UTF-8 lacks.
    return text.encode("utf-8", "backslashreplace").decode() or type(error).__name__


class StateUnread(BaseException):
    """The store could not say what an entity's state is. Not an `Exception`, so that no user's code catches it."""

    def __init__(self, cause: Exception) -> None:
        super().__init__(str(cause))
        self.cause = cause
