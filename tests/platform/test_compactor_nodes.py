"""Compactor nodes as processes, at a meta service in another: killed, stopped, told to end, and joined by others.

A slot that is stopped by SIGSTOP holds its task for as long as the test likes.
"""

import os
import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path

import numpy as np
import pytest

from support.meta_process import CompactorProcess, MetaProcess, ServiceProcess
from tussock.compactor.serve import sst_bytes_for
from tussock.meta.rpc import meta_pb2 as pb
from tussock.statestore import StateStore, connect
from tussock.statestore.errors import InvalidOption, TussockError

WAIT_SECONDS = 60


class Cluster:
    """A replica of the service on a folder, its store, and compactors."""

    def __init__(self, folder: Path, exits: ExitStack) -> None:
        self._exits = exits
        settings = ("--session.lease-seconds", "2", "--compaction.l0-merge-min", "1000", "--compaction.l0-merge-max")
        limits = ("1000", "--compaction.l0-runs-max", "1000", "--compaction.l0-stall-runs", "2000")
        self.meta = exits.enter_context(MetaProcess(folder.as_uri(), *settings, *limits)).wait_until_it_leads()
        self.store: StateStore = exits.enter_context(connect(self.meta.url, retention=0, deadline=20))

    def compactor(self, name: str, *arguments: str) -> CompactorProcess:
        process = CompactorProcess(self.meta, name, *arguments)
        return self._exits.enter_context(process).wait_until_connected()

    def table(self, name: str, commits: int = 3, rows: int = 1000) -> None:
        """A table with a run for each commit; its values cannot be compressed."""
        table, generator = self.store.create_table(name), np.random.default_rng(1)
        for _ in range(commits):
            epoch = self.store.new_epoch()
            table.ingest_batch([(b"%06d" % row, generator.bytes(100)) for row in range(rows)], epoch)
            self.store.commit_epoch(epoch)

    def runs(self, name: str) -> int:
        state = self.store._core.backend.refresh().find_table(name)
        assert state is not None
        return len(state.levels.runs())

    def held_task(self, compactor: CompactorProcess) -> tuple["Asked", str, int]:
        """A compaction under way in a slot that stands still: who asked, the task, and the slot's process."""
        self.table("first")
        self.store.compact("first")
        (slot,) = compactor.slots()
        os.kill(slot, signal.SIGSTOP)
        self.table("kv")
        asked = Asked(self.store, "kv")
        line = compactor.wait_for(event="compaction task begins", table="kv")
        return asked, line["task"], slot


class Asked:
    """A manual compaction under way."""

    def __init__(self, store: StateStore, table: str) -> None:
        self.error: TussockError | None = None
        self._thread = threading.Thread(target=self._run, args=(store, table), daemon=True)
        self._thread.start()

    def _run(self, store: StateStore, table: str) -> None:
        try:
            store.compact(table)
        except TussockError as error:
            self.error = error

    def wait(self) -> None:
        self._thread.join(WAIT_SECONDS)
        assert not self._thread.is_alive(), "the compaction did not end"
        if self.error is not None:
            raise self.error


def eventually(what: Callable[[], object]) -> None:
    pause = threading.Event()
    for _ in range(WAIT_SECONDS * 50):
        if what():
            return
        pause.wait(0.02)
    raise AssertionError(f"it did not happen within {WAIT_SECONDS} s")


def is_running(pid: int) -> bool:
    """Whether the process is there, and no mere entry that waits for its parent to read it."""
    try:
        return " Z " not in Path(f"/proc/{pid}/stat").read_text()
    except FileNotFoundError:
        return False


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[Cluster]:
    with ExitStack() as exits:
        yield Cluster(tmp_path / "bucket", exits)


def test_tasks_run_in_processes_of_their_own(cluster: Cluster) -> None:
    """One for each slot, from the start to the end; the node's own does none."""
    node = cluster.compactor("n1", "--slots", "2")
    slots = sorted(node.slots())
    assert len(slots) == 2
    cluster.table("kv", commits=4, rows=50_000)
    cluster.store.compact("kv")
    assert cluster.runs("kv") == 1
    assert sorted(node.slots()) == slots
    assert node.wait_for(event="compaction task done")["rows"] == 50_000


def test_a_slot_that_is_killed_costs_its_task_only(cluster: Cluster) -> None:
    """Who asked is told how it ended; the next task gets a fresh process."""
    node = cluster.compactor("n1")
    asked, _, slot = cluster.held_task(node)
    os.kill(slot, signal.SIGKILL)
    with pytest.raises(TussockError, match="ended with signal SIGKILL"):
        asked.wait()
    cluster.store.compact("kv")
    assert cluster.runs("kv") == 1
    (fresh,) = node.slots()
    assert fresh != slot


