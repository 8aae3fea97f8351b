"""In which order the procedures of a graph run on a batch; a pure function of what was declared."""

from collections.abc import Mapping
from typing import NamedTuple

from tussock.compute.procedures.definitions import Procedure, TupleStream
from tussock.statestore.errors import InvalidOption

__all__ = ["Graph", "graph_of"]


class Graph(NamedTuple):
    """All procedures, and what follows what."""

    order: tuple[Procedure, ...]
    """Each after those whose streams it consumes; else in the order of declaration."""
    consumers: Mapping[str, tuple[Procedure, ...]]
    """By stream."""

    def downstream(self, start: Procedure) -> tuple[Procedure, ...]:
        """The procedures that a batch of `start` may reach, in order, itself first."""
        reached = {start.name}
        for procedure in self.order:
            sources = {one.name for one in self.order if set(one.emits) & set(procedure.consumes)}
            if sources & reached:
                reached.add(procedure.name)
        return tuple(procedure for procedure in self.order if procedure.name in reached)


def graph_of(procedures: Mapping[str, Procedure], streams: Mapping[str, TupleStream]) -> Graph:
    """The graph; `InvalidOption` for a circle, which it names, and for a stream that nobody emits to its consumers."""
    source = {stream.name: procedure for procedure in procedures.values() for stream in procedure.emits}
    consumers = {
        name: tuple(one for one in procedures.values() if stream in one.consumes) for name, stream in streams.items()
    }
    for name, those in consumers.items():
        if those and name not in source:
            raise InvalidOption(
                f"procedure {those[0].name!r} consumes stream {name!r}, which no procedure emits: it would never run"
            )
    order: list[Procedure] = []
    state: dict[str, bool] = {}
    """False while a procedure's sources are visited, true afterwards."""

    def visit(procedure: Procedure, path: tuple[str, ...]) -> None:
        done = state.get(procedure.name)
        if done:
            return
        if done is False:
            circle = [*path[path.index(procedure.name) :], procedure.name]
            raise InvalidOption(f"the procedures {' <- '.join(circle)} consume each other's streams in a circle")
        state[procedure.name] = False
        for stream in procedure.consumes:
            visit(source[stream.name], (*path, procedure.name))
        state[procedure.name] = True
        order.append(procedure)

    for procedure in procedures.values():
        visit(procedure, ())
    return Graph(tuple(order), consumers)
