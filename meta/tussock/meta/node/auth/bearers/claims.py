"""What a signed token (JWT, RFC 7519) says of itself, before anybody has proven it.

Good for one thing only: to see whom to ask, and whether it is worth asking. So junk, and tokens of somebody who is not
declared, cost no request.
"""

import base64
import json
from collections.abc import Mapping
from typing import Any

__all__ = ["account_of", "unproven_claims"]

TOKEN_BYTES_MAX = 16 << 10
"""Tokens of Kubernetes have about one KiB, and gRPC takes 8 KiB of metadata."""
_ACCOUNT = "system:serviceaccount:"


def unproven_claims(token: str) -> Mapping[str, Any] | None:
    """The claims, which may all be lies; `None` for what is no such token."""
    parts = token.split(".")
    if len(parts) != 3 or len(token) > TOKEN_BYTES_MAX:
        return None
    try:
        claims = json.loads(base64.urlsafe_b64decode(parts[1] + "=" * (-len(parts[1]) % 4)))
    except (ValueError, RecursionError):
        return None
    return claims if isinstance(claims, dict) else None


def account_of(name: object) -> str:
    """`NAMESPACE/NAME` of the service account that Kubernetes calls so; empty if it is none."""
    if not isinstance(name, str) or not name.startswith(_ACCOUNT):
        return ""
    namespace, separator, account = name.removeprefix(_ACCOUNT).partition(":")
    return f"{namespace}/{account}" if separator and namespace and account and ":" not in account else ""
