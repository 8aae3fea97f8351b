"""The one place where errors of the library obstore become errors of the store.

The library says little by type, so its text is read too: how often it tried, whether it is the object or the whole
bucket that is missing. The text is cleaned of whatever may be secret (signed URLs, user names) before anything of it
is shown, and the chained cause is a cleaned copy.
"""

import re

from obstore.exceptions import PermissionDeniedError, UnauthenticatedError

from tussock.statestore.buckets.urls import without_secrets
from tussock.statestore.errors import ObjectNotFound, ObjectStoreUnavailable, TussockError

__all__ = ["DENIED", "NO_BUCKET", "is_past_end", "is_timeout", "translate"]

NO_BUCKET = "the bucket does not exist"
DENIED = "access was denied"
"""In the message of an error: what is wrong with the whole bucket, for code that tells a person what to do."""

_DETAIL_MAX = 300
_RETRIES = re.compile(r"after (\d+) retries")
_PAST_END = re.compile(r"InvalidRange|StartTooLarge|Wanted range starting at|416 Range Not Satisfiable")
_NO_BUCKET = re.compile(r"NoSuchBucket|ContainerNotFound|bucket does not exist", re.IGNORECASE)
_DENIED = re.compile(r"403 Forbidden|401 Unauthorized|code: AccessDenied")  # a listing: `GenericError`
_TIMEOUT = re.compile(r"kind: Timeout\b|\bTimedOut\b|operation timed out")
_ANSWER = re.compile(r"<Code>([^<]*)</Code>(?:\s*<Message>([^<]*)</Message>)?")


def is_past_end(error: Exception) -> bool:
    """Whether a ranged read failed because the object ends at or before the first byte asked for."""
    return bool(_PAST_END.search(str(error)))


def is_timeout(error: Exception) -> bool:
    """Whether a request was given up because its answer did not come in time."""
    return bool(_TIMEOUT.search(str(error)))


def translate(error: Exception, operation: str, path: str, where: str, seconds: float) -> TussockError:
    """The error to raise for the library's `error`, its `__cause__` set to a copy without secrets.

    `where` names bucket and endpoint; `seconds` is how long the call took.
    """
    text = str(error)
    detail = _detail(text)
    no_bucket = bool(_NO_BUCKET.search(text))
    failure: TussockError
    if isinstance(error, FileNotFoundError) and not no_bucket and operation in ("get", "get_range"):
        failure = ObjectNotFound(f"there is no object {path} in {where}")
    else:
        retries = _RETRIES.search(text)
        attempts = int(retries[1]) + 1 if retries else 1
        what = f"{operation} of {path}" if path else operation
        failure = ObjectStoreUnavailable(
            f"{what} in {where} failed after {attempts} attempt{'s' * (attempts > 1)} in {seconds:.1f} s: "
            f"{_advice(error, text, no_bucket)} ({detail})"
        )
    failure.__cause__ = type(error)(detail)
    return failure


def _detail(text: str) -> str:
    """The part of the library's text that helps a person: what it asked of which URL, and the server's answer."""
    # The library appends its internal structures, which repeat the message, and shows the server's XML as it came,
    # which may hold what was signed.
    asked = text.partition("\n\nDebug source")[0].partition("<?xml")[0]
    answer = _ANSWER.search(text)
    if answer:
        asked += " ".join(filter(None, answer.groups()))
    return " ".join(without_secrets(asked).split())[:_DETAIL_MAX]


def _advice(error: Exception, text: str, no_bucket: bool) -> str:
    if no_bucket or isinstance(error, FileNotFoundError):
        return f"{NO_BUCKET}; create it, or correct its name in the URL"
    if isinstance(error, (PermissionDeniedError, UnauthenticatedError)) or _DENIED.search(text):
        return f"{DENIED}; check the credentials in the environment and the bucket's policy"
    return "check that the endpoint can be reached and answers; the call is safe to repeat"
