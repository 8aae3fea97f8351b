"""What a participant of a checkpoint and its coordinator say to each other; `docs/checkpoints.md` has the rules."""

from collections.abc import Mapping
from typing import Literal, Protocol

import msgspec

from tussock.statestore.base.arguments import check_name, check_seconds
from tussock.statestore.contract.records import Run
from tussock.statestore.errors import InvalidOption
from tussock.statestore.shown import show_value

__all__ = ["BarrierChannel", "BarrierEvent", "JobOptions", "OnMissing", "What", "job_options"]

OnMissing = Literal["abort", "wait"]
"""What becomes of an epoch whose participant is dead or late."""

What = Literal["started", "barrier", "committed", "aborted"]


class JobOptions(msgspec.Struct, frozen=True, kw_only=True):
    """What all participants of a job have to agree on."""

    participants: int
    """Barriers are sent once this many have joined."""
    interval_ms: int
    """From one barrier to the next."""
    timeout_ms: int
    """With `on_missing="abort"`: how long a barrier may take."""
    on_missing: OnMissing = "abort"


class BarrierEvent(msgspec.Struct, frozen=True, kw_only=True):
    """What the coordinator tells one participant."""

    what: What
    """
    - `started`: write at `next_epoch`. Sent again after a broken subscription, it says where the participant should
      be: at `next_epoch`, or still at `epoch` if it has not seen the barrier that is under way.
    - `barrier`: seal `epoch`, upload it, collect; go on at `next_epoch`.
    - `committed`: all that was written until `barrier` holds, as of `committed_epoch`.
    - `aborted`: forget what was written after `committed_epoch`; go on at `next_epoch`.
    """
    generation: int
    """Of the participant that it is meant for: one of an older generation has been replaced."""
    barrier: int
    """Number of the barrier; in `started`, of the job's newest committed one."""
    epoch: int = 0
    next_epoch: int = 0
    committed_epoch: int = 0
    """The epoch that the job's newest checkpoint holds as; 0 if it has none."""
    reason: str = ""


class BarrierChannel(Protocol):
    """A participant's line to the coordinator; events come to the callback that it was opened with, in order."""

    def join(self, seen_barrier: int) -> int:
        """Become a participant, or ask again where things stand; returns the generation.

        `seen_barrier` is the largest barrier number known here. Raises `DuplicateName` if another live participant
        has the name, `InvalidOption` if the job runs with other options.
        """

    def collect(self, generation: int, barrier: int, tables: Mapping[int, tuple[Run, ...]]) -> None:
        """The epoch of the barrier is uploaded, as these sorted runs. Repeated, it is a no-op.

        Raises `Fenced` if the barrier was aborted, or the participant was replaced.
        """

    def leave(self, generation: int, *, done: bool, reason: str) -> None:
        """Be no participant any more: `done`, so that the job goes on with the others; or failed."""

    def close(self) -> None:
        """Events are no longer wanted."""


def job_options(
    job: str,
    participants: int,
    interval: float | None,
    timeout: float | None,
    on_missing: OnMissing,
) -> JobOptions:
    """Check the arguments of `join_checkpoint`; seconds, `None` for what the service is set to."""
    check_name(job, "job", 255)
    if isinstance(participants, bool) or not isinstance(participants, int) or not 0 < participants < 1 << 16:
        raise InvalidOption(
            f"job {job!r}: participants is {show_value(participants)}; expected a number from 1 to 65535"
        )
    for name, seconds in (("interval", interval), ("timeout", timeout)):
        if seconds is not None:
            check_seconds(seconds, f"job {job!r}: {name}", 0.001)
    if not isinstance(on_missing, str) or on_missing not in ("abort", "wait"):
        raise InvalidOption(f"job {job!r}: on_missing is {show_value(on_missing)}; expected 'abort' or 'wait'")
    return JobOptions(
        participants=participants,
        interval_ms=round((interval or 0) * 1000),
        timeout_ms=round((timeout or 0) * 1000),
        on_missing=on_missing,
    )
