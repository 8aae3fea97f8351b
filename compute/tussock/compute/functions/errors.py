"""What user's code raises, as the layer of functions sees it; the errors that callers get, too."""

from tussock.compute.applications.errors import FunctionFault, OutsideCallFailed, TransactionAborted, WorkerFault

__all__ = [
    "Diverged",
    "FunctionFault",
    "OutsideCallFailed",
    "ReplayDiffers",
    "StateUnread",
    "TransactionAborted",
    "WorkerFault",
    "WorkerLost",
]


class Diverged(BaseException):
    """A run of the lock phase reads what it has no lock on. Not an `Exception`, for the same reason as below."""


class ReplayDiffers(BaseException):
    """A replay asked for what the first run had not asked for. Not an `Exception`, for the same reason as below."""


class StateUnread(BaseException):
    """The store could not say what an entity's state is. Not an `Exception`, so that no user's code catches it."""

    def __init__(self, cause: Exception) -> None:
        super().__init__(str(cause))
        self.cause = cause


class WorkerLost(Exception):
    """A process that the program shares its entities with is gone, or does not answer; what it had is lost."""
