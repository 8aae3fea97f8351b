"""The outside addresses of replicas: where clients reach each that cannot reach the one it advertises.

A replica behind a load balancer, or a port of a cluster's nodes, has two addresses. The log and the other replicas know
it by the one that it advertises; a file says for each of those which one the outside has:

```toml
[addresses]
"10.244.1.7:7370" = "meta-0.example.com:7370"
"10.244.2.9:7370" = "meta-1.example.com:7370"
```

The file may be behind for a moment, as after a replica was replaced. A client that hears of no address then asks the
next one that it knows, so nothing is lost but that question.
"""

import re
import tomllib
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from tussock.statestore.base.system import System
from tussock.statestore.base.watched_files import WatchedFiles
from tussock.statestore.errors import InvalidOption, NotLeader, TussockError

__all__ = ["OutsideAddresses", "read_outside"]

FILE_BYTES_MAX = 64 << 10
ADDRESSES_MAX = 100
"""A service has up to seven replicas, and former ones may still be in the file."""
_ADDRESS = re.compile(r"(?!.*[@/,\s])(?P<host>.{1,255}):(?P<port>[1-9][0-9]{0,4})")


class OutsideAddresses:
    """The addresses as the file says now. Safe to share between threads."""

    def __init__(self, path: str, system: System) -> None:
        """Reads the file; `InvalidOption` if it cannot be used."""
        self._files = WatchedFiles([path], read_outside, system)

    def told(self, error: TussockError) -> TussockError:
        """What a caller from outside is told in place of `error`: where the leader is for them, if that is known.

        Never the leader's inside address: a client would try that until its attempt is over.
        """
        if not isinstance(error, NotLeader):
            return error
        inside = str(error.args[1]) if len(error.args) > 1 else ""
        leader = self._files.current().get(inside, "") if inside else ""
        if leader:
            return NotLeader(f"the replica asked does not lead; from outside the leader is at {leader}", leader)
        why = "has no address outside yet" if inside else "is not known at the moment"
        return NotLeader(f"the replica asked does not lead, and the leader {why}; ask the other replicas", "")


def read_outside(paths: Sequence[str]) -> Mapping[str, str]:
    """The addresses in a file, by those inside; `InvalidOption` with what is wrong in it."""
    (path,) = paths
    file = Path(path)
    if (size := file.stat().st_size) > FILE_BYTES_MAX:
        raise InvalidOption(f"{path} has {size} bytes, and a file of outside addresses may have {FILE_BYTES_MAX}", path)
    try:
        found = tomllib.loads(file.read_text(encoding="utf-8"))
    except (UnicodeDecodeError, tomllib.TOMLDecodeError) as error:
        raise InvalidOption(f"{path} is not TOML: {error}", path) from None
    if unknown := sorted(found.keys() - {"addresses"}):
        raise InvalidOption(
            f"{path}: {unknown[0]!r} is not known; expected the table [addresses] and nothing else", path
        )
    return _addresses(path, found.get("addresses", {}))


def _addresses(path: str, found: Any) -> Mapping[str, str]:
    if not isinstance(found, dict) or len(found) > ADDRESSES_MAX:
        raise InvalidOption(f"{path}: addresses should be a table of up to {ADDRESSES_MAX} addresses", path)
    for inside, outside in found.items():
        for address in (inside, outside):
            if not _is_address(address):
                raise InvalidOption(
                    f"{path}: {str(address)[:100]!r} in addresses should be HOST:PORT, such as meta.example.com:7370",
                    path,
                )
    return found


def _is_address(value: object) -> bool:
    found = _ADDRESS.fullmatch(value) if isinstance(value, str) else None
    return found is not None and found["host"].isprintable() and int(found["port"]) < 65536
