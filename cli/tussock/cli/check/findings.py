"""What `tussock check` collects: problems by object, and how much was looked at."""

from collections import Counter
from typing import NamedTuple

__all__ = ["Finding", "Findings"]


class Finding(NamedTuple):
    """Something that is not as it was written, or not as it must be."""

    object: str
    """Path of the object, or what else it is about, such as `version 12`."""
    what: str


class Findings:
    """Collects; nothing stops at a problem."""

    def __init__(self) -> None:
        self.problems: list[Finding] = []
        self.counts: Counter[str] = Counter()
        """How much was checked or found, by name: `entries`, `rows`, `orphans`, ..."""

    def problem(self, subject: str, what: object) -> None:
        """Note a problem; where the text begins with the subject, as errors do, it is not said twice."""
        self.problems.append(Finding(subject, str(what).removeprefix(subject).lstrip(": ")))

    def add_since(self, place: int, what: str) -> None:
        """Say `what`, too, of each problem from that place on."""
        self.problems[place:] = [found._replace(what=f"{found.what}; {what}") for found in self.problems[place:]]

    def count(self, name: str, by: int = 1) -> None:
        """Add to a count."""
        self.counts[name] += by
