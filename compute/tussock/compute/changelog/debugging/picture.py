"""What a status says of a flow: its graph with queues, locations and rates. In any thread, beside what runs."""

from collections.abc import Callable, Sequence
from typing import Any

from tussock.compute.changelog.debugging.rates import GrowthRates
from tussock.compute.changelog.engine.flow_engine import FlowEngine
from tussock.compute.changelog.engine.running_stream import RunningStream
from tussock.compute.changelog.loop.breakpoints import Breakpoint

__all__ = ["breakpoints_shown", "streams_shown"]


def streams_shown(
    engine: FlowEngine, rates: GrowthRates, readers: Callable[[str], Sequence[int]]
) -> list[dict[str, Any]]:
    """Of each stream; `readers`: what its subscribers read next."""
    counters = {}
    for name, one in engine.streams.items():
        counters[f"{name} in"], counters[f"{name} out"] = one.rows_in, one.rows_out
    speeds = rates.of(engine.system.monotonic(), counters)
    return [
        {
            **_stream_shown(one, readers(name)),
            "rows_in_per_second": round(speeds[f"{name} in"], 1),
            "rows_out_per_second": round(speeds[f"{name} out"], 1),
        }
        for name, one in engine.streams.items()
    ]


def breakpoints_shown(breakpoints: Sequence[Breakpoint]) -> list[dict[str, Any]]:
    """Of each breakpoint."""
    return [
        {
            "number": one.number,
            "stream": one.stream,
            "side": one.side,
            "condition": one.condition,
            "every": one.every,
            "enabled": one.is_enabled,
            "hits": one.hits,
            "error": one.error,
        }
        for one in breakpoints
    ]


def _stream_shown(one: RunningStream, readers: Sequence[int]) -> dict[str, Any]:
    loop, plan = one.loop, one.plan
    newest = one.history.seq
    return {
        "name": plan.name,
        "inputs": list(plan.inputs),
        "columns": [{"name": field.name, "type": str(field.type)} for field in plan.shape.schema],
        "key": list(plan.shape.key),
        "location": str(loop.location),
        "row": loop.row,
        "held": loop.is_held,
        "queued": len(loop.queue),
        "queue": plan.queue,
        "queued_bytes": loop.queue_bytes,
        "taken": one.taken,
        "published": newest,
        "rows_in": one.rows_in,
        "rows_out": one.rows_out,
        "bad": one.bad,
        "held_back": sum(len(held.changes) for held in list(one.held.values())),
        "subscribers": len(readers),
        "subscriber_lag": max((newest + 1 - seq for seq in readers), default=0),
        "oldest_kept": one.history.oldest,
    }
