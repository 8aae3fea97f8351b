"""Commits without a writer of which a process does not know whether they happened.

A commit with a writer and a batch id may always be repeated: the ledger knows it. One without is known by its SSTs
alone, for as long as they stand in the tables as they were committed and the garbage horizon has not passed them. Once
it has, nobody can tell, and the user has to: uploaded and committed again under new ids, the rows might be there twice
and hide what came between.
"""

from collections.abc import Iterator

from tussock.statestore.contract.backend import CommitRequest
from tussock.statestore.errors import ObjectStoreUnavailable, StaleUpload

__all__ = ["UnknownCommits", "cannot_tell"]


class UnknownCommits:
    """Known by the SSTs that they named; a commit notes here how each attempt ended."""

    def __init__(self) -> None:
        self._ssts: set[str] = set()

    def __contains__(self, request: CommitRequest) -> bool:
        """Whether an earlier attempt at the request may have happened."""
        return not self._ssts.isdisjoint(_nameless_ssts(request))

    def add(self, request: CommitRequest) -> None:
        """An attempt at it got no answer."""
        self._ssts.update(_nameless_ssts(request))

    def discard(self, request: CommitRequest) -> None:
        """It is committed."""
        self._ssts.difference_update(_nameless_ssts(request))


def cannot_tell(request: CommitRequest, error: StaleUpload) -> ObjectStoreUnavailable:
    """What to raise in place of `StaleUpload`, which asks for another upload, where an earlier one may be committed."""
    return ObjectStoreUnavailable(
        f"epoch {request.epoch}: an earlier attempt to commit got no answer, and by now its SSTs are too old to tell "
        f"whether it happened ({error}); look at the store before repeating it, or name a writer and a batch, which "
        "makes every repetition safe"
    )


def _nameless_ssts(request: CommitRequest) -> Iterator[str]:
    """Ids of the SSTs by which a commit without a writer is known; none for one that has a writer and a batch."""
    if request.writer is None:
        yield from (sst.id for runs in request.tables.values() for run in runs for sst in run.ssts)
