"""The network of the node: a namespace without a way out, which the machine reaches over one pair of interfaces.

Pods, services and the node's ports live inside, so nothing of the machine is in their way, and nothing that a test
sends can leave it. A pair of interfaces with a network of two addresses leads in: that is how kubectl and the tests
reach the API server, as they would a cluster elsewhere. Pods are reached by `kubectl exec` and `port-forward` only.
"""

import subprocess
import zlib
from collections.abc import Iterable
from pathlib import Path
from typing import NamedTuple

NAMESPACES = Path("/run/netns")
POD_RANGE = "10.244.0.0/24"
NODE_ADDRESS = "10.244.0.1"
BRIDGE = "cni0"


class Network(NamedTuple):
    """Names and addresses of a node's network; `name` keeps the nodes of two clones apart."""

    name: str

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
        """Make what is missing of the namespace, the bridge for pods and the pair of interfaces."""
        if self.is_up():
            return
        outer, inner = self.outer, "machine"
        _ip("netns", "add", self.name)
        _ip("link", "add", outer, "type", "veth", "peer", "name", inner, "netns", self.name)
        _ip("addr", "add", f"{self._address(1)}/30", "dev", outer)
        _ip("link", "set", outer, "up")
        for command in (
            f"link set lo up\naddr add {self.address}/30 dev {inner}\nlink set {inner} up",
            # The bridge exists before the first pod, because its address is the node's.
            f"link add {BRIDGE} type bridge\naddr add {NODE_ADDRESS}/24 dev {BRIDGE}\nlink set {BRIDGE} up",
            # Without a default route the kernel refuses ClusterIPs before kube-proxy's rules see them.
            f"route add 10.96.0.0/16 dev {BRIDGE}",
        ):
            for line in command.splitlines():
                _ip("-n", self.name, *line.split())
        # Without the second, packets from pod to pod pass the bridge unseen by the rules of services and policies.
        settings = ("net.ipv4.ip_forward=1", "net.bridge.bridge-nf-call-iptables=1")
        subprocess.run(self.inside("sysctl", "-qw", *settings), check=True)

    def processes(self) -> set[int]:
        """The processes in the namespace: those of the node, and pods with the network of their node."""
        return {int(line) for line in _ip("netns", "pids", self.name).split()} if self.is_up() else set()

    def down(self) -> None:
        """Remove the namespace and all interfaces."""
        remove_namespace(self.name)
        # With the namespace they go a moment later, and up() would find this one.
        if Path("/sys/class/net", self.outer).exists():
            _ip("link", "del", self.outer)

    def inside(self, *command: str) -> list[str]:
        """The command, changed to run inside the network."""
        return ["nsenter", f"--net={self.path}", *command]


def namespaces_of(processes: Iterable[int]) -> set[str]:
    """The names of the network namespaces in which these processes are, such as pods'; never that of this process."""
    found = {_identity(Path(f"/proc/{process}/ns/net")) for process in processes}
    found -= {None, _identity(Path("/proc/self/ns/net"))}
    return {path.name for path in NAMESPACES.glob("*") if _identity(path) in found}


def remove_namespace(name: str) -> None:
    """Remove a network namespace and what is in it."""
    if (NAMESPACES / name).exists():
        _ip("netns", "del", name)


def _identity(path: Path) -> tuple[int, int] | None:
    """What is the same for all files of one namespace; `None` if the process is gone."""
    try:
        found = path.stat()
    except OSError:
        return None
    return found.st_dev, found.st_ino


def _ip(*arguments: str) -> str:
    return subprocess.run(["ip", *arguments], check=True, capture_output=True, text=True, timeout=30).stdout
