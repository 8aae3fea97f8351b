"""The network of a node: a namespace without a way out, which the machine reaches over one pair of interfaces.

Pods, services and the node's ports live inside, so nothing of the machine is in their way, and nothing that a test
sends can leave it. A pair of interfaces with a network of two addresses leads in: that is how kubectl and the tests
reach the API server, as they would a cluster elsewhere. Pods are reached by `kubectl exec` and `port-forward` only.
A second node has a namespace, too; a cable leads from it to the first one, and to nowhere else.
"""

import contextlib
import json
import subprocess
import zlib
from collections.abc import Iterable
from pathlib import Path
from typing import NamedTuple

NAMESPACES = Path("/run/netns")
CLUSTER_RANGE = "10.244.0.0/16"
"""The addresses of all pods and nodes."""
SERVICE_RANGE = "10.96.0.0/16"
BRIDGE = "cni0"
CABLE = "cable"
CABLE_ADDRESSES = ("10.244.255.1", "10.244.255.2")


def node_address(number: int) -> str:
    """A node as its cluster sees it, by its number in it."""
    return f"10.244.{number}.1"


class Network(NamedTuple):
    """Names and addresses of a node's network; `name` keeps the nodes of two clones apart."""

    name: str
    number: int = 0
    """Of the node in its cluster."""

    @property
    def pod_range(self) -> str:
        """The addresses of the node's pods."""
        return f"10.244.{self.number}.0/24"

    @property
    def node_address(self) -> str:
        """The node as its cluster sees it."""
        return node_address(self.number)

    @property
    def path(self) -> Path:
        """What `nsenter --net=` enters: unlike `ip netns exec` it leaves /sys, and so the cgroups, as they are."""
        return NAMESPACES / self.name

    @property
    def address(self) -> str:
        """The node as the machine sees it: one of the /30 blocks of 198.18.0.0/16, which is reserved for tests."""
        return self._address(2)

    def _address(self, host: int) -> str:
        number = zlib.crc32(self.name.encode()) % 2**14 * 4 + host
        return f"198.18.{number // 256}.{number % 256}"

    @property
    def outer(self) -> str:
        """The machine's interface of the pair."""
        return f"tk{zlib.crc32(self.name.encode()):08x}"

    def is_up(self) -> bool:
        """Whether the namespace is there."""
        return self.path.exists()

    def up(self) -> None:
        """Make the namespace and the bridge for pods, if they are missing."""
        if self.is_up():
            return
        _ip("netns", "add", self.name)
        self._configure(
            "link set lo up",
            # The bridge exists before the first pod, because its address is the node's.
            f"link add {BRIDGE} type bridge",
            f"addr add {self.node_address}/24 dev {BRIDGE}",
            f"link set {BRIDGE} up",
            # Without a default route the kernel refuses ClusterIPs before kube-proxy's rules see them.
            f"route add {SERVICE_RANGE} dev {BRIDGE}",
        )
        # Without the second, packets from pod to pod pass the bridge unseen by the rules of services and policies.
        settings = ("net.ipv4.ip_forward=1", "net.bridge.bridge-nf-call-iptables=1")
        subprocess.run(self.inside("sysctl", "-qw", *settings), check=True)

    def open_to_machine(self) -> None:
        """Make the pair of interfaces over which the machine reaches the node."""
        outer, inner = self.outer, "machine"
        _ip("link", "add", outer, "type", "veth", "peer", "name", inner, "netns", self.name)
        _ip("addr", "add", f"{self._address(1)}/30", "dev", outer)
        _ip("link", "set", outer, "up")
        self._configure(f"addr add {self.address}/30 dev {inner}", f"link set {inner} up")

    def connect(self, other: "Network") -> None:
        """Lay the cable to another node of the cluster."""
        ends = (self, other), (other, self)
        # One whose other end has gone goes a moment later.
        _remove_link("-n", self.name, name=CABLE)
        _ip("-n", self.name, "link", "add", CABLE, "type", "veth", "peer", "name", CABLE, "netns", other.name)
        for (near, far), here, there in zip(ends, CABLE_ADDRESSES, reversed(CABLE_ADDRESSES), strict=True):
            near._configure(
                f"addr add {here}/30 dev {CABLE}",
                f"link set {CABLE} up",
                # By this address the other node knows this one.
                f"route add {far.pod_range} via {there} src {near.node_address}",
            )

    def pull_cable(self) -> None:
        """Cut the node off: what is sent to it vanishes, and nobody is told, as when a machine has lost its power."""
        self._configure(f"link set {CABLE} down")

    def processes(self) -> set[int]:
        """The processes in the namespace: those of the node, and pods with the network of their node."""
        return {int(line) for line in _ip("netns", "pids", self.name).split()} if self.is_up() else set()

    def down(self) -> None:
        """Remove the namespace and all interfaces."""
        remove_namespace(self.name)
        # With the namespace they go a moment later, and up() would find this one.
        _remove_link(name=self.outer)

    def inside(self, *command: str) -> list[str]:
        """The command, changed to run inside the network."""
        return ["nsenter", f"--net={self.path}", *command]

    def _configure(self, *lines: str) -> None:
        """Commands of `ip` inside the namespace."""
        for line in lines:
            _ip("-n", self.name, *line.split())


def namespaces_of(processes: Iterable[int]) -> set[str]:
    """The names of the network namespaces in which these processes are, such as pods'; never that of this process."""
    found = {_identity(Path(f"/proc/{process}/ns/net")) for process in processes}
    found -= {None, _identity(Path("/proc/self/ns/net"))}
    return {path.name for path in NAMESPACES.glob("*") if _identity(path) in found}


def remove_namespace(name: str) -> None:
    """Remove a network namespace and what is in it."""
    if (NAMESPACES / name).exists():
        _ip("netns", "del", name)


def _remove_link(*where: str, name: str) -> None:
    """Remove an interface, if it is there; it may go by itself meanwhile. Raises if it stays."""
    with contextlib.suppress(subprocess.CalledProcessError):
        _ip(*where, "link", "del", name)
    left = {each["ifname"] for each in json.loads(_ip(*where, "-json", "link", "show"))}
    if name in left:
        raise RuntimeError(f"the interface {name} does not go: `ip {' '.join(where)} link del {name}`")


def _identity(path: Path) -> tuple[int, int] | None:
    """What is the same for all files of one namespace; `None` if the process is gone."""
    try:
        found = path.stat()
    except OSError:
        return None
    return found.st_dev, found.st_ino


def _ip(*arguments: str) -> str:
    return subprocess.run(["ip", *arguments], check=True, capture_output=True, text=True, timeout=30).stdout
