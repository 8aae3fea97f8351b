"""Compactor nodes as processes, at a meta service in another: killed, stopped, terminated, and joined by others.

A slot that is stopped by SIGSTOP holds its task until the test lets it continue.
"""

import os
import signal
import socket
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import numpy as np
import pytest

from support import inside
from support.service.compactions import CompactCall
from support.service.meta_process import CompactorProcess, MetaProcess, ServiceProcess
from support.waiting import eventually
from tussock.compactor.node.serve import sst_bytes_for
from tussock.meta.rpc import meta_pb2 as pb
from tussock.statestore import StateStore, connect
from tussock.statestore.errors import InvalidOption, TussockError


class Cluster:
    """A replica of the service on a folder, its store, and compactors."""

    def __init__(self, folder: Path, exits: ExitStack, lease: int) -> None:
        self._exits = exits
        settings = {
            "session.lease-seconds": lease,
            "compaction.l0-merge-min": 1000,
            "compaction.l0-merge-max": 1000,
            "compaction.l0-runs-max": 1000,
            "compaction.l0-stall-runs": 2000,
        }
        flags = (f"--{name}={value}" for name, value in settings.items())
        self.meta = exits.enter_context(MetaProcess(folder.as_uri(), *flags)).wait_until_it_leads()
        self.store: StateStore = exits.enter_context(connect(self.meta.url, retention=0, deadline=20))

    def compactor(self, name: str, *arguments: str) -> CompactorProcess:
        process = CompactorProcess(self.meta, name, *arguments)
        return self._exits.enter_context(process).wait_until_connected()

    def table(self, name: str, commits: int = 3, rows: int = 1000) -> None:
        """Create a table with a run for each commit; its values cannot be compressed."""
        table, generator = self.store.create_table(name), np.random.default_rng(1)
        for _ in range(commits):
            epoch = self.store.new_epoch()
            table.ingest_batch([(b"%06d" % row, generator.bytes(100)) for row in range(rows)], epoch)
            self.store.commit_epoch(epoch)

    def runs(self, name: str) -> int:
        state = inside.backend(self.store).refresh().find_table(name)
        assert state is not None
        return len(state.levels.runs())

    def held_task(self, compactor: CompactorProcess) -> tuple[CompactCall, str, int]:
        """A running compaction in a stopped slot: the call that waits for it, the task, and the slot's process."""
        self.table("first")
        self.store.compact("first")
        (slot,) = compactor.slots()
        os.kill(slot, signal.SIGSTOP)
        self.table("kv")
        asked = CompactCall(self.store, "kv")
        line = compactor.wait_for(event="compaction task begins", table="kv")
        return asked, line["task"], slot


def is_running(pid: int) -> bool:
    """Whether the process runs, and is no zombie."""
    try:
        return " Z " not in Path(f"/proc/{pid}/stat").read_text()
    except FileNotFoundError:
        return False


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[Cluster]:
    """No session in it lapses, however busy the machine is: a node loses only tasks that it gave back."""
    with ExitStack() as exits:
        yield Cluster(tmp_path / "bucket", exits, lease=120)


@pytest.fixture
def impatient(tmp_path: Path) -> Iterator[Cluster]:
    """A cluster whose sessions soon lapse, for tests that wait for that."""
    with ExitStack() as exits:
        yield Cluster(tmp_path / "bucket", exits, lease=5)


def test_tasks_run_in_separate_processes(cluster: Cluster) -> None:
    """One for each slot, from the start to the end; the node's own process runs none."""
    node = cluster.compactor("n1", "--slots", "2")
    slots = sorted(node.slots())
    assert len(slots) == 2
    cluster.table("kv", commits=4, rows=50_000)
    cluster.store.compact("kv")
    assert cluster.runs("kv") == 1
    assert sorted(node.slots()) == slots
    assert node.wait_for(event="compaction task done")["rows"] == 50_000


def test_a_slot_that_is_killed_costs_its_task_only(cluster: Cluster) -> None:
    """The caller gets an error with the signal; the next task gets a fresh process."""
    node = cluster.compactor("n1")
    asked, _, slot = cluster.held_task(node)
    os.kill(slot, signal.SIGKILL)
    with pytest.raises(TussockError, match="ended with signal SIGKILL"):
        asked.wait()
    cluster.store.compact("kv")
    assert cluster.runs("kv") == 1
    (fresh,) = node.slots()
    assert fresh != slot


