"""What goes wrong between the operator and the API server, by what is to be done about it.

The client's own exceptions are translated in one place (`api.py`). A message names verb and object and holds the
server's words, but not where these may repeat what was sent: a refused secret must not end up in a log.
"""

from tussock.operator.planning.words.model import Ref

__all__ = ["ApiConflict", "ApiError", "ApiNotFound", "ApiRefused", "ApiUnavailable", "NameInUse"]


class ApiError(Exception):
    """A request to the API server did not succeed; `status` is HTTP's, 0 if there was no answer."""

    def __init__(self, message: str, status: int = 0) -> None:
        super().__init__(message, status)
        self.status = status

    def __str__(self) -> str:
        return str(self.args[0])


class ApiUnavailable(ApiError):
    """The server is away, overloaded or slow: the same request may succeed later."""


class ApiConflict(ApiError):
    """Somebody else changed the object, or made it: look again, then decide again."""


class ApiNotFound(ApiError):
    """The object, its namespace or its kind is not there."""


class ApiRefused(ApiError):
    """The server will not have it, since rights are missing or it is not valid: a person must change something."""


class NameInUse(ApiRefused):
    """An object that is not ours has the name of a child; we refuse to touch it, and the server was not asked to."""

    def __init__(self, message: str, ref: Ref, *, passes: bool) -> None:
        """`passes`: it goes by itself, with the former resource of the same name that it belongs to."""
        super().__init__(message)
        self.ref = ref
        self.passes = passes
