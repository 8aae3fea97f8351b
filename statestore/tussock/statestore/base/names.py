"""Names that come in lists, such as those of columns: which of them repeat, and how a message shows them.

A schema may have thousands of columns, and comes from clients that nobody trusts: both take time linear in its length.
"""

from collections import Counter
from collections.abc import Iterable, Sequence

__all__ = ["NAMES_SHOWN", "repeated", "shown"]

NAMES_SHOWN = 20
"""Names in a message: the first ones show what kind they are, and a list of thousands hides the rest of it."""


def repeated(names: Iterable[str]) -> list[str]:
    """The names that are there more than once, each once, sorted."""
    return sorted(name for name, count in Counter(names).items() if count > 1)


def shown(names: Sequence[str]) -> str:
    """The names as a list for a message: the first twenty, and how many more there are."""
    more = f" and {len(names) - NAMES_SHOWN:,} more" if len(names) > NAMES_SHOWN else ""
    return f"{list(names[:NAMES_SHOWN])}{more}"
