"""The Kubernetes node of the tests removes what a run that was killed has left, and only its own."""

import os
import shutil
import signal
import subprocess
import sys
import zlib
from collections.abc import Iterator
from pathlib import Path

import pytest

from cluster.binaries import NoCluster
from cluster.node import Node
from cluster.parts import cgroups
from cluster.parts.network import NAMESPACES

DEAF = "import signal, time; signal.signal(signal.SIGTERM, signal.SIG_IGN); print(flush=True); time.sleep(600)"

ASK = """
import socket, sys
try:
    socket.create_connection((sys.argv[1], 9), timeout=1)
except OSError as error:
    print(type(error).__name__)
"""


@pytest.fixture
def node(tmp_path: Path) -> Iterator[Node]:
    """A node that was never up, of a clone that there is not."""
    if os.geteuid() != 0 or not sys.platform.startswith("linux"):
        pytest.skip("cgroups and namespaces can be made by root on Linux only")
    if not (shutil.which("ip") and shutil.which("nsenter")):
        pytest.skip("there is no ip or no nsenter; install iproute2 and util-linux")
    found = Node(tmp_path)
    try:
        cgroups.make(found.name)
    except OSError as error:
        pytest.skip(f"this machine lets nobody make a cgroup: {error}")
    yield found
    found.down()
    for each in (found, found.second):
        shutil.rmtree(each.folder, ignore_errors=True)


@pytest.fixture
def spaces(node: Node) -> Iterator[list[str]]:
    """Network namespaces: the node's own, a pod's, and one of somebody else."""
    names = [node.name, f"cni-{node.name}", f"other-{node.name}"]
    for name in names:
        made = subprocess.run(["ip", "netns", "add", name], capture_output=True, text=True, check=False)
        if made.returncode:
            pytest.skip(f"this machine lets nobody make a network namespace: {made.stderr.strip()}")
    yield names
    for name in names:
        if (NAMESPACES / name).exists():
            subprocess.run(["ip", "netns", "del", name], check=True)


def left_in(space: str) -> subprocess.Popen[bytes]:
    """A process in a network namespace that does not listen to SIGTERM."""
    command = ["nsenter", f"--net={NAMESPACES / space}", sys.executable, "-c", DEAF]
    process = subprocess.Popen(command, stdout=subprocess.PIPE)
    assert process.stdout is not None
    process.stdout.readline()
    return process


def pod_of(name: str, process: int) -> list[Path]:
    """Put a process into a cgroup below that of a node, in each hierarchy, as a kubelet does."""
    tops = [path.parent for path in cgroups.ROOT.glob(f"*/{name}/cgroup.procs")]
    tops += [path.parent for path in cgroups.ROOT.glob(f"{name}/cgroup.procs")]
    for top in tops:
        pod = top / "kubepods" / "pod1"
        pod.mkdir(parents=True)
        for folder in (pod.parent, pod):
            for setting in ("cpuset.cpus", "cpuset.mems"):
                if (cgroups.ROOT / "cpuset").exists() and (folder / setting).exists():
                    (folder / setting).write_text((top / setting).read_text())
        (pod / "cgroup.procs").write_text(str(process))
    return tops


def test_a_node_removes_what_a_killed_run_has_left(node: Node, spaces: list[str]) -> None:
    """Story: a run that was killed left a pod, and every later start of the node failed with EBUSY.

    The pod's process, a shim in the node's network, both namespaces, the interface and a mount go; the process and
    the namespace of somebody else stay.
    """
    own, pods, other = spaces
    shim, pod, stranger = left_in(own), left_in(pods), left_in(other)
    pair = ["ip", "link", "add", node.network.outer, "type", "veth", "peer", "name", "machine", "netns", own]
    subprocess.run(pair, check=True)
    mount = node.folder / "kubelet" / "volume"
    mount.mkdir(parents=True)
    is_mounted = subprocess.run(["mount", "-t", "tmpfs", "none", mount], check=False).returncode == 0
    groups = pod_of(node.name, pod.pid)
    assert groups
    assert cgroups.processes(node.name) == {pod.pid}
    try:
        node.down()
        assert pod.wait(10) == shim.wait(10) == -signal.SIGKILL
        assert not any(group.exists() for group in groups)
        assert not Path("/sys/class/net", node.network.outer).exists()
        assert [name for name in spaces if (NAMESPACES / name).exists()] == [other]
        assert not (is_mounted and str(mount) in Path("/proc/mounts").read_text())
        assert stranger.poll() is None
        cgroups.make(node.name)
        node.down()
    finally:
        for process in (shim, pod, stranger):
            process.kill()
            process.wait()


def test_a_lost_node_ends_without_a_word(node: Node, spaces: list[str]) -> None:
    """Its processes and pods are killed; what is sent to it vanishes, and nobody is told. The first node lives on."""
    own, *_ = spaces
    second = node.second
    subprocess.run(["ip", "netns", "del", own], check=True)
    for each in (node, second):
        each.network.up()
        cgroups.make(each.name)
    node.network.connect(second.network)
    stays, ends = left_in(node.name), left_in(second.name)
    groups = pod_of(second.name, ends.pid)
    ask = [sys.executable, "-c", ASK, second.network.node_address]

    def asked() -> str:
        return subprocess.run(node.network.inside(*ask), check=True, capture_output=True, text=True).stdout.strip()

    try:
        assert asked() == "ConnectionRefusedError", "it answers that nobody listens"
        second.lose()
        assert ends.wait(10) == -signal.SIGKILL
        assert asked() in ("TimeoutError", "OSError"), "as from a machine without power"
        assert stays.poll() is None
        # A node that is lost leaves nothing, either, when the first one goes.
        node.down()
        assert stays.wait(10) == -signal.SIGKILL
        assert not any(group.exists() for group in groups)
        assert not {node.name, second.name} & {path.name for path in NAMESPACES.iterdir()}
    finally:
        for process in (stays, ends):
            process.kill()
            process.wait()


def test_a_second_node_needs_a_first_one(node: Node) -> None:
    with pytest.raises(NoCluster, match="python -m cluster up"):
        node.second.up()


@pytest.mark.parametrize("name", ["", ".", "..", "tussock", "tussock-1/..", "docker", "/tussock-1"])
def test_no_cgroup_of_others_is_emptied(name: str) -> None:
    """The name of a node is checked before anything is killed."""
    with pytest.raises(ValueError, match="is no cgroup of a node"):
        cgroups.remove(name)


def test_each_clone_has_a_node_of_its_own(tmp_path: Path) -> None:
    """So what has the node's name is the node's."""
    assert Node(tmp_path).name == f"tussock-{zlib.crc32(bytes(tmp_path)):08x}"
    assert Node(tmp_path).name != Node().name
