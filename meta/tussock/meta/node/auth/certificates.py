"""What a client's certificate says about it, and which roles follow.

The TLS library has checked the certificate against `tls.client_ca` before any of this runs; here its names are matched
with the patterns of `tls.roles`. A pattern is a kind, a colon and a name: `CN:compactor-*`, `OU:analytics`,
`URI:spiffe://prod/ns/streams/*`, `DNS:worker.example`. A `*` at the end stands for anything, elsewhere for itself.
"""

import re
from collections.abc import Mapping, Sequence

from tussock.meta.node.auth.tokens import ROLES
from tussock.meta.rpc.methods import Role
from tussock.statestore.errors import InvalidOption

__all__ = ["CertificateRules", "certificate_names", "fits", "pattern_misfit"]

KINDS = ("CN", "OU", "URI", "DNS")
_ESCAPED = re.compile(r"\\(?:([0-9A-Fa-f]{2})|(.))", re.DOTALL)


def certificate_names(auth_context: Mapping[str, Sequence[bytes]]) -> tuple[str, ...]:
    """The names of a peer's certificate as patterns see them (`CN:worker-1`), by what gRPC tells of the connection.

    Empty without a certificate. The common name comes first, for that is how people know it.
    """
    names = [f"CN:{_text(value)}" for value in auth_context.get("x509_common_name", ())]
    for subject in auth_context.get("x509_subject", ()):
        names += [f"OU:{unit}" for unit in _units(_text(subject))]
    names += [f"URI:{_text(value)}" for value in auth_context.get("peer_uri", ())]
    names += [f"DNS:{_text(value)}" for value in auth_context.get("peer_dns", ())]
    return tuple(names)


class CertificateRules:
    """The patterns of `tls.roles` and `tls.revoked`."""

    def __init__(self, patterns: Mapping[str, Sequence[str]], revoked: Sequence[str] = ()) -> None:
        """Patterns by role; `InvalidOption` for one of no known kind, or that would match every name of a kind."""
        self._patterns = [
            (_check(pattern, f"tls.roles.{role}"), ROLES[role]) for role, some in patterns.items() for pattern in some
        ]
        self._revoked = [_check(pattern, "tls.revoked") for pattern in revoked]

    def __bool__(self) -> bool:
        """Whether there is any rule."""
        return bool(self._patterns)

    def roles(self, names: Sequence[str]) -> Role:
        """All roles that one of `names` has; none if no pattern fits."""
        roles = Role(0)
        for pattern, granted in self._patterns:
            if any(fits(pattern, name) for name in names):
                roles |= granted
        return roles

    def is_revoked(self, names: Sequence[str]) -> bool:
        """Whether a certificate with these names is taken no more, whichever roles it would have."""
        return any(fits(pattern, name) for pattern in self._revoked for name in names)

    def identity(self, names: Sequence[str]) -> str:
        """Which of `names`, at least one, the caller goes by: a URI that gives it a role, else the first.

        An issuer may sign a common name without a look, while a URI with a role is what it answers for; and it tells
        more: of which store and job somebody is, where the common name only says the role.
        """
        uris = (name for name in names if name.startswith("URI:"))
        return next((uri for uri in uris if self.roles([uri])), names[0]).partition(":")[2]


def pattern_misfit(pattern: str) -> str:
    """What is wrong with a pattern: it is of no known kind, or matches every name of a kind; empty if nothing is."""
    kind, separator, name = pattern.partition(":")
    if separator and kind in KINDS and name not in ("", "*"):
        return ""
    kinds = ", ".join(KINDS)
    return f"{pattern!r} should be one of {kinds}, a colon, and a name or the beginning of one with '*' after it"


def _check(pattern: str, option: str) -> str:
    misfit = pattern_misfit(pattern)
    if misfit:
        raise InvalidOption(f"{option}: {misfit}", pattern)
    return pattern


def fits(pattern: str, name: str) -> bool:
    """Whether a name is that of a pattern, or begins as one that ends in `*` does."""
    return name.startswith(pattern[:-1]) if pattern.endswith("*") else name == pattern


def _units(subject: str) -> list[str]:
    r"""The organizational units of a subject in the form of RFC 2253: `OU=streams\, eu,CN=worker`."""
    parts = re.findall(r"(?:\\.|[^,+\\])+", subject, re.DOTALL)
    return [_plain(part[3:]) for part in parts if part.startswith("OU=")]


def _plain(escaped: str) -> str:
    # The TLS library escapes every byte of UTF-8 that is not ASCII.
    plain = _ESCAPED.sub(lambda match: chr(int(match[1], 16)) if match[1] else str(match[2]), escaped)
    return plain.encode("latin-1", "replace").decode("utf-8", "backslashreplace")


def _text(value: bytes) -> str:
    return value.decode("utf-8", "backslashreplace")
