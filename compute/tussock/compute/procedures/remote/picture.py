"""What the page of a served application shows of its graph."""

from collections import deque
from typing import Any

from tussock.compute.procedures.definitions import Definitions
from tussock.compute.procedures.state import EngineState

__all__ = ["picture"]

TRACE_SHOWN = 20


def picture(definitions: Definitions, state: EngineState, trace: "deque[tuple[str, int | None]]") -> dict[str, Any]:
    """The graph with figures of this moment, as JSON can say it; in any thread, beside what runs."""
    return {
        "procedures": [
            {
                "name": one.name,
                "border": one.border,
                "consumes": [stream.name for stream in one.consumes],
                "emits": [stream.name for stream in one.emits],
                "last_batch": state.last(one.name),
            }
            for one in definitions.procedures.values()
        ],
        "windows": [
            {
                "name": window.name,
                "stream": window.on.name,
                "of": "batches" if window.by_batches else "rows",
                "size": window.size,
                "slide": window.slide,
                "visible": (visible := state.windows[name].visible_slots),
                "staged": max(len(state.windows[name].slots) - visible, 0),
            }
            for name, window in definitions.windows.items()
        ],
        "calls": sorted(definitions.calls),
        "tables": sorted(definitions.tables),
        # A copy first: what runs appends to it.
        "trace": [list(one) for one in trace.copy()][-TRACE_SHOWN:],
    }
