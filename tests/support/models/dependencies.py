"""Whether transactions could have run one after the other: no circle in the graph of who has to come before whom.

The idea is Elle's (Kingsbury and Alvaro, PVLDB 14(3), 2020). Each value is written once, so what a transaction read
tells whose version it saw; epochs order the versions of a key. Several transactions may share an epoch, and nothing
tells their order then but this graph.
"""

from collections import defaultdict
from collections.abc import Iterable, Mapping
from graphlib import CycleError, TopologicalSorter
from typing import NamedTuple

__all__ = ["Done", "broken_order"]


class Done(NamedTuple):
    """A transaction that has committed."""

    name: str
    reads: Mapping[int, str | None]
    """By key what it read before it wrote the key; `None`: there was no row."""
    writes: Mapping[int, str]
    """By key what it wrote last."""
    epoch: int


def broken_order(done: Iterable[Done], final: Mapping[int, str]) -> str:
    """The first contradiction; empty if there is a serial order. `final` are the rows in the end; none was deleted."""
    done = list(done)
    writers = {(key, value): one for one in done for key, value in one.writes.items()}
    versions: dict[int, dict[int, list[Done]]] = defaultdict(lambda: defaultdict(list))
    for one in done:
        for key in one.writes:
            versions[key][one.epoch].append(one)
    seen: dict[tuple[int, int], Done] = {}
    """By key and epoch the one whose version is there at the end of the epoch."""
    at_the_end = Done("what is read in the end", dict(final), {}, 0)
    for reader in (*done, at_the_end):
        for key, value in reader.reads.items():
            if value is None:
                continue
            writer = writers.get((key, value))
            if writer is None:
                return f"{reader.name} read {value!r} of key {key}, which nobody has committed"
            if seen.setdefault((key, writer.epoch), writer) is not writer:
                return f"{reader.name} read {value!r} of key {key}, and others another version of epoch {writer.epoch}"
    for key, epochs in versions.items():
        newest = epochs[max(epochs)]
        if writers.get((key, final.get(key, ""))) not in newest:
            return f"key {key} has {final.get(key)!r} in the end, and epoch {max(epochs)} another one"
    try:
        TopologicalSorter(_befores(done, writers, versions, seen)).prepare()
    except CycleError as error:
        return f"each has to come before the next one: {' > '.join(error.args[1])}"
    return ""


def _befores(
    done: list[Done],
    writers: Mapping[tuple[int, str], Done],
    versions: Mapping[int, Mapping[int, list[Done]]],
    seen: Mapping[tuple[int, int], Done],
) -> dict[str, set[str]]:
    """For each transaction those that come before it."""
    before: dict[str, set[str]] = {one.name: set() for one in done}
    for key, epochs in versions.items():
        earlier: list[Done] = []
        for epoch in sorted(epochs):
            last = seen.get((key, epoch))
            for one in epochs[epoch]:
                before[one.name].update(other.name for other in earlier)
                if last is not None and one is not last:
                    before[last.name].add(one.name)
            earlier = epochs[epoch]
    for reader in done:
        for key, value in reader.reads.items():
            read_at = 0
            if value is not None:
                writer = writers[key, value]
                read_at = writer.epoch
                before[reader.name].add(writer.name)
            following = min((epoch for epoch in versions.get(key, ()) if epoch > read_at), default=None)
            if following is not None:
                for one in versions[key][following]:
                    if one is not reader:
                        before[one.name].add(reader.name)
    return before