@pytest.mark.long
def test_a_node_that_is_killed_is_replaced_by_another(impatient: Cluster) -> None:
    """Its session lapses, its task goes to the other node, and its slot ends with it."""
    first = impatient.compactor("first")
    asked, task, slot = impatient.held_task(first)
    second = impatient.compactor("second")
    first.process.kill()
    os.kill(slot, signal.SIGCONT)
    first.wait()
    eventually(lambda: not is_running(slot))
    asked.wait()
    assert impatient.runs("kv") == 1
    impatient.meta.wait_for(event="compaction task taken back", task=task)
    assert second.wait_for(event="compaction task done", table="kv")["task"] != task


def test_sigterm_hands_tasks_back(cluster: Cluster) -> None:
    """The node ends with code 0; the task is free at once, and the stopped slot is gone."""
    first = cluster.compactor("first")
    asked, task, slot = cluster.held_task(first)
    first.terminate()
    assert first.wait() == 0
    assert not is_running(slot)
    events = [line["event"] for line in first.lines]
    assert (events[-1], events.count("draining")) == ("stopped", 1)
    cluster.meta.wait_for(event="compaction task handed back", task=task, compactor="first")
    cluster.compactor("second")
    asked.wait()
    assert cluster.runs("kv") == 1


@pytest.mark.long
def test_a_silent_node_loses_its_task_and_its_late_report_is_refused(impatient: Cluster) -> None:
    """It was stopped and continues later: its outputs are garbage, and the node works as before."""
    silent = impatient.compactor("silent")
    asked, task, slot = impatient.held_task(silent)
    silent.process.send_signal(signal.SIGSTOP)
    impatient.meta.wait_for(event="compaction task taken back", task=task)
    other = impatient.compactor("other")
    asked.wait()
    levels = inside.backend(impatient.store).refresh().find_table("kv").levels
    os.kill(slot, signal.SIGCONT)
    silent.process.send_signal(signal.SIGCONT)
    lost = ("compaction task lost, its outputs are garbage", "compaction task refused")
    silent.wait_for(lambda line: line["event"] in lost, task=task)
    assert inside.backend(impatient.store).refresh().find_table("kv").levels == levels
    other.terminate()
    assert other.wait() == 0
    impatient.store.compact("kv")
    eventually(lambda: any(line["event"] == "compaction task done" for line in silent.lines[-1:]))


@pytest.mark.long
def test_nodes_join_while_the_platform_runs(cluster: Cluster) -> None:
    """Three waiting tables go to three nodes at once, two of which joined later."""
    connection = inside.connection(inside.backend(cluster.store))
    nodes = [cluster.compactor("n1")]
    connection.call("PauseCompaction", pb.PauseCompactionRequest(paused=True, reason="the test"))
    tables = ("a", "b", "c")
    for table in tables:
        cluster.table(table)
    asked = [CompactCall(cluster.store, table) for table in tables]
    nodes += [cluster.compactor("n2"), cluster.compactor("n3")]
    eventually(lambda: connection.call("Compact", pb.CompactRequest(table="a")).compactors == 3)
    assert [cluster.runs(table) for table in tables] == [3, 3, 3]
    connection.call("PauseCompaction", pb.PauseCompactionRequest(paused=False))
    for one in asked:
        one.wait()
    done = {node.wait_for(event="compaction task done")["table"] for node in nodes}
    assert done == set(tables)


def test_a_second_node_of_one_name_is_refused(cluster: Cluster) -> None:
    """The error says how to give another name."""
    cluster.compactor("twin")
    second = CompactorProcess(cluster.meta, "twin")
    assert second.wait() == 1
    assert "a compactor named 'twin' is connected already; give each its own --name" in "\n".join(second.raw)


def test_a_killed_node_without_a_name_is_back_before_its_session_lapses(cluster: Cluster) -> None:
    """A restarted container has the same host and process id, so the default name does not rest on these."""
    nodes = [cluster.compactor("")]
    nodes[0].process.kill()
    nodes.append(cluster.compactor(""))
    names = [node.wait_for(event="compacting")["name"] for node in nodes]
    assert names[0] != names[1]
    for node, name in zip(nodes, names, strict=True):
        assert name.partition(":")[0] == socket.gethostname()
        assert name != f"{socket.gethostname()}:{node.process.pid}"


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
    """One line, without a traceback."""
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
