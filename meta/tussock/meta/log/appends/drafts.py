"""What an entry will hold: each call decided in turn on what the ones before it leave."""

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from tussock.meta.log.appends.group_commit import AnyCall
from tussock.meta.log.format import SSTS_START
from tussock.meta.version.deltas.commits import CommitEpoch, with_payloads
from tussock.meta.version.deltas.delta import Delta, extend
from tussock.meta.version.version import Version
from tussock.statestore.errors import TussockError

__all__ = ["Draft", "plan_entry"]


class Draft(NamedTuple):
    """What an entry on top of a version will hold, and for whom."""

    after: Version
    """With the deltas in it; its sequence is still the old one."""
    deltas: tuple[Delta, ...]
    ssts: list[bytes]
    """What the deltas say lies in the entry, in that order."""
    accepted: list[tuple[AnyCall, Any]]
    """With the result of each. Some want nothing, but were told so on the strength of deltas before theirs."""
    refused: list[tuple[AnyCall, TussockError]]
    """To be decided again: their version was old, or had deltas in it which are not in the log yet."""


def plan_entry(version: Version, calls: Sequence[AnyCall]) -> Draft:
    """Decide each call in turn on what the ones before it leave. A call whose `decide` is broken fails at once."""
    after = version
    deltas: list[Delta] = []
    ssts: list[bytes] = []
    end = SSTS_START
    accepted: list[tuple[AnyCall, Any]] = []
    refused: list[tuple[AnyCall, TussockError]] = []
    for call in calls:
        try:
            wanted, result = call.decide(after)
            wanted, brought = _place_payloads(wanted, call.payloads, version.seq + 1, end)
            after = extend(after, wanted, term=call.term) if wanted else after
        except TussockError as error:
            refused.append((call, error))
            continue
        except Exception as error:  # noqa: BLE001  # a defect of one caller is that caller's
            call.fail(error)
            continue
        deltas += wanted
        ssts += brought
        end += sum(map(len, brought))
        accepted.append((call, result))
    return Draft(after, tuple(deltas), ssts, accepted, refused)


def _place_payloads(
    deltas: Sequence[Delta], payloads: Mapping[str, bytes], seq: int, start: int
) -> tuple[Sequence[Delta], list[bytes]]:
    """The deltas with the payloads of their commits placed in entry `seq` from `start` on, and those payloads."""
    if not payloads:
        return deltas, []
    placed: list[Delta] = []
    brought: list[bytes] = []
    for delta in deltas:
        if isinstance(delta, CommitEpoch):
            delta, fresh = with_payloads(delta, payloads, seq, start)
            brought += fresh
            start += sum(map(len, fresh))
        placed.append(delta)
    return placed, brought
