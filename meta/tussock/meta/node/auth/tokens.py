"""Bearer tokens: a file of names, roles and hashes, and the secrets that fit them.

A line of the file is `NAME ROLES sha256:HEX`; `ROLES` are joined by commas; `#` begins a comment. The hash is that of
the whole token. A plain SHA-256 is enough: a token has 256 random bits, so that nobody can try them through, as could
be done with a password. While a token is replaced, its name stands on two lines.
"""

import base64
import hashlib
import hmac
import re
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

from tussock.meta.rpc.methods import Role
from tussock.statestore.base.system import System
from tussock.statestore.errors import InvalidOption

__all__ = ["ROLES", "Token", "TokensFile", "create_token", "find_token", "read_tokens"]

_SECRET_BYTES = 32
FORMER_TOKENS_MAX = 256
"""The tokens that left the file last, each of which a refused call is compared with."""
_LINE = re.compile(r"([A-Za-z0-9][A-Za-z0-9._-]{0,62})\s+([a-z,]+)\s+sha256:([0-9a-f]{64})", re.ASCII)

ROLES = {
    "reader": Role.READER,
    "writer": Role.READER | Role.WRITER,
    "compactor": Role.READER | Role.COMPACTOR,
    "admin": Role.READER | Role.WRITER | Role.COMPACTOR | Role.ADMIN,
}
"""What each role of a file or a rule may do: each includes the reader's."""


class Token(NamedTuple):
    """A token as the file knows it."""

    name: str
    roles: Role
    digest: bytes


def create_token(name: str, roles: str, system: System) -> tuple[str, str]:
    """A fresh token and the line for the file; the token itself is kept nowhere. `InvalidOption` for odd names."""
    secret = "tussock_" + base64.urlsafe_b64encode(system.random_bytes(_SECRET_BYTES)).decode().rstrip("=")
    line = f"{name} {roles} sha256:{hashlib.sha256(secret.encode()).hexdigest()}"
    if _parse(line) is None:
        raise InvalidOption(
            f"a token needs a name of letters, digits, '.', '_' and '-', not {name!r}, and roles out of "
            f"{', '.join(ROLES)}, not {roles!r}",
            name,
            roles,
        )
    return secret, line


def read_tokens(paths: Sequence[str]) -> tuple[Token, ...]:
    """The tokens of a file; `InvalidOption` names the first line that is none, without what it says."""
    (path,) = paths
    tokens = []
    for number, line in enumerate(Path(path).read_text(encoding="utf-8", errors="replace").splitlines(), 1):
        entry = line.partition("#")[0].strip()
        if not entry:
            continue
        token = _parse(entry)
        if token is None:
            # Not repeated: somebody may have put the token itself there.
            raise InvalidOption(f"{path}, line {number}: should be NAME ROLES sha256:HEX, see `tussock meta token`")
        tokens.append(token)
    return tuple(tokens)


class TokensFile:
    """Reads a file of tokens again and again, and remembers those that have left it: a refusal is to say whose it was.

    `read` is called by one thread at a time; `former` may be read by any.
    """

    def __init__(self) -> None:
        self._last: tuple[Token, ...] = ()
        self.former: tuple[Token, ...] = ()
        """Tokens that were in the file and are not, the last ones to leave it; hashes as there, no secrets."""

    def read(self, paths: Sequence[str]) -> tuple[Token, ...]:
        """What `read_tokens` returns."""
        tokens = read_tokens(paths)
        present = {token.digest for token in tokens}
        former = [token for token in (*self.former, *self._last) if token.digest not in present]
        self.former = tuple(former[-FORMER_TOKENS_MAX:])
        self._last = tokens
        return tokens


def find_token(tokens: Sequence[Token], secret: str) -> Token | None:
    """The token that `secret` is, in a time that tells nothing about how close it came."""
    digest = hashlib.sha256(secret.encode("utf-8", "surrogateescape")).digest()
    found = None
    for token in tokens:
        if hmac.compare_digest(token.digest, digest):
            found = token
    return found


def _parse(entry: str) -> Token | None:
    match = _LINE.fullmatch(entry)
    if match is None:
        return None
    names = match[2].split(",")
    if not set(names) <= ROLES.keys():
        return None
    roles = Role(0)
    for name in names:
        roles |= ROLES[name]
    return Token(match[1], roles, bytes.fromhex(match[3]))
