"""Bytes that do not hold what they should."""

import msgspec

__all__ = ["UNREADABLE"]

UNREADABLE = (msgspec.MsgspecError, UnicodeDecodeError, RecursionError)
"""What msgspec raises for bytes that it cannot decode.

Text that is not UTF-8, and nesting that is too deep, it tells by errors that are none of its classes.
"""
