"""Bugs to plant: each changes one line or two of the code under test, and the simulation has to find it.

A patch replaces a piece of a function's source and swaps the function's code, so that every reference to it, and each
object of its class, has the bug. A piece that is not found exactly once is an error: the list follows the code.
"""

import inspect
import sys
import textwrap
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import CodeType, FunctionType
from typing import Any, NamedTuple

from tussock.compactor import executor, kept_rows
from tussock.meta.client import backend, follower
from tussock.meta.client.commits import commits as client_commits
from tussock.meta.client.commits import messages
from tussock.meta.compaction import claims, watermark
from tussock.meta.log import bucket_clock as clock
from tussock.meta.log import log, recovery, truncation
from tussock.meta.log.appends import drafts
from tussock.meta.retention import kept_epochs, pins, vacuum
from tussock.meta.server import node
from tussock.meta.server.handlers import commits as server_commits
from tussock.meta.server.handlers import pins as pinning
from tussock.meta.version import history as meta_history
from tussock.meta.version.deltas import commits, losses, tasks, terms
from tussock.statestore import snapshot
from tussock.statestore.read import key_reader, table_views
from tussock.statestore.sst import history
from tussock.statestore.write import shared_buffer

__all__ = ["BUGS", "Bug", "planted"]


class Bug(NamedTuple):
    """One bug: `old` becomes `new` in the source of `function`."""

    name: str
    what: str
    function: Callable[..., Any]
    old: str
    new: str
    seed: int = 0
    """A seed that finds it; 0: none is known, `docs/testing/simulation.md` says why."""


