"""Checks of the histories of a chaos test's processes, and of the store that they leave."""

from collections.abc import Sequence
from itertools import pairwise
from typing import Any, NamedTuple

from support.chaos.child import COUNTER, KEYS, TABLE, scan_rows
from support.chaos.linearizability import Operation, check
from support.store.stores import changes_of
from tussock.meta.version.invariants import problems
from tussock.statestore import StateStore

ALL_KEYS = [*KEYS, COUNTER]

Line = dict[str, Any]
Name = tuple[str, int, tuple[tuple[str, str], ...]]
"""Writer, batch, rows."""


class Verdict(NamedTuple):
    """The proof of a run, in numbers."""

    commits: int
    """Acknowledged."""
    unknown: int
    """Commits whose answer never came."""
    took_effect: int
    """Of these, those that are in the store."""
    snapshots: int
    plain_reads: int

    def __str__(self) -> str:
        return (
            f"{self.commits} commits acknowledged, {self.unknown} of unknown outcome of which {self.took_effect} took "
            f"effect, {self.snapshots} snapshots and {self.plain_reads} other reads"
        )


class Commit(NamedTuple):
    """One batch of one writer, by any of its processes."""

    client: str
    batch: int
    called: int
    returned: int | None
    epoch: int | None
    saw: dict[str, str | None]
    wrote: dict[str, str]


def is_telling(lines: Sequence[Line]) -> bool:
    """Whether the histories have enough answers for a meaningful verdict."""
    commits = sum("batch" in line and "epoch" in line for line in lines)
    snapshots = sum(line.get("kind") == "snapshot" for line in lines)
    return commits > 20 and snapshots > 10


def judge(lines: Sequence[Line], store: StateStore) -> Verdict:
    """Raise `AssertionError` with the reason if anything is wrong; `store` is the store at the end, fresh and quiet."""
    commits = commits_of(lines)
    truth = _truth(store)
    took_effect = _check_commits(commits, truth)
    states = _states(truth)
    reads = [line for line in lines if "rows" in line]
    epochs = [_epoch_shown(line, states) for line in reads]
    _check_order([(line, epoch) for line, epoch in zip(reads, epochs, strict=True) if line["kind"] != "kept"])
    history = [Operation(one.client, one.called, one.returned, one.saw, one.wrote) for one in commits]
    snapshots = [line for line in reads if line["kind"] == "snapshot"]
    history += [
        Operation(line["client"], line["called"], line["returned"], _whole(line["rows"]), {}) for line in snapshots
    ]
    last = max([one.called for one in history] + [one.returned or 0 for one in history], default=0) + 1
    with store.pin_snapshot() as snapshot:
        final = scan_rows(snapshot.table(TABLE).scan())
    history.append(Operation("the end", last, last + 1, _whole(final), {}))
    violation = check(history)
    assert violation is None, str(violation)
    assert problems(store.version()) == []  # type: ignore[arg-type]
    unknown = [one for one in commits if one.returned is None]
    return Verdict(
        len(commits) - len(unknown),
        len(unknown),
        took_effect,
        len(snapshots),
        sum(line["kind"] == "plain" for line in reads),
    )


def commits_of(lines: Sequence[Line]) -> list[Commit]:
    """The commits that may have taken effect.

    A batch that a successor repeats, with the same rows, is one commit, from its first call on. Where the rows depended
    on a read, a writer and the one that replaced it may have tried the same batch with different rows: those are two
    commits, of which the store may take one.
    """
    found: dict[Name, Commit] = {}
    refused = set()
    called: dict[tuple[str, int, int], Name] = {}
    for line in lines:
        if "batch" not in line:
            continue
        process = (line["client"], line["batch"], line["pid"])
        if "wrote" in line:
            name = called[process] = (line["client"], line["batch"], tuple(sorted(line["wrote"].items())))
            found.setdefault(name, Commit(*name[:2], line["at"], None, None, line["saw"], line["wrote"]))
            continue
        name = called[process]
        if "epoch" not in line:
            refused.add(name)
            continue
        one = found[name]
        assert one.epoch in (None, line["epoch"]), f"{name} was answered {one.epoch} and then {line['epoch']}"
        if one.returned is None:
            found[name] = one._replace(returned=line["at"], epoch=line["epoch"])
    for name in sorted(refused):
        assert found[name].epoch is None, f"{name} was acknowledged and refused"
    return [one for name, one in found.items() if name not in refused]


