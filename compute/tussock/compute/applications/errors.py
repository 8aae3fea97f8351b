"""Errors of applications; each derives from `TussockError`."""

from tussock.statestore.errors import TussockError

__all__ = [
    "ApplicationFenced",
    "ApplicationStopped",
    "BadInput",
    "BadRow",
    "Full",
    "FunctionFault",
    "HistoryGone",
    "InputLost",
    "NotDeterministic",
    "OutcomeUnknown",
    "OutputLost",
    "OutsideCallFailed",
    "ProcedureError",
    "ServiceUnavailable",
    "StreamChanged",
    "TablesChanged",
    "TransactionAborted",
    "WorkerFault",
]


class ProcedureError(TussockError, RuntimeError):
    """A procedure raised; its whole batch is rolled back. `procedure`, `batch_id` and `cause` say which and why."""

    def __init__(self, message: str, procedure: str, batch_id: int | None, cause: str) -> None:
        super().__init__(message, procedure, batch_id, cause)
        self.procedure = procedure
        self.batch_id = batch_id
        """Of a call `None`."""
        self.cause = cause
        """Class and text of what was raised; the error itself is the `__cause__` where it was raised in this run."""

    def __str__(self) -> str:
        return str(self.args[0])


class TransactionAborted(TussockError, RuntimeError):
    """A function raised, so that nothing of its transaction is stored; the text is the function's own.

    `operator`, `key` and `function` say which one it was, `kind` is the class of what it raised, and `at` the line that
    did, such as `orders.py:17`; empty where no line did.
    """

    def __init__(
        self,
        message: str,
        kind: str,
        operator: str,
        key: str | int | bytes,
        function: str,
        at: str = "",
        stack: str = "",
    ) -> None:
        """`stack`: the calls that led there, as a worker has told them; for the log, and no fact for callers."""
        super().__init__(message, kind, operator, key, function, at)
        self.kind = kind
        self.operator = operator
        self.key = key
        self.function = function
        self.at = at
        self.stack = stack

    def saying(self, message: str) -> "TransactionAborted":
        """The same, with that text."""
        found = TransactionAborted(message, self.kind, self.operator, self.key, self.function, self.at, self.stack)
        found.__cause__ = self.__cause__
        return found

    @property
    def told(self) -> str:
        """Class, text and place of what was raised."""
        return f"{self.kind}: {self}{self.at and f' ({self.at})'}"

    def __str__(self) -> str:
        return str(self.args[0])


class FunctionFault(TussockError, ValueError):
    """What a function asks of its context cannot be: a state, a call or a reply that nobody can keep.

    It ends the function's transaction, and callers get it as a `TransactionAborted` of this kind.
    """


class OutsideCallFailed(TussockError, RuntimeError):
    """What `ctx.call_external` calls has raised; a function may catch it and go on, also at a replay.

    The text is that of what was raised, and `kind` its class.
    """

    def __init__(self, message: str, kind: str) -> None:
        super().__init__(message, kind)
        self.kind = kind

    def __str__(self) -> str:
        return str(self.args[0])


class NotDeterministic(TussockError, RuntimeError):
    """A replay had another result than the run that was recorded; the application does not start."""


class TablesChanged(NotDeterministic):
    """Somebody else has committed to a table of the application since its last commit, so what follows from it differs.

    `args[1]` is the table, `args[2]` the newest epoch that was committed to it.
    """


class ApplicationFenced(TussockError, RuntimeError):
    """Another runner has taken the application over, or somebody else has written to its tables; this one has ended."""


class ApplicationStopped(TussockError, RuntimeError):
    """The application is not running: it was not started, or it was stopped."""


class Full(TussockError, RuntimeError):
    """Too many requests wait already; this one did not begin. `args[1]` says in how many milliseconds to try again."""


class OutcomeUnknown(TussockError, ConnectionError):
    """The connection to the application broke after the request was sent: it may have run, or may still run.

    A batch with an id may be given again and gets its first reply; for others only the application's tables tell.
    """


class ServiceUnavailable(TussockError, ConnectionError):
    """No application answers at that address; the request was not sent, so it may be repeated."""


class InputLost(TussockError, LookupError):
    """What a feed would have to read is gone from its source. `args[1]` is the table or topic."""


class BadInput(TussockError, ValueError):
    """A feed gave what cannot be used, and is declared to stop then; the message says where in the source it is."""


class OutputLost(TussockError, RuntimeError):
    """What was sent to a topic cannot be told, so nothing more is sent. `args[1]` is the topic."""


class WorkerFault(TussockError, RuntimeError):
    """The processes that run a program's functions cannot do it: they die again and again, or do not fit."""


class BadRow(TussockError, ValueError):
    """A record of a transaction cannot be computed or put; nothing of the transaction is stored.

    `stream`, `seq` and `row` say which transaction of what enters the stream, and which record of it, from 0 (`None` if
    it is not known); `cause` says why.
    """

    def __init__(self, message: str, stream: str, seq: int, row: int | None, cause: str) -> None:
        super().__init__(message, stream, seq, row, cause)
        self.stream = stream
        self.seq = seq
        self.row = row
        self.cause = cause

    def __str__(self) -> str:
        return str(self.args[0])


class StreamChanged(TussockError, ValueError):
    """A stream is another one than that which has written its rows, or its table was altered; the flow does not go on.

    `args[1]` is the stream; the message says what differs.
    """


class HistoryGone(TussockError, LookupError):
    """A subscriber asks for transactions that are no longer kept. `args[1]` is the oldest number that is."""
