"""Takes secret values out of the texts of libraries and servers, which may repeat what they were given.

Of an unforeseen error only the place is told.
"""

import json
import re
import traceback
from collections.abc import Iterable, Iterator
from pathlib import PurePath

__all__ = ["place_of", "without_values"]

_PART_MIN = 4
"""Shorter values and parts are only taken out where they stand alone: they are in many words."""
_SIGNED = re.compile(r"AWS4-HMAC-SHA256[^'\"]*|(?:Signature|Credential)=[^\s,'\"&]+", re.IGNORECASE)
"""The header that a request is signed with, or a piece of it."""


def without_values(text: str, values: Iterable[str]) -> str:
    """`text` without the secret `values`, and without their parts: a text may show a value escaped or cut."""
    text = _SIGNED.sub("...", text)
    for part in sorted({part for value in values for part in _parts(value)}, key=len, reverse=True):
        edge = "" if len(part) >= _PART_MIN else r"\b"
        text = re.sub(f"{edge}{re.escape(part)}{edge}", "...", text)
    return text


def place_of(error: Exception) -> str:
    """An unforeseen error that was caught, without its text: nobody knows what that repeats, such as a key."""
    where = traceback.extract_tb(error.__traceback__)[-1]
    return f"{type(error).__name__} in line {where.lineno} of {PurePath(where.filename).name}"


def _parts(value: str) -> Iterator[str]:
    for secret in _secrets_in(value):
        yield secret
        yield from (part for part in re.split(r"[^A-Za-z0-9]+", secret) if len(part) >= _PART_MIN)


def _secrets_in(value: str) -> list[str]:
    """What is secret in a value: all of it, or the private key in the JSON of a service account."""
    if not value:
        return []
    try:
        body = json.loads(value)
    except ValueError:
        return [value]
    if not isinstance(body, dict):
        return [value]
    return [str(found) for name, found in body.items() if found and name.startswith("private_key")]
