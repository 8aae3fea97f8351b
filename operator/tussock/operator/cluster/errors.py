"""Failures between the operator and the API server, by what to do about them.

The client's own exceptions are translated in one place (`api.py`). A message names verb and object and quotes the
server, unless the quote may repeat what was sent: a refused secret must not end up in a log.
"""

from tussock.operator.planning.words.model import Ref

__all__ = [
    "ApiConflict",
    "ApiError",
    "ApiNotFound",
    "ApiRefused",
    "ApiUnavailable",
    "FieldsUnknown",
    "NameInUse",
    "TemplateFieldsUnknown",
]


class ApiError(Exception):
    """A request to the API server failed; `status` is the HTTP status, 0 if there was no answer."""

    def __init__(self, message: str, status: int = 0) -> None:
        super().__init__(message, status)
        self.status = status

    def __str__(self) -> str:
        return str(self.args[0])


class ApiUnavailable(ApiError):
    """The server is away, overloaded or slow: the same request may succeed later."""


class ApiConflict(ApiError):
    """Another client changed or created the object: read it again, then decide again."""


class ApiNotFound(ApiError):
    """The object, its namespace or its kind does not exist."""


class ApiRefused(ApiError):
    """The server refuses the request: rights are missing or the object is invalid; a person must change something."""


class FieldsUnknown(ApiRefused):
    """The server knows no such fields; nothing was stored."""

    def __init__(self, message: str, status: int, fields: tuple[str, ...]) -> None:
        """`fields` are their paths in the object, as the server writes them."""
        super().__init__(message, status)
        self.fields = fields


class TemplateFieldsUnknown(ApiRefused):
    """Fields of a user's pod template that the server does not know; all else of the object is as wanted."""


class NameInUse(ApiRefused):
    """An object that is not ours has the name of a child; the operator does not touch it, and sent no request."""

    def __init__(self, message: str, ref: Ref, *, passes: bool) -> None:
        """`passes`: the object goes by itself, with the former resource of the same name that it belongs to."""
        super().__init__(message)
        self.ref = ref
        self.passes = passes
