"""The version as the meta service pushes it: moves forward only, and wakes who waits for it."""

from collections.abc import Iterable

from tussock.meta.client.follower import follow
from tussock.meta.rpc import meta_pb2 as pb
from tussock.meta.version.version import Version
from tussock.statestore.base.system import System

__all__ = ["Freshness", "PushedVersion"]

REFRESH_SECONDS = 0.25
"""Reads that have to ask for news do so no more often than this, unless the user wants them newer."""


class Freshness:
    """Since when a client's version may be out of date, and whether a read asks the leader for a newer one."""

    def __init__(self, bound: float | None) -> None:
        """`bound`: seconds within which the leader has to have said that it has no newer one.

        `None`: the subscription is relied on as long as heartbeats are answered.
        """
        self._bound = bound
        self._pause = REFRESH_SECONDS if bound is None else min(bound, REFRESH_SECONDS)
        self.asked_at = float("-inf")
        self._confirmed_at = float("-inf")

    def confirm(self, asked_at: float) -> None:
        """The version here has what the leader had when it was asked then, by the monotonic clock."""
        self._confirmed_at = max(self._confirmed_at, asked_at)

    def is_due(self, now: float, lease_deadline: float) -> bool:
        """Whether to ask now."""
        is_old = now >= lease_deadline if self._bound is None else now - self._confirmed_at >= self._bound
        return is_old and now - self.asked_at >= self._pause


class PushedVersion:
    """The newest version that this client has been told. Safe to share between threads."""

    def __init__(self, system: System) -> None:
        self._system = system
        self._changed = system.condition()
        self.version = Version()
        """The newest one; read without a lock."""

    def learn(self, update: pb.VersionUpdate) -> bool:
        """Apply an update; `False` if there is a hole between it and the version here, so that it was no use."""
        with self._changed:
            before = self.version
            self.version = follow(before, update.snapshot_seq, update.snapshot, update.first_seq, list(update.entries))
            if self.version is not before:
                self._changed.notify_all()
            return self.version.seq >= update.seq

    def table_names(self, table_ids: Iterable[int]) -> list[str]:
        """The names of these tables, for people; of one that is not there any more its id."""
        tables = self.version.tables
        return sorted(tables[one].spec.name if one in tables else f"id {one}" for one in table_ids)

    def await_seq(self, seq: int, seconds: float) -> Version:
        """The version once it is at `seq` or later, or as it is after `seconds`."""
        if self.version.seq < seq:
            with self._changed:
                self._changed.wait_for(lambda: self.version.seq >= seq, seconds)
        return self.version
