"""Terms: which replica of the meta service leads, as the log sees it.

Safety rests on the log's create-only append alone. A term adds that a leader which was replaced *learns* of it: once
`StartTerm` of a newer term is in the log, each entry of an older one is refused. The proof is short. An entry of
number n + 1 is validated on the version of entry n, and nobody can create number n + 1 without having applied entry n.
So if the newer `StartTerm` is at or below n, the old leader has applied it and refuses its own entry before any
request; if it is at n + 1, the old leader's create finds the number taken. There is no third case.

Term 0 is an embedded store: it leads nobody, and its entries are never refused for their term.
"""

import msgspec
from msgspec.structs import replace

from tussock.meta.version.version import Version
from tussock.statestore.errors import Fenced, InvalidOption

__all__ = ["StartTerm", "check_begun", "check_term"]


class StartTerm(msgspec.Struct, frozen=True, kw_only=True, tag="start_term", tag_field="type"):
    """A replica of the meta service begins to lead; from now on, entries of older terms are refused."""

    term: int
    leader: str
    """Which replica, for people."""
    address: str
    """Where its clients find it."""

    def validate(self, version: Version) -> None:
        """Raise unless it begins a newer term than the one of `version`."""
        if self.term < 1:
            raise InvalidOption(f"term {self.term} cannot begin: terms count from 1")
        # Equal is refused too: two replicas must never lead one term.
        if self.term <= version.term:
            raise Fenced(
                f"term {self.term} cannot begin: {version.leader!r} at {version.leader_address!r} leads term "
                f"{version.term} since log entry {version.seq} or before; take a larger one",
                self.term,
                version.term,
            )

    def apply(self, version: Version) -> Version:
        """The version led by its replica."""
        return replace(version, term=self.term, leader=self.leader, leader_address=self.address)


def check_term(version: Version, term: int) -> None:
    """Raise `Fenced` if an entry of `term` comes after a newer term has begun in `version`."""
    if 0 < term < version.term:
        raise Fenced(
            f"term {term} is over: {version.leader!r} at {version.leader_address!r} leads term {version.term} since "
            f"log entry {version.seq} or before; nothing was appended, this replica must stop leading",
            term,
            version.term,
        )


def check_begun(version: Version, term: int) -> None:
    """Raise `InvalidOption` if an entry of `term`, which leads to `version`, belongs to a term that has not begun."""
    if term > version.term:
        raise InvalidOption(
            f"term {term} has not begun: the newest is {version.term}; the first entry of a term is its StartTerm"
        )
