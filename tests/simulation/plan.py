"""The plan that a seed draws: the shape of the cluster, and the kinds of failures in it.

Each seed switches some kinds off ("swarm testing", Groce et al., ISSTA 2012): a history in which everything fails at
once hides the effects of a single failure.
"""

import random
from typing import NamedTuple

from simulation.machine.bucket import Faults

__all__ = ["Plan", "make_plan"]


READS = ("scan", "get", "pinned", "epoch", "changes", "newest", "wait")


class Plan(NamedTuple):
    """One cluster and its failures."""

    processes: int
    metas: int
    """Replicas of the meta service; 0: all processes are embedded."""
    compactors: int
    mixed: bool
    """One process is embedded beside the meta service."""
    writers: int
    readers: int
    batches: int
    """Batches of each writer, at most."""
    tables: int
    keys: int
    retention: float
    gc_grace: float
    cache_bytes: int
    buffer_bytes: int
    base_every: int
    background_compaction: bool
    think_seconds: float
    """Usual pause between two calls of a workload, at most."""
    nap_seconds: float
    """Usual pause between two reads of a reader, at most: one that reads seldom knows old versions only."""
    hold_seconds: float
    """Between two reads at a pinned epoch, at most."""
    reads: tuple[str, ...]
    """The ways in which readers read, some of all."""
    upkeep_seconds: float
    """Between two vacuums or full compactions, at most."""
    with_bank: bool
    with_anonymous: bool
    faults: Faults
    crashes: float
    """Mean seconds between two of them for a process; 0: none. Likewise below."""
    stalls: float
    cuts: float
    """It is cut off from the bucket, or from the other nodes."""
    jumps: float
    jump_seconds: float
    deaf: float
    """No answer reaches it."""
    ambushes: float
    """It meets trouble just as it commits or pins."""
    coups: float
    """Mean seconds between ambushes of the leader of the moment; 0: none."""
    slow_nodes: float
    """Share of the nodes whose requests take up to `slow_latency` either way, while others race past them."""
    slow_latency: float
    dawdle: float
    """Seconds, at most, for which an epoch is left open between its rows and its commit."""
    pin_lease: float
    zombies: bool
    """A process that stands still is replaced, and comes back beside its successor."""
    bucket_clock: float
    damaged: bool
    """An idle table has a damaged SST, which its compactions meet."""
    replaced: bool
    """A table is dropped and created anew under its name, while snapshots show it."""
    ahead: float
    """The wall clock of a process jumps years ahead: mean seconds from one to the next; 0: none."""
    periods: dict[str, dict[str, float | None]]
    """By table the retention and the time to live that it has itself."""


def make_plan(choose: random.Random, apart: random.Random) -> Plan:
    """Draw a plan. Later kinds of failures are drawn `apart`: histories without them stay as they were."""
    plan = _draw(choose)._replace(damaged=choose.random() < 0.25)
    plan = plan._replace(replaced=apart.random() < 0.25, ahead=20.0 if apart.random() < 0.2 else 0.0)
    if apart.random() < 0.6:
        return plan
    return plan._replace(periods=_periods(apart), tables=2, reads=READS)


def _periods(apart: random.Random) -> dict[str, dict[str, float | None]]:
    # One table keeps epochs for longer than the other for the most part, so that snapshots come too late for that one.
    return {
        f"kv{number}": {"retention": apart.choice(retentions), "ttl": apart.choice([None, 2.0, 8.0, 40.0])}
        for number, retentions in enumerate([[60.0, 60.0, 5.0, None], [0.0, 0.0, 5.0, None]])
    }


