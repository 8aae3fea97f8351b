"""Bugs to plant in the loop of streams, which random flows have to find, or an outage at any read."""

from simulation.planted import Bug
from tussock.compute.changelog.engine.flow_engine import FlowEngine
from tussock.compute.changelog.engine.kept_state import KeptState
from tussock.compute.changelog.engine.loop_work import LoopWork
from tussock.compute.changelog.loop.stream_loop import StreamLoop

__all__ = ["BUGS"]

BUGS = [
    Bug(
        "a commit has half a transaction",
        "what an operator has written for a transaction that is not done is in the epoch, and comes again",
        FlowEngine.persist,
        "self.work.set_aside()",
        "pass",
        seed=15,
    ),
    Bug(
        "what is taken back stays",
        "an operator's tables have a bad transaction, and one that was computed once more twice",
        LoopWork.set_aside,
        "self._delta.undo()",
        "self._delta.keep()",
        seed=2,
    ),
    Bug(
        "what was taken back is not computed again",
        "an operator publishes a transaction that its tables lack",
        StreamLoop._redo,
        "self._whole = self._host.compute(self, changes)",
        "pass",
    ),
    Bug(
        "records and their whole are both kept",
        "an operator that was gone through record by record has each of them twice in its tables",
        StreamLoop._computed,
        "self._host.begin(self)",
        "pass",
        seed=2,
    ),
    Bug(
        "what is held back is left out",
        "an operator goes on without a transaction that was bad",
        LoopWork.taken,
        "if held is None:",
        "if True:",
        seed=5,
    ),
    Bug(
        "what is held back is forgotten by a restart",
        "the same, for those that were held back when the process ended",
        KeptState.persist,
        "+ self._held(stream, table)",
        "",
        seed=41,
    ),
]
"""The one without a seed is found by an outage."""
