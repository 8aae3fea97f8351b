"""Which of two StateStores with overlapping prefixes keeps the other out.

The first store is the first one that could use its bucket, whenever it was created, so only a store that holds its
prefix keeps others out. A store is in one of these states:

| state | holds |
|---|---|
| never probed: its bucket has not answered yet | no |
| its secret or its bucket is wrong | no |
| its bucket answered, and it waits, since another one was faster | no |
| refused: another store holds the place; its bucket is not asked | no |
| paused before it held; its bucket is not asked | no |
| being deleted before it held | no |
| holding; it goes on while its key is gone or wrong, while it is paused, and while it is being deleted | yes |
| let go: deleted, its nodes gone and its bucket given back, and kept by a finalizer of somebody else | no |

and of two of them

| this one | the other one | comes first |
|---|---|---|
| holds | does not hold | this one |
| does not hold | does not hold | nobody yet: the first whose bucket has answered holds from then on |
| holds | holds | the older one, then the smaller uid: an operator of an earlier release let both begin |

Two stores never begin on one place, even if both buckets answer at the same moment. On the same prefix the marker is
created only if there is none. On prefixes one inside the other the passes decide: a pass looks for holders and becomes
one without a pause between the two, in one thread of the one operator that leads. The status says who holds before
anything starts, so that the next operator knows it, too. The marker of the one that was slower goes with its deletion.
"""

from typing import NamedTuple

__all__ = ["Claim", "keeps_out"]


class Claim(NamedTuple):
    """What decides about a store among those that overlap with it."""

    holds: bool
    """The store holds its prefix: its bucket was usable at some time, and it has not let it go."""
    created: str
    """When the store was created (RFC 3339)."""
    uid: str


def keeps_out(other: Claim, mine: Claim) -> bool:
    """Whether `other` keeps `mine` out of a place that both name."""
    return other.holds and (not mine.holds or (other.created, other.uid) < (mine.created, mine.uid))
