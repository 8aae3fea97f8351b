"""What `keep=` says: how long, or how many, rows of a stream stay."""

import re
from typing import NamedTuple

from tussock.statestore.errors import InvalidOption

__all__ = ["Keep", "parse_keep"]

_FORM = re.compile(r"\s*(every\s+)?(\d{1,12})\s*(ms|s|m|h|d|rows?)\s*")
_MS = {"ms": 1, "s": 1000, "m": 60_000, "h": 3_600_000, "d": 86_400_000}
MS_MAX = 366 * 86_400_000
ROWS_MAX = 1_000_000_000


class Keep(NamedTuple):
    """One of `ms` and `rows` is not 0."""

    ms: int
    rows: int
    is_jumping: bool
    """All at once, instead of one by one."""

    def cutoff(self, now_ms: int) -> int:
        """Rows of this moment and before have to go."""
        return now_ms // self.ms * self.ms - 1 if self.is_jumping else now_ms - self.ms

    def surplus(self, count: int) -> int:
        """How many of the oldest rows have to go, of `count`."""
        if not self.rows or count <= self.rows:
            return 0
        return (count - 1) // self.rows * self.rows if self.is_jumping else count - self.rows


def parse_keep(text: object, stream: str) -> Keep | None:
    """`5s`, `1000 rows`, `every 5s` or `every 1000 rows`; `InvalidOption` for anything else but `None`."""
    if text is None:
        return None
    found = _FORM.fullmatch(text) if isinstance(text, str) else None
    amount = int(found[2]) if found is not None else 0
    if found is not None:
        keep = (
            Keep(0, amount, bool(found[1]))
            if found[3] in ("row", "rows")
            else Keep(amount * _MS[found[3]], 0, bool(found[1]))
        )
        if 1 <= keep.ms <= MS_MAX or 1 <= keep.rows <= ROWS_MAX:
            return keep
    raise InvalidOption(
        f"stream {stream!r}: keep={text!r:.100}; expected such as '5s', '1000 rows', 'every 5s' or 'every 1000 rows', "
        f"with ms, s, m for minutes, h, d or rows, at most 366 days or {ROWS_MAX:,} rows"
    )