def _truth(store: StateStore) -> dict[int, dict[str, str]]:
    """The commits by the store's own account: the rows of each epoch, in order."""
    epochs: dict[int, dict[str, str]] = {}
    for row in changes_of(store.table(TABLE)):
        assert row["op"] == "put"
        epochs.setdefault(row["epoch"], {})[row["key"].decode()] = row["value"].decode()
    return dict(sorted(epochs.items()))


def _check_commits(commits: Sequence[Commit], truth: dict[int, dict[str, str]]) -> int:
    """Every acknowledged commit is there at its epoch, whole and once; of the others all or nothing, at most once."""
    epochs_of: dict[str, list[int]] = {}
    for epoch, rows in truth.items():
        assert len(set(rows.values())) == 1, f"epoch {epoch} mixes commits: {rows}"
        epochs_of.setdefault(next(iter(rows.values())), []).append(epoch)
    took_effect = 0
    epochs_of_batch: dict[tuple[str, int], list[int]] = {}
    for one in commits:
        value = next(iter(one.wrote.values()))
        at = epochs_of.pop(value, [])
        name = f"batch {one.batch} of {one.client}"
        of_batch = epochs_of_batch.setdefault((one.client, one.batch), [])
        of_batch += at
        assert len(of_batch) <= 1, f"{name} is there {len(of_batch)} times, at {of_batch}"
        if one.epoch is not None:
            assert at == [one.epoch], f"{name} was acknowledged at {one.epoch} and is at {at}"
        elif one.returned is None and at:
            took_effect += 1
        for epoch in at:
            assert truth[epoch] == one.wrote, f"{name} is not whole: {truth[epoch]}, expected {one.wrote}"
    assert not epochs_of, f"nobody has written, or it was refused: {epochs_of}"
    return took_effect


def _states(truth: dict[int, dict[str, str]]) -> dict[int, dict[str, str]]:
    """All rows as of each epoch."""
    states: dict[int, dict[str, str]] = {0: {}}
    state: dict[str, str] = {}
    for epoch, rows in truth.items():
        state = {**state, **rows}
        states[epoch] = state
    return states


def _epoch_shown(line: Line, states: dict[int, dict[str, str]]) -> int:
    """The epoch of the rows that were read: that of the snapshot, and of other reads, the one that has such rows.

    So nothing half is seen, and a snapshot never changes. Each commit changes some row, so no two epochs are equal.
    """
    who = f"{line['client']} read ({line['kind']})"
    if line["epoch"] is None:
        found = [epoch for epoch, rows in states.items() if rows == line["rows"]]
        assert found, f"{who} {line['rows']}, which the store held at no epoch"
        return found[0]
    # An epoch of another table, or of none, changes no row.
    epoch = max(epoch for epoch in states if epoch <= line["epoch"])
    assert line["rows"] == states[epoch], f"{who} at {line['epoch']} {line['rows']}, expected {states[epoch]}"
    return epoch


def _check_order(reads: Sequence[tuple[Line, int]]) -> None:
    """No reader goes back; nor does its successor, when the reader was killed and comes again."""
    newest: dict[str, int] = {}
    for line, epoch in reads:
        before = newest.get(line["client"], 0)
        assert epoch >= before, f"{line['client']} went back from {before} to {epoch} ({line['kind']})"
        newest[line["client"]] = epoch


def _whole(rows: dict[str, str]) -> dict[str, str | None]:
    return {key: rows.get(key) for key in ALL_KEYS}


def longest_pause(lines: Sequence[Line]) -> float:
    """Seconds between two acknowledgements, by any writer, at most."""
    answers = sorted(line["at"] for line in lines if "batch" in line and "epoch" in line)
    return max((after - before for before, after in pairwise(answers)), default=0) / 1e9