def _draw(choose: random.Random) -> Plan:

    def maybe(value: float, chance: float = 0.5) -> float:
        return value * choose.random() if choose.random() < chance else 0.0

    metas = choose.choice([0, 0, 1, 2, 3])
    faults = Faults(
        lose_request=maybe(0.08),
        lose_answer=maybe(0.12),
        late=maybe(0.06),
        twice=maybe(0.05),
        slow=maybe(0.06),
        slow_seconds=choose.choice([2.0, 20.0, 60.0]),
        latency=choose.choice([0.01, 0.1, 0.5]),
        deadline=choose.choice([3.0, 10.0, 30.0]),
        page=choose.choice([1000, 1000, 2, 5]),
    )
    plan = Plan(
        processes=choose.choice([1, 2, 2, 3]),
        metas=metas,
        compactors=choose.choice([0, 1, 2]) if metas else 0,
        mixed=choose.random() < 0.3,
        writers=choose.choice([1, 2, 3]),
        readers=choose.choice([1, 2, 3]),
        batches=choose.choice([4, 8, 16]),
        tables=choose.choice([1, 2]),
        keys=choose.choice([3, 8, 16]),
        retention=choose.choice([0.0, 0.0, 5.0, 60.0]),
        gc_grace=choose.choice([0.0, 2.0, 15.0, 60.0]),
        cache_bytes=choose.choice([0, 2000, 1 << 20]),
        buffer_bytes=choose.choice([0, 400, 1 << 20, 1 << 20]),
        base_every=choose.choice([2, 3, 8]),
        background_compaction=choose.random() < 0.6,
        think_seconds=choose.choice([0.05, 1.0, 8.0]),
        nap_seconds=choose.choice([0.05, 1.0, 8.0, 30.0]),
        hold_seconds=choose.choice([0.1, 5.0, 30.0]),
        reads=tuple(way for way in READS if choose.random() < 0.5) or READS,
        upkeep_seconds=choose.choice([1.0, 5.0, 20.0, 40.0]),
        with_bank=choose.random() < 0.5,
        with_anonymous=choose.random() < 0.4,
        faults=faults,
        crashes=choose.choice([0.0, 5.0, 30.0]),
        stalls=choose.choice([0.0, 0.0, 20.0, 60.0]),
        cuts=choose.choice([0.0, 0.0, 30.0]),
        jumps=choose.choice([0.0, 0.0, 20.0]),
        jump_seconds=choose.choice([3.0, 40.0, 600.0]),
        deaf=choose.choice([0.0, 0.0, 0.0, 30.0]),
        ambushes=choose.choice([0.0, 5.0, 20.0]),
        coups=choose.choice([0.0, 5.0, 20.0]) if metas > 1 else 0.0,
        slow_nodes=choose.choice([0.0, 0.3]),
        slow_latency=choose.choice([0.3, 1.0] if metas else [0.3, 1.0, 2.0]),
        dawdle=choose.choice([0.0, 0.0, 3.0, 15.0]),
        pin_lease=60.0,
        zombies=choose.random() < 0.5,
        bucket_clock=choose.choice([0.0, 0.0, -5.0, 5.0, 30.0]),
        damaged=False,
        replaced=False,
        ahead=0.0,
        periods={},
    )
    kind = choose.random()
    if kind < 0.25:
        return _without_failures(plan, choose)
    if kind < 0.33:
        return _with_overthrows(plan, choose)
    if kind < 0.41:
        return _with_races(plan, choose)
    return _with_stalls(plan, choose) if kind < 0.49 else plan


def _without_failures(plan: Plan, choose: random.Random) -> Plan:
    """No request is lost and no process stands still: no pin may be lost then, and only races can go wrong."""
    return plan._replace(
        faults=Faults(latency=choose.choice([0.1, 0.5, 2.0]), page=plan.faults.page),
        crashes=0.0 if plan.metas else plan.crashes,
        stalls=0.0,
        cuts=0.0,
        jumps=0.0,
        deaf=0.0,
        ambushes=0.0,
        coups=0.0,
        slow_latency=0.3 if plan.metas else plan.slow_latency,
        bucket_clock=0.0,
        retention=0.0,
        think_seconds=min(plan.think_seconds, 1.0),
        upkeep_seconds=min(plan.upkeep_seconds, 5.0),
    )


def _with_overthrows(plan: Plan, choose: random.Random) -> Plan:
    """Only leaders come and go; leases of pins are short, so each leader has to renew them."""
    calm = _without_failures(plan, choose)
    return calm._replace(
        faults=Faults(latency=0.1, page=plan.faults.page),
        metas=choose.choice([2, 3]),
        mixed=False,
        compactors=choose.choice([1, 2]),
        coups=choose.choice([5.0, 10.0, 20.0]),
        slow_nodes=0.0,
        batches=16,
        keys=3,
        hold_seconds=30.0,
        reads=READS,
        pin_lease=15.0,
    )


def _with_races(plan: Plan, choose: random.Random) -> Plan:
    """A lone reader pins repeatedly while others commit and compact; no other pin covers its epoch."""
    latency, think_seconds, slow_latency = choose.choice([(0.1, 1.0, 2.0), (0.03, 8.0, 0.5)])
    return _without_failures(plan, choose)._replace(
        faults=Faults(latency=latency, page=plan.faults.page),
        processes=choose.choice([2, 3]),
        metas=0,
        compactors=0,
        writers=choose.choice([2, 3]),
        readers=1,
        batches=16,
        keys=3,
        background_compaction=True,
        think_seconds=think_seconds,
        nap_seconds=0.05,
        hold_seconds=choose.choice([0.1, 5.0]),
        reads=("pinned",),
        with_bank=False,
        ambushes=choose.choice([0.0, 3.0]),
        slow_nodes=0.5,
        slow_latency=slow_latency,
        dawdle=0.0,
    )


def _with_stalls(plan: Plan, choose: random.Random) -> Plan:
    """Processes stand still repeatedly, while others write, take snapshots and truncate the log."""
    return plan._replace(
        faults=Faults(latency=0.1, page=plan.faults.page),
        processes=choose.choice([2, 3]),
        metas=0,
        compactors=0,
        writers=3,
        batches=16,
        gc_grace=0.0,
        base_every=2,
        think_seconds=8.0,
        dawdle=0.0,
        upkeep_seconds=5.0,
        stalls=choose.choice([0.0, 20.0]),
        ambushes=choose.choice([3.0, 10.0]),
        crashes=choose.choice([0.0, 30.0]),
        cuts=0.0,
        jumps=0.0,
        deaf=0.0,
        coups=0.0,
        slow_nodes=0.0,
    )
