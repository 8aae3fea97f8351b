"""What user's code raises, as the layer of functions sees it; the errors that callers get, too."""

from tussock.compute.applications.errors import FunctionFault, OutsideCallFailed, TransactionAborted, WorkerFault
from tussock.statestore import errors as of_store
from tussock.statestore.errors import TussockError

__all__ = [
    "Diverged",
    "FunctionFault",
    "Interrupt",
    "OutsideCallFailed",
    "ReplayDiffers",
    "StateUnread",
    "TransactionAborted",
    "WorkerFault",
    "WorkerLost",
    "unread_of",
]


class Interrupt(BaseException):
    """Ends the run of a transaction, of which the engine knows more than its functions.

    Not an `Exception`, so that a user's `except Exception` lets it pass. A bare `except` catches it: so the context of
    the function has it, and whatever the function does then, the run ends by it.
    """


class Diverged(Interrupt):
    """A run of the lock phase reads what it has no lock on."""


class ReplayDiffers(Interrupt):
    """A replay asked for what the first run had not asked for."""


class StateUnread(Interrupt):
    """The store could not say what an entity's state is."""

    def __init__(self, cause: Exception) -> None:
        super().__init__(str(cause))
        self.cause = cause


class WorkerLost(Exception):
    """A process that the program shares its entities with is gone, or does not answer; what it had is lost."""


def unread_of(why: str, kind: str) -> TussockError:
    """What the store said where a worker could not read a state, by its text and its class."""
    error: TussockError = (getattr(of_store, kind) if kind in of_store.__all__ else TussockError)(why)
    return error
