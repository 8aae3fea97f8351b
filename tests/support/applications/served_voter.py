"""The voter for `tussock serve`, with the options that a test varies from one start to the next."""

from voter.application import make

from tussock.compute.procedures import App
from tussock.statestore import StateStore

__all__ = ["VARIANTS", "alone", "strong", "weak"]

VARIANTS = ("weak", "strong", "alone")
"""Names of the functions here."""


def weak(store: StateStore) -> App:
    """A record a batch, many in a write; commits are rare, so that a recovery replays much."""
    return make(store, recovery="weak", checkpoint=5.0)


def strong(store: StateStore) -> App:
    """A record for each procedure's run; commits often, so that kills hit them."""
    return make(store, recovery="strong", checkpoint=0.2)


def alone(store: StateStore) -> App:
    """Each procedure's run is durable before the next one begins: the log has many batches in part."""
    return make(store, recovery="strong", group_commit=None)
