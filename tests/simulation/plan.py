"""What a seed decides beforehand: how the cluster is built, and which kinds of trouble it meets.

Each seed switches some kinds off ("swarm testing", Groce et al., ISSTA 2012): a history in which everything goes wrong
at once hides what goes wrong by one thing alone.
"""

import random
from typing import NamedTuple

from simulation.bucket import Faults

__all__ = ["Plan", "make_plan"]


class Plan(NamedTuple):
    """One cluster and its troubles."""

    processes: int
    metas: int
    """Replicas of the meta service; 0: all processes are embedded."""
    compactors: int
    mixed: bool
    """One process is embedded beside the meta service."""
    writers: int
    readers: int
    batches: int
    """That each writer commits, at most."""
    tables: int
    keys: int
    retention: float
    gc_grace: float
    cache_bytes: int
    buffer_bytes: int
    snapshot_every: int
    background_compaction: bool
    think_seconds: float
    """Usual pause between two calls of a workload, at most."""
    upkeep_seconds: float
    """Between two vacuums or full compactions, at most."""
    with_bank: bool
    with_anonymous: bool
    faults: Faults
    crashes: float
    """Per process: mean seconds from one to the next; 0: none. Likewise below."""
    stalls: float
    cuts: float
    """Cut off from the bucket, or from the other nodes."""
    jumps: float
    jump_seconds: float
    zombies: bool
    """A process that stands still is replaced, and comes back beside its successor."""
    bucket_clock: float


def make_plan(choose: random.Random) -> Plan:
    """Draw a plan."""

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
        snapshot_every=choose.choice([2, 3, 8]),
        background_compaction=choose.random() < 0.6,
        think_seconds=choose.choice([0.05, 1.0, 8.0]),
        upkeep_seconds=choose.choice([1.0, 5.0, 20.0, 40.0]),
        with_bank=choose.random() < 0.5,
        with_anonymous=choose.random() < 0.4,
        faults=faults,
        crashes=choose.choice([0.0, 5.0, 30.0]),
        stalls=choose.choice([0.0, 0.0, 20.0, 60.0]),
        cuts=choose.choice([0.0, 0.0, 30.0]),
        jumps=choose.choice([0.0, 0.0, 20.0]),
        jump_seconds=choose.choice([3.0, 40.0, 600.0]),
        zombies=choose.random() < 0.5,
        bucket_clock=choose.choice([0.0, 0.0, -5.0, 5.0, 30.0]),
    )
    return _calm(plan, choose) if choose.random() < 0.25 else plan


def _calm(plan: Plan, choose: random.Random) -> Plan:
    """Nothing is lost and nobody stands still: no pin may be lost then, and races are all that can go wrong."""
    return plan._replace(
        faults=Faults(latency=choose.choice([0.1, 0.5, 2.0]), page=plan.faults.page),
        crashes=0.0 if plan.metas else plan.crashes,
        stalls=0.0,
        cuts=0.0,
        jumps=0.0,
        bucket_clock=0.0,
        retention=0.0,
        think_seconds=min(plan.think_seconds, 1.0),
        upkeep_seconds=min(plan.upkeep_seconds, 5.0),
    )