BUGS = [
    Bug(
        "no boundary check after the create",
        "a stalled writer creates a truncated number again and believes that it committed",
        log.VersionLog._create,
        "if not self._check.holds():",
        "if False:",
        seed=155,
    ),
    Bug(
        "reader trusts a missing entry",
        "a reader that lags behind a truncation takes a deleted entry for the tail",
        log.VersionLog._read_on,
        "if not self._check.holds():",
        "if False:",
        seed=128,
    ),
    Bug(
        "lost answer taken for success",
        "an entry whose create was answered with an error counts as created",
        log.VersionLog._create,
        "ours = self._read_back(after.seq, entry.id, error)",
        "ours = True",
        seed=3,
    ),
    Bug(
        "marker after the deletes",
        "a crash between leaves a deleted number that may be used again",
        truncation.truncate,
        "    if plan.is_new:\n        bucket.create(marker_path(plan.boundary), str(plan.boundary).encode())\n"
        "    bucket.delete([info.path for info, _ in plan.garbage])",
        "    bucket.delete([info.path for info, _ in plan.garbage])\n"
        "    if plan.is_new:\n        bucket.create(marker_path(plan.boundary), str(plan.boundary).encode())",
        seed=1,
    ),
    Bug(
        "entries past the base versions truncated",
        "the boundary follows the age of entries alone",
        truncation.plan_truncation,
        "seq > marked and (seq > covered or info.modified_ms > oldest_young_ms)",
        "seq > marked and info.modified_ms > oldest_young_ms",
        seed=2,
    ),
    Bug(
        "entries truncated with the SSTs in them",
        "what small commits brought along is gone once the log is shortened",
        truncation.plan_truncation,
        "seq <= judged and seq not in needed",
        "seq <= judged",
        seed=5,
    ),
    Bug(
        "entries truncated that vacuum does not know of",
        "SSTs of commits that came while vacuum was at work are gone",
        truncation.plan_truncation,
        "judged = min(boundary, known_seq)",
        "judged = boundary",
    ),
    Bug(
        "damaged SSTs that are kept taken for garbage",
        "vacuum deletes what somebody wanted to look at again",
        vacuum.Vacuum._garbage_ssts,
        "version.live_sst_ids() | version.quarantined_ids()",
        "version.live_sst_ids()",
    ),
    Bug(
        "tasks of a damaged SST go on",
        "a merge that had read it reports, and brings back what was taken out",
        losses.QuarantineSst.apply,
        "tables=tables, tasks=tasks,",
        "tables=tables,",
        seed=17,
    ),
    Bug(
        "SSTs of two commits in one place",
        "a group's second commit is said to lie where the first one does",
        drafts.plan_entry,
        "end += sum(map(len, brought))",
        "pass",
        seed=48,
    ),
    Bug(
        "refused call of an entry taken for done",
        "of commits that share an entry, one that is refused is answered as if it were in it",
        drafts.plan_entry,
        "refused.append((call, error))",
        "(accepted if call.payloads else refused).append((call, 1 if call.payloads else error))",
        seed=8,
    ),
    Bug(
        "stray entry deleted after a stall",
        "it was an entry, and SSTs lie in it",
        log.VersionLog._drop_stray,
        "    self._load()\n",
        "    self._bucket.delete([entry_path(seq)])\n    self._load()\n",
    ),
    Bug(
        "load ignores the marker",
        "a process that opens the store between marker and base version misses what came after",
        recovery.truncation_boundary,
        "highest = max(highest, seq)",
        "highest = highest",
        seed=19,
    ),
    Bug(
        "old epoch kept",
        "a commit that another one has overtaken keeps its own, smaller epoch",
        commits.stamp,
        "if epoch <= version.max_committed_epoch:",
        "if False:",
        seed=3,
    ),
    Bug(
        "ledger not consulted",
        "a repeated (writer, batch) is committed again",
        commits.stamp,
        "holding = version.committed_epoch_of(request.writer, request.batch_id, request.source, rows_in)",
        "holding = None",
        seed=5,
    ),
    Bug(
        "conflict not seen",
        "a commit that read an old epoch of a table overwrites what came since",
        commits._check_expected,
        "if state.last_epoch > read_epoch:",
        "if False:",
        seed=10,
    ),
    Bug(
        "half an epoch applied",
        "of a commit to several tables, one appears",
        commits.CommitEpoch.apply,
        "for table_id, runs in self.tables.items():",
        "for table_id, runs in list(self.tables.items())[:1]:",
        seed=1,
    ),
    Bug(
        "upload below the horizon accepted",
        "a commit names SSTs that vacuum may have deleted",
        commits.check_uploads,
        "if sst_id < version.gc_horizon",
        "if False",
        seed=17,
    ),
    Bug(
        "orphans deleted above the horizon",
        "vacuum takes an upload that is about to be committed",
        vacuum.Vacuum._garbage_ssts,
        "elif sst_id < version.gc_horizon:",
        "else:",
        seed=9,
    ),
    Bug(
        "vacuum judges by the version before its append",
        "what was committed between the listing and the horizon is taken for garbage",
        vacuum.Vacuum.run,
        "        held = self._backups.held()\n        version = held.version\n    ssts",
        "        held = self._backups.held()\n"
        "        version = replace(version, gc_horizon=held.version.gc_horizon)\n    ssts",
        seed=17,
    ),
    Bug(
        "vacuum ignores what is in flight",
        "rows that this very process has spilled are gone before their commit",
        vacuum.Vacuum.run,
        "known = in_flight()",
        "known = ()",
    ),
    Bug(
        "deletes dropped above the bottom",
        "an older row below comes back to life",
        kept_rows.part_rows,
        "if bottom else np.zeros(len(rows), np.bool_)",
        "if True else np.zeros(len(rows), np.bool_)",
        seed=6,
    ),
    Bug(
        "superseded rows dropped",
        "of a row that was overwritten no reader at an older epoch sees anything",
        kept_rows.part_rows,
        "past = (again | vanishing)",
        "past = vanishing",
        seed=1,
    ),
    Bug(
        "vanished deletes dropped",
        "their changes are missing",
        kept_rows.part_rows,
        "past = (again | vanishing)",
        "past = again",
        seed=2,
    ),
    Bug(
        "rows of history for every reader",
        "a row that was deleted is seen by readers after its delete",
        history.rows_at,
        "seen = rows.filter(until_array(rows) > np.uint64(epoch))",
        "seen = rows",
    ),
    Bug(
        "keys of history for every reader",
        "the same in lookups of a key",
        history.find_at,
        "found.block.rows.columns[0][found.at].as_py() <= epoch",
        "False",
    ),
    Bug(
        "history read in the order of runs",
        "of two versions in the live tree and history the older one is seen",
        history.EpochMerge._merged,
        "np.lexsort((np.concatenate(ranks)[order], ~epochs[order], keys))",
        "np.lexsort((np.concatenate(ranks)[order], keys))",
        seed=6,
    ),
    Bug(
        "history expires beside pins",
        "a pin that was written while vacuum raised the safe epoch is not obeyed",
        vacuum.Vacuum._expire,
        "epoch if pinned is None else min(epoch, pinned)",
        "epoch",
    ),
    Bug(
        "history expires by its epochs",
        "rows go that readers between their epoch and the one that superseded them need",
        meta_history.without_expired,
        "if sst.until <= epoch and",
        "if sst.max_epoch <= epoch and",
        seed=1,
    ),
    Bug(
        "claim of a table raises the store's safe epoch",
        "a table with its own retention is compacted past the pins that its safe epoch allows",
        watermark.claimed_watermark,
        "table=table.spec.id if table.own_epochs else 0",
        "table=0",
        seed=2,
    ),
    Bug(
        "pins hold tables that they came too late for",
        "a snapshot shows a table whose rows at its epoch may be gone, since another table keeps that epoch",
        kept_epochs.check_kept,
        "return tuple(state.spec.id for state in expired if state is not None)",
        "return ()",
        seed=402,
    ),
    Bug(
        "rows expire before the time of the watermark",
        "compaction drops what a reader at a kept epoch still sees",
        executor._expired,
        "epoch_ms(task.watermark)",
        "epoch_ms(task.watermark) + 5000",
        seed=2,
    ),
    Bug(
        "readers go by the newest time",
        "a snapshot loses rows while it is held",
        key_reader._time,
        "epoch_ms(newest if view.epoch is None else min(view.epoch, newest))",
        "epoch_ms(newest)",
        seed=14,
    ),
    Bug(
        "oldest version kept instead of the newest",
        "of the versions at or below the watermark, compaction keeps the wrong one",
        executor.execute,
        "merged = MergeIterator([ConcatIterator(sstables, run, want) for run in task.inputs]",
        "merged = MergeIterator([ConcatIterator(sstables, run, want) for run in reversed(task.inputs)]",
        seed=1,
    ),
    Bug(
        "watermark ignores pins",
        "compaction drops what a pinned snapshot still reads",
        pins.smallest_live_pin,
        "if pin.id != but",
        "if False",
        seed=1,
    ),
    Bug(
        "no second look at the pins",
        "a pin that was written while a compaction was claimed is not obeyed",
        claims.Claims.claim,
        "return [replace(task, watermark=min(task.watermark, pinned)) for task in claimed]",
        "return claimed",
    ),
    Bug(
        "pin written after the log is read",
        "the safe epoch may pass between",
        pins.PinKeeper._write,
        "        self._bucket.put(pin_path(info.id), encode_pin(info, holder))\n",
        "        check(self._log.refresh(), info)\n        check = lambda *_: None\n"
        "        self._bucket.put(pin_path(info.id), encode_pin(info, holder))\n",
    ),
    Bug(
        "pins not renewed",
        "a reader that takes its time loses its snapshot",
        pins.PinKeeper._renew,
        "pin.deadline = started + self._lease_seconds",
        "pass",
    ),
    Bug(
        "input of another task claimed",
        "two compactors merge the same SSTs",
        tasks._check_free,
        "if other.table_id == task.table_id and not ids.isdisjoint(map(_ID, other.ssts())):",
        "if False:",
    ),
    Bug(
        "read checked on one version, done on another",
        "an unpinned epoch is read on a version whose compaction has passed it",
        table_views.TableViews.take,
        "check_unpinned(view.version, view.state, epoch)",
        "pass",
    ),
    Bug(
        "own rows taken after the version",
        "a commit moves rows from the buffer to the version while they are looked for",
        table_views.TableViews.take,
        "    own = () if self._own is None else self._own.runs(self._table, epoch)\n"
        "    view = self._views.committed(self._table, self.name)\n",
        "    view = self._views.committed(self._table, self.name)\n"
        "    own = () if self._own is None else self._own.runs(self._table, epoch)\n",
    ),
    Bug(
        "older run of an epoch wins",
        "a key written twice in one epoch gets its first value",
        shared_buffer.SharedBuffer._add_run,
        "(run, *buffer.runs.get(table, ()))",
        "(*buffer.runs.get(table, ()), run)",
        seed=2,
    ),
    Bug(
        "old leader not fenced",
        "a leader that was replaced goes on appending to the log",
        terms.check_term,
        "if 0 < term < version.term:",
        "if False:",
        seed=17,
    ),
    Bug(
        "old leader answers from memory",
        "a read of the newest version is not the newest",
        node.MetaNode._get_version,
        "self.meta.refresh()",
        "self.meta.version()",
        seed=11,
    ),
    Bug(
        "commit acknowledged before its append",
        "a leader answers, and appends when it gets round to it",
        server_commits.Commits.commit,
        "return self._context.meta.commit(request, by[:IDENTITY_CHARACTERS_MAX])",
        "self._context.system.spawn('late', lambda: self._context.meta.commit(request, by))\n    return request.epoch",
        seed=5,
    ),
    Bug(
        "hole in the pushed versions",
        "a client applies an entry to a version that it does not follow",
        follower.follow,
        "if first_seq > version.seq + 1:",
        "if False:",
    ),
    Bug(
        "unknown outcome forgotten between two calls",
        "a client uploads rows again that were committed",
        client_commits.PlatformCommits.commit,
        "self._unknown_commits.add(request)",
        "pass",
    ),
    Bug(
        "a shared message without an outcome counts as committed",
        "a commit is acknowledged that is in no log",
        messages.CommitMessages.commit,
        "if mine.answer.epoch or mine.answer.retry_after_ms else None",
        "if mine.answer.epoch or mine.answer.retry_after_ms else pb.CommitResponse(epoch=request.epoch)",
        seed=6,
    ),
    Bug(
        "pins not shown to a new leader",
        "after a failover nobody renews them",
        backend.PlatformBackend.holdings,
        "pins=self._pins.shown()",
        "pins=()",
        seed=48,
    ),
    Bug(
        "snapshot reads whatever has the name",
        "once its table was dropped and another one created, a pinned snapshot reads that one",
        snapshot.table_at,
        "(*kept, *version.tables.values())\n"
        "        if state.spec.name == name and state.created_epoch <= epoch and (not seq or state.created_seq <= seq)",
        "version.tables.values()\n        if state.spec.name == name",
        seed=1,
    ),
    Bug(
        "clock not compared with the bucket's",
        "one commit by a clock years ahead ends retention",
        clock.BucketClock._is_ahead,
        "return self._beyond(ms) > self.max_ahead_ms",
        "return False",
        seed=8,
    ),
    Bug(
        "pins of one token beside each other",
        "a repeated call for a pin, refused, deletes the pin that its first try was answered with",
        pinning.Pinning._pin,
        "with turn:",
        "if True:",
    ),
]


def _patch(bug: Bug) -> CodeType:
    function: Any = inspect.unwrap(bug.function)
    source = textwrap.dedent(inspect.getsource(function))
    assert source.count(bug.old) == 1, f"{bug.name}: the code has changed; look for the bug's place anew"
    names: dict[str, Any] = {}
    code = compile(source.replace(bug.old, bug.new), inspect.getfile(function), "exec", dont_inherit=True)
    exec(code, dict(sys.modules[function.__module__].__dict__), names)
    compiled: FunctionType = names[function.__name__]
    return compiled.__code__


@contextmanager
def planted(bug: Bug | None) -> Iterator[None]:
    """Inside, the code has the bug."""
    if bug is None:
        yield
        return
    function: Any = inspect.unwrap(bug.function)
    code = function.__code__
    function.__code__ = _patch(bug)
    try:
        yield
    finally:
        function.__code__ = code