def test_a_node_that_is_killed_is_replaced_by_another(cluster: Cluster) -> None:
    """Its session lapses, its task goes to the other node, and its slot ends with it."""
    first = cluster.compactor("first")
    asked, task, slot = cluster.held_task(first)
    second = cluster.compactor("second")
    first.process.kill()
    os.kill(slot, signal.SIGCONT)
    first.wait()
    eventually(lambda: not is_running(slot))
    asked.wait()
    assert cluster.runs("kv") == 1
    cluster.meta.wait_for(event="compaction task taken back", task=task)
    assert second.wait_for(event="compaction task done", table="kv")["task"] != task


def test_sigterm_hands_tasks_back(cluster: Cluster) -> None:
    """The node ends with code 0; the task is free at once, and the slot, which does not even listen, is gone."""
    first = cluster.compactor("first")
    asked, task, slot = cluster.held_task(first)
    first.terminate()
    assert first.wait() == 0
    assert not is_running(slot)
    assert [line["event"] for line in first.lines][-2:] == ["draining", "stopped"]
    cluster.meta.wait_for(event="compaction task handed back", task=task, compactor="first")
    cluster.compactor("second")
    asked.wait()
    assert cluster.runs("kv") == 1


def test_a_silent_node_loses_its_task_and_its_late_report_is_refused(cluster: Cluster) -> None:
    """It was stopped and goes on later: what it did is garbage, and the node is as good as before."""
    silent = cluster.compactor("silent")
    asked, task, slot = cluster.held_task(silent)
    silent.process.send_signal(signal.SIGSTOP)
    cluster.meta.wait_for(event="compaction task taken back", task=task)
    other = cluster.compactor("other")
    asked.wait()
    levels = cluster.store._core.backend.refresh().find_table("kv").levels
    os.kill(slot, signal.SIGCONT)
    silent.process.send_signal(signal.SIGCONT)
    lost = ("compaction task lost, its outputs are garbage", "compaction task refused")
    silent.wait_for(lambda line: line["event"] in lost, task=task)
    assert cluster.store._core.backend.refresh().find_table("kv").levels == levels
    other.terminate()
    assert other.wait() == 0
    cluster.store.compact("kv")
    eventually(lambda: any(line["event"] == "compaction task done" for line in silent.lines[-1:]))


def test_nodes_join_while_the_platform_runs(cluster: Cluster) -> None:
    """Three tables that wait go to three nodes at once, of which two were not there at first."""
    connection = cluster.store._core.backend._connection
    nodes = [cluster.compactor("n1")]
    connection.call("PauseCompaction", pb.PauseCompactionRequest(paused=True, reason="the test"))
    tables = ("a", "b", "c")
    for table in tables:
        cluster.table(table)
    asked = [Asked(cluster.store, table) for table in tables]
    nodes += [cluster.compactor("n2"), cluster.compactor("n3")]
    eventually(lambda: connection.call("Compact", pb.CompactRequest(table="a")).compactors == 3)
    assert [cluster.runs(table) for table in tables] == [3, 3, 3]
    connection.call("PauseCompaction", pb.PauseCompactionRequest(paused=False))
    for one in asked:
        one.wait()
    done = {node.wait_for(event="compaction task done")["table"] for node in nodes}
    assert done == set(tables)


def test_two_nodes_of_one_name(cluster: Cluster) -> None:
    """The second is refused, with the way out."""
    cluster.compactor("twin")
    second = CompactorProcess(cluster.meta, "twin")
    assert second.wait() == 1
    assert "a compactor named 'twin' is connected already; give each its own --name" in "\n".join(second.raw)


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("--meta", "nowhere"), "does not name a meta service"),
        (("--meta", "127.0.0.1:1", "--slots", "0"), "greater than or equal to 1"),
        (("--meta", "127.0.0.1:1", "--slots", "4", "--memory-mib", "900"), "900 MiB are too few for 4 slots"),
        (("--meta", "127.0.0.1:1", "--log-format", "xml"), "json or text"),
        (("--meta", "127.0.0.1:1", "--health-listen", "7372"), "health_listen is HOST:PORT"),
    ],
)
def test_bad_settings_end_the_node_with_a_reason(arguments: tuple[str, ...], words: str) -> None:
    """In words, and with no trace."""
    node = ServiceProcess("compactor", *arguments)
    assert node.wait() in (1, 2)
    said = " ".join(" ".join(node.raw).replace("│", " ").split())
    assert words in said
    assert "Traceback" not in said


def test_memory_is_shared_by_the_slots() -> None:
    """Less memory for a slot makes its outputs smaller; too little is refused."""
    assert sst_bytes_for(0, 8) == sst_bytes_for(8 << 30, 4) == 64 << 20
    assert 4 << 20 <= sst_bytes_for(4 * 300 << 20, 4) < 16 << 20
    with pytest.raises(InvalidOption, match="need 1072 MiB"):
        sst_bytes_for(1000 << 20, 4)
